"""TODO"""

import re
from typing import Any

from ...protocol import types as model
from ...protocol.jsonrpc import encode
from ...protocol.types import (
    TextContents,
)
from ..request import Request
from ..schema.signature import AnyFunction
from .feature import Feature, described
from .uri_template import UriTemplate

_CONTENTS = (TextContents, model.BlobContents)


class ServerResource(Feature):
    """A resource, or a family of them, that can be listed and read."""

    def __init__(
        self, uri: str, function: AnyFunction, *, size: int | None = None, **listed: Any
    ) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
            raise ValueError(
                f"resource {uri!r}: a URI starts with a scheme, such as notes://"
            )
        self.template = UriTemplate(uri)
        variables = self.template.names
        super().__init__(function, "resource", uri)
        if sorted(variables) != sorted(self.properties):
            found = f"the URI has {variables or 'none'}, the function {list(self.properties) or 'none'}"
            raise TypeError(
                f"{self.label}: URI's variables and parameters must have the same names; {found}"
            )
        self.must_take_strings()
        listed = described(model.Resource, function, **listed)
        self.listed = (
            model.ResourceTemplate(uri, **listed)
            if variables
            else model.Resource(uri, size=size, **listed)
        )

    async def read(
        self, request: Request, uri: str
    ) -> list[TextContents | model.BlobContents]:
        """What the URI reads as."""
        value = await self.call(
            request, self.parameters.decode(encode(self.template.match(uri)))
        )
        given = (
            isinstance(value, list)
            and len(value) > 0
            and all(isinstance(item, _CONTENTS) for item in value)
        )
        return [self._contents(uri, item) for item in (value if given else [value])]

    def _contents(self, uri: str, value: Any) -> TextContents | model.BlobContents:
        if isinstance(value, _CONTENTS):
            return value
        if isinstance(value, str):
            return TextContents(
                uri, value, mime_type=self.listed.mime_type or "text/plain"
            )
        if isinstance(value, bytes | bytearray | memoryview):
            return model.BlobContents(
                uri,
                bytes(value),
                mime_type=self.listed.mime_type or "application/octet-stream",
            )
        return TextContents(
            uri,
            encode(value).decode(),
            mime_type=self.listed.mime_type or "application/json",
        )
