"""TODO"""

from collections.abc import Iterator, Mapping
from typing import Any

# What the headers say of the body

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


# An argument that has to come in a header too: the header, and the argument's place.
Mirror = tuple[bytes, tuple[str, ...]]


def mirrors(schema: Any, path: tuple[str, ...] = ()) -> Iterator[Mirror]:
    """The arguments whose schema has `x-mcp-header`, wherever nothing but `properties` leads to them."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for name, inner in (properties or {}).items():
        if isinstance(inner, Mapping):
            header = inner.get("x-mcp-header")
            if isinstance(header, str) and header.isascii():
                yield b"Mcp-Param-" + header.encode(), (*path, name)
            yield from mirrors(inner, (*path, name))
