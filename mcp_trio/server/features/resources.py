"""Resources and resource templates: functions that read the contents of a URI."""

import re
from collections.abc import Iterable
from typing import Any

from ...auth.principal import NO_SCOPES, as_scopes
from ...protocol import types as model
from ...protocol.jsonrpc import encode
from ...protocol.types import Json, TextContents
from ..request import Request
from ..schema.encode import encode_value
from ..schema.signature import AnyFunction
from ..truncate import too_large
from .feature import Feature, listed_description, listed_name
from .uri_template import UriTemplate

Contents = TextContents | model.BlobContents
_CONTENTS = (TextContents, model.BlobContents)


class ServerResource(Feature):
    """A resource, or a resource template, that clients can list and read."""

    listed: model.Resource | model.ResourceTemplate

    def __init__(
        self,
        uri: str,
        function: AnyFunction,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: list[model.Icon] | None = None,
        annotations: model.Annotations | None = None,
        meta: Json | None = None,
        contents_meta: Json | None = None,
        scopes: Iterable[str] = NO_SCOPES,
    ) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
            raise ValueError(
                "resource: expected a URI with a scheme, such as notes://today, "
                f"got {uri!r}"
            )
        self.template = UriTemplate(uri)
        super().__init__(function, "resource", uri, strings=True)
        self._check_variables()
        self._contents_meta = contents_meta
        self.scopes = as_scopes(scopes, "server.resource(scopes)")
        name = listed_name("resource", name, function)
        description = listed_description(description, function)
        if self.template.names:
            self.listed = model.ResourceTemplate(
                uri,
                name,
                title=title,
                description=description,
                mime_type=mime_type,
                icons=icons,
                annotations=annotations,
                meta=meta,
            )
        else:
            self.listed = model.Resource(
                uri,
                name,
                title=title,
                description=description,
                mime_type=mime_type,
                size=size,
                icons=icons,
                annotations=annotations,
                meta=meta,
            )

    def _check_variables(self) -> None:
        """Check that the variables in the URI are the parameters of the function."""
        variables = self.template.names
        if sorted(variables) != sorted(self.properties):
            parameters = list(self.properties)
            raise TypeError(
                f"{self.label}: expected the same names for the URI's variables and "
                f"the function's parameters, got {variables or 'none'} in the URI and "
                f"{parameters or 'none'} in the function"
            )

    async def read(self, request: Request, uri: str) -> list[Contents]:
        """Return the contents of the resource with this URI."""
        variables = encode(self.template.match(uri))
        value = await self.call(request, self.parameters.decode(variables))
        most = request.environment.limits.max_result
        if isinstance(value, bytes | bytearray | memoryview) and len(value) > most:
            raise too_large(f"resource {uri}", len(value), most)
        return self.as_contents(uri, value)

    def as_contents(self, uri: str, value: Any) -> list[Contents]:
        """Convert the function's return value to contents."""
        items = [value]
        # Any other list is a single value, which is encoded as JSON.
        if isinstance(value, list) and value:
            is_contents = all(isinstance(item, _CONTENTS) for item in value)
            items = value if is_contents else items
        return [self._contents(uri, item) for item in items]

    def _contents(self, uri: str, value: Any) -> Contents:
        if isinstance(value, _CONTENTS):
            return value
        mime_type = self.listed.mime_type
        meta = self._contents_meta
        if isinstance(value, str):
            mime_type = mime_type or "text/plain"
            return TextContents(uri, value, mime_type=mime_type, meta=meta)
        if isinstance(value, bytes | bytearray | memoryview):
            mime_type = mime_type or "application/octet-stream"
            return model.BlobContents(uri, bytes(value), mime_type=mime_type, meta=meta)
        text = encode_value(value).decode()
        mime_type = mime_type or "application/json"
        return TextContents(uri, text, mime_type=mime_type, meta=meta)
