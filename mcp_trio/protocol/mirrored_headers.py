"""The HTTP headers that repeat parts of a message, so that a proxy can route by them.

`Mcp-Name` repeats the name or URI in a request. `Mcp-Param-*` headers repeat those
arguments of a tool whose schema has the keyword `x-mcp-header`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

# Method -> the parameter that `Mcp-Name` repeats.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# The same for the methods of extensions that a client of this package uses.
NAMED_BY_IN_EXTENSIONS = {
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

# The name of a header, and the path of the argument that it repeats.
Mirror = tuple[bytes, tuple[str, ...]]


def mirrors(schema: Any, path: tuple[str, ...] = ()) -> Iterator[Mirror]:
    """Yield the headers that a tool's input schema asks for.

    The keyword counts only in schemas that are reached through `properties`.
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
