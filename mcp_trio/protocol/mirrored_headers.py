"""HTTP headers that repeat parts of a message, so that proxies can route by them.

`Mcp-Name` repeats the name or URI in a request. `Mcp-Param-*` headers repeat the
arguments of a tool whose schema has the keyword `x-mcp-header`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Method -> the parameter that is repeated in `Mcp-Name`.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# The same for the methods of extensions that a client of this package uses.
NAMED_BY_IN_EXTENSIONS = {
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

# The types of arguments that a header can repeat.
_PRIMITIVES = {"string", "integer", "boolean"}
# RFC 9110, section 5.6.2: the characters of a header's name.
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

# The name of a header, and the path of the argument that it repeats.
Mirror = tuple[bytes, tuple[str, ...]]


def mirrors(schema: Any, path: tuple[str, ...] = ()) -> Iterator[Mirror]:
    """Yield the headers that a tool's input schema requires.

    The keyword only applies to schemas that are nested in `properties`.
    """
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not properties:
        return
    for name, inner in properties.items():
        if not isinstance(inner, Mapping):
            continue
        place = (*path, name)
        header = inner.get("x-mcp-header")
        if isinstance(header, str) and header.isascii():
            yield b"Mcp-Param-" + header.encode(), place
        yield from mirrors(inner, place)


def invalid_mirror(schema: Any) -> str | None:
    """Describe the problem with the headers in an input schema, or return None.

    A client ignores a tool with such a schema, because an invalid header name could be
    used to inject another header.
    """
    names: set[str] = set()
    for place, keyword, kind in _keywords(schema):
        where = ".".join(place)
        if not isinstance(keyword, str) or not _TOKEN.fullmatch(keyword):
            return f"{where}: x-mcp-header {keyword!r} is not the name of a header"
        if not _is_primitive(kind):
            return f"{where}: x-mcp-header on the type {kind!r}"
        if keyword.lower() in names:
            return f"{where}: x-mcp-header {keyword!r} is used twice"
        names.add(keyword.lower())
    return None


def _keywords(
    schema: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the path, the keyword's value and the type of each property that has it."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return
    for name, inner in properties.items():
        if not isinstance(inner, Mapping):
            continue
        place = (*path, name)
        if "x-mcp-header" in inner:
            yield place, inner["x-mcp-header"], inner.get("type")
        yield from _keywords(inner, place)


def _is_primitive(kind: Any) -> bool:
    """Return whether a header can repeat a value of this type.

    The type may be missing, as in a schema that is a reference.
    """
    if kind is None:
        return True
    kinds = set(kind) if isinstance(kind, list) else {kind}
    kinds_with_value = kinds - {"null"}
    return bool(kinds_with_value) and kinds_with_value <= _PRIMITIVES
