"""Resources: what a URI, or a URI of some form, reads as."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from ..protocol.jsonrpc import encode
from ..protocol.model import BlobContents, Resource, ResourceTemplate, TextContents
from .dispatch import Request
from .functions import Called, Function, described

_CONTENTS = (TextContents, BlobContents)
_VARIABLE = re.compile(r"\{(\+?)(\w+)\}")


class UriTemplate:
    """A URI with variables: `{name}` matches up to the next slash, `{+name}` anything.

    Matching looks for each fixed part once, from left to right, so its time is linear in the URI's length.
    """

    def __init__(self, template: str) -> None:
        pieces = _VARIABLE.split(template)
        self._literals = pieces[::3]
        self._any = [bool(sign) for sign in pieces[1::3]]
        self.names = pieces[2::3]
        if "{" in "".join(self._literals) or "}" in "".join(self._literals):
            raise ValueError(f"resource {template!r}: variables are written {{name}} or {{+name}}")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"resource {template!r}: each variable needs a name of its own")
        if not all(self._literals[1:-1]):
            raise ValueError(f"resource {template!r}: something fixed is wanted between two variables")

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables' values, percent-decoded; None for a URI of another form."""
        if not uri.startswith(self._literals[0]):
            return None
        values, at = {}, len(self._literals[0])
        last = len(self.names) - 1
        for place, (name, literal) in enumerate(zip(self.names, self._literals[1:], strict=True)):
            end = uri.find(literal, at + 1) if place < last else len(uri) - len(literal)
            if end <= at or not uri.startswith(literal, end) or ("/" in uri[at:end] and not self._any[place]):
                return None
            values[name] = unquote(uri[at:end])
            at = end + len(literal)
        return values if at == len(uri) else None


class ServerResource(Function):
    """A resource, or a family of them, that can be listed and read."""

    def __init__(self, uri: str, function: Called, *, size: int | None = None, **listed: Any) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
            raise ValueError(f"resource {uri!r}: a URI starts with a scheme, such as notes://")
        self.template = UriTemplate(uri)
        variables = self.template.names
        super().__init__(function, "resource", uri)
        if sorted(variables) != sorted(self.properties):
            found = f"the URI has {variables or 'none'}, the function {list(self.properties) or 'none'}"
            wanted = "the URI's variables and the function's parameters must have the same names"
            raise TypeError(f"{self.label}: {wanted}; {found}")
        self.must_take_strings()
        listed = described(function, **listed)
        self.listed = ResourceTemplate(uri, **listed) if variables else Resource(uri, size=size, **listed)

    async def read(self, request: Request, uri: str) -> list[TextContents | BlobContents]:
        """What the URI reads as."""
        value = await self.call(request, self.arguments(encode(self.template.match(uri))))
        given = isinstance(value, list) and len(value) > 0 and all(isinstance(item, _CONTENTS) for item in value)
        items = value if given else [value]
        return [self._contents(uri, item) for item in items]

    def _contents(self, uri: str, value: Any) -> TextContents | BlobContents:
        if isinstance(value, _CONTENTS):
            return value
        if isinstance(value, str):
            return TextContents(uri, value, mime_type=self.listed.mime_type or "text/plain")
        if isinstance(value, bytes | bytearray | memoryview):
            return BlobContents(uri, bytes(value), mime_type=self.listed.mime_type or "application/octet-stream")
        return TextContents(uri, encode(value).decode(), mime_type=self.listed.mime_type or "application/json")
