"""Resources: what a URI, or a URI of some form, reads as."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from ..protocol.errors import ResourceNotFound
from ..protocol.jsonrpc import encode
from ..protocol.model import (
    Annotations,
    BlobContents,
    Icon,
    Json,
    Resource,
    ResourceTemplate,
    TextContents,
)
from .context import Context
from .docstrings import parse
from .functions import Function, as_arguments, name_of, only_strings
from .schema import Parameters

if TYPE_CHECKING:
    from .dispatch import Request

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


class ServerResource:
    """A resource, or a family of them, that can be listed and read."""

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: list[Icon] | None = None,
        annotations: Annotations | None = None,
        meta: Json | None = None,
    ) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
            raise ValueError(f"resource {uri!r}: a URI starts with a scheme, such as notes://")
        self.template = UriTemplate(uri)
        self._label = f"resource {uri}"
        parameters = Parameters(function, injected=Context)
        _check_names(self._label, self.template.names, list(parameters.schema.get("properties", {})))
        only_strings(parameters, self._label)
        self._function = Function(function, parameters)
        self._mime_type = mime_type
        common = {
            "name": name or name_of(function),
            "title": title,
            "description": description if description is not None else parse(function.__doc__).summary or None,
            "mime_type": mime_type,
            "icons": icons,
            "annotations": annotations,
            "meta": meta,
        }
        self.listed: Resource | ResourceTemplate
        if self.template.names:
            self.listed = ResourceTemplate(uri_template=uri, **common)  # type: ignore[arg-type]
        else:
            self.listed = Resource(uri=uri, size=size, **common)  # type: ignore[arg-type]

    async def read(self, request: Request, uri: str) -> list[TextContents | BlobContents]:
        """What the URI reads as."""
        values = self.template.match(uri)
        if values is None:
            raise ResourceNotFound(uri)
        arguments = as_arguments(self._function.parameters, msgspec.json.encode(values), self._label)
        value = await self._function.call(request, arguments)
        items = value if isinstance(value, list) and _are_contents(value) else [value]
        return [self._contents(uri, item) for item in items]

    def _contents(self, uri: str, value: Any) -> TextContents | BlobContents:
        if isinstance(value, TextContents | BlobContents):
            return value
        if isinstance(value, str):
            return TextContents(uri, value, mime_type=self._mime_type or "text/plain")
        if isinstance(value, bytes | bytearray | memoryview):
            return BlobContents(uri, bytes(value), mime_type=self._mime_type or "application/octet-stream")
        text = encode(value).decode()
        return TextContents(uri, text, mime_type=self._mime_type or "application/json")


def _are_contents(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, TextContents | BlobContents) for item in items)


def _check_names(label: str, variables: list[str], parameters: list[str]) -> None:
    if sorted(variables) != sorted(parameters):
        raise TypeError(
            f"{label}: the URI's variables and the function's parameters must have the same names; "
            f"the URI has {variables or 'none'}, the function {parameters or 'none'}"
        )
