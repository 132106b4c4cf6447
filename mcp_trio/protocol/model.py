"""What a server offers and answers, neutral to any revision.

These hold the union of what the revisions know. What of it goes out in a revision, and how, its file in
`revisions/` says; field names on the wire are these in camelCase, `meta` being `_meta`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, field

Role = Literal["user", "assistant"]
Json = dict[str, Any]


class Model(Struct, omit_defaults=True, rename="camel"):
    """What all of these share: absent means None, and None is never written."""


class Annotations(Model):
    """Hints to the client: for whom content is, how much it matters (0 to 1), when it last changed (ISO 8601)."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


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

    strings: ClassVar[tuple[str, ...]] = ()
    """The attributes that have to be strings: the type alone does not make sure of it."""

    binary: ClassVar[str] = ""
    """The one of them that may be given as bytes, and becomes base64."""

    def __post_init__(self) -> None:
        for name in self.strings:
            value = getattr(self, name)
            if name == self.binary and isinstance(value, bytes | bytearray | memoryview):
                setattr(self, name, b64encode(value).decode())
            elif not isinstance(value, str):
                raise TypeError(f"{type(self).__name__}({name}) wants a string, not {value!r}")


class Text(_Piece, tag_field="type", tag="text"):
    """Text content."""

    text: str
    strings = ("text",)


class _Media(_Piece, tag_field="type"):
    data: str | bytes
    mime_type: str
    strings = ("data", "mime_type")
    binary = "data"


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
    strings = ("uri", "name")


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
    strings = ("uri", "text")


class BlobContents(_Piece):
    """A resource's contents, as bytes (or a string that is base64 already)."""

    uri: str
    blob: str | bytes
    mime_type: str | None = None
    strings = ("uri", "blob")
    binary = "blob"


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


class Tool(_Named):
    """A tool, as it is listed."""

    input_schema: Json = field(default_factory=dict)
    output_schema: Json | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    meta: Json | None = field(default=None, name="_meta")


class PromptArgument(_Named):
    """One argument of a prompt."""

    required: bool | None = None


class Prompt(_Named):
    """A prompt, as it is listed."""

    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: Json | None = field(default=None, name="_meta")


class PromptMessage(Model):
    """One message of a prompt, or of a conversation to sample from."""

    role: Role
    content: Content


class ToolResult(Struct):
    """What a tool answers, with full control: content, structured content, whether it failed.

    `structured` is any JSON, UNSET where the tool has none (None is JSON's null, which is a value). `wrapped` says
    that its schema is not an object's: the revisions that know objects alone then carry it as `{"result": …}`.
    """

    content: list[Content]
    structured: Any = UNSET
    is_error: bool = False
    meta: Json | None = None
    wrapped: bool = False


class PromptResult(Struct):
    """A prompt, filled in."""

    messages: list[PromptMessage]
    description: str | None = None
    meta: Json | None = None


class Completion(Model):
    """What a half-typed argument may become: at most 100 values, how many there are, whether there are more."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None
