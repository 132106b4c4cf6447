"""What a server offers and answers, neutral to any revision.

These hold the union of what the revisions know. What of it goes out in a revision, and how, its file in
`revisions/` says; field names on the wire are these in camelCase, `meta` being `_meta`.
"""

import re
from base64 import b64encode
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Struct, field

Role = Literal["user", "assistant"]
Json = dict[str, Any]
_UNIONS = (Union, UnionType)


class Model(Struct, omit_defaults=True, rename="camel"):
    """What all of these share: absent means None, None is never written, and each field has the type that it says.

    Bytes, where they may be given, become base64.
    """

    def __post_init__(self) -> None:
        for name, plain, hint in _fields_of(type(self)):
            value = getattr(self, name)
            if type(value) not in plain:
                setattr(
                    self, name, _checked(f"{type(self).__name__}({name})", value, hint)
                )


@cache
def _fields_of(kind: type[Model]) -> list[tuple[str, set[Any], Any]]:
    """Each field: its name, the classes whose values need no look at them, and its type."""
    hints = get_type_hints(kind)
    options = {
        name: get_args(hint) if get_origin(hint) in _UNIONS else [hint]
        for name, hint in hints.items()
    }
    return [
        (name, set(options[name]) - {bytes}, hints[name])
        for name in kind.__struct_fields__
    ]


def _checked(what: str, value: Any, hint: Any) -> Any:
    """The value, with nothing but str itself and base64 for strings and bytes; TypeError where it does not fit."""
    if bytes in get_args(hint) and isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if not _fits(value, hint):
        wanted = (
            hint.__name__
            if isinstance(hint, type)
            else re.sub(r"\b(\w+\.)+", "", str(hint))
        )
        raise TypeError(f"{what} wants {wanted}, not {value!r:.200}")
    return str.__str__(value) if isinstance(value, str) else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, to the items of a list."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return any(_fits(value, option) for option in inner)
    if hint is Any or origin is Literal:
        return hint is Any or value in inner
    if origin is list:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    wanted = (int, float) if hint is float else origin or hint
    return isinstance(value, wanted) and (hint is bool or type(value) is not bool)


class Annotations(Model):
    """Hints to the client: for whom content is, how much it matters (0 to 1), when it last changed (ISO 8601)."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(
                f"Annotations(priority) wants a number from 0 to 1, not {self.priority!r}"
            )


class Icon(Model):
    """A picture for user interfaces: an https: or data: address."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Model):
    """Who a server or a client says it is."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    website_url: str | None = None


class _Piece(Model, kw_only=True):
    """What all content and all resources may have besides."""

    annotations: Annotations | None = None
    meta: Json | None = field(default=None, name="_meta")


class Text(_Piece, tag_field="type", tag="text"):
    """Text content."""

    text: str


class _Media(_Piece, tag_field="type"):
    data: str | bytes
    mime_type: str


class Image(_Media, tag="image"):
    """A picture, given as bytes, or as a string that is base64 already."""


class Audio(_Media, tag="audio"):
    """Sound, given as bytes, or as a string that is base64 already."""


class Resource(_Piece):
    """A resource, as it is listed."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None


class ResourceLink(Resource, tag_field="type", tag="resource_link"):
    """A resource that the client may read or subscribe to."""


class ResourceTemplate(_Piece):
    """A family of resources, as it is listed."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None


class TextContents(_Piece):
    """A resource's contents, as text."""

    uri: str
    text: str
    mime_type: str | None = None
    title: str | None = None


class BlobContents(_Piece):
    """A resource's contents, as bytes (or a string that is base64 already)."""

    uri: str
    blob: str | bytes
    mime_type: str | None = None


class EmbeddedResource(_Piece, tag_field="type", tag="resource"):
    """A resource's contents, put into the result itself."""

    resource: TextContents | BlobContents


Content = Text | Image | Audio | ResourceLink | EmbeddedResource
CONTENT_TYPES = (Text, Image, Audio, ResourceLink, EmbeddedResource)


class ToolAnnotations(Model):
    """Hints on what a tool does, for the client to show."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class _Named(Model):
    name: str
    title: str | None = None
    description: str | None = None


class _Listed(_Named, kw_only=True):
    icons: list[Icon] | None = None
    meta: Json | None = field(default=None, name="_meta")


class Tool(_Listed):
    """A tool, as it is listed."""

    input_schema: Json = field(default_factory=dict)
    output_schema: Json | None = None
    annotations: ToolAnnotations | None = None


class PromptArgument(_Named):
    """One argument of a prompt."""

    required: bool | None = None


class Prompt(_Listed):
    """A prompt, as it is listed."""

    arguments: list[PromptArgument] | None = None


class PromptMessage(Model):
    """One message of a prompt, or of a conversation to sample from."""

    role: Role
    content: Content


class ToolResult(Model):
    """What a tool answers, with full control: content, structured content, whether it failed.

    `structured` is any JSON, UNSET where the tool has none (None is JSON's null, which is a value). `wrapped` says
    that its schema is not an object's: the revisions that know objects alone then carry it as `{"result": …}`.
    """

    content: list[Content]
    structured: Any = UNSET
    is_error: bool = False
    meta: Json | None = None
    wrapped: bool = False


class PromptResult(Model):
    """A prompt, filled in."""

    messages: list[PromptMessage]
    description: str | None = None
    meta: Json | None = None


class Completion(Model):
    """What a half-typed argument may become: at most 100 values, how many there are, whether there are more."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None
