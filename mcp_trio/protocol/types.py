"""What a server offers and answers, independent of any protocol revision.

Each class has the fields of all revisions together. A revision writes the fields that
it knows: see `mcp_trio.protocol.revisions`. On the wire, the names of the fields are in
camelCase, and `meta` is `_meta`.
"""

import re
from base64 import b64encode
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Struct, field, json

Role = Literal["user", "assistant"]
Json = dict[str, Any]
_UNIONS = (Union, UnionType)


# The base class, and the check of its fields


class Model(Struct, omit_defaults=True, rename="camel"):
    """The base class: each field has the type that it is declared with.

    A field that is None is absent, and is never written. Where a field may be given as
    bytes, it is stored as base64.
    """

    def __post_init__(self) -> None:
        for name, plain, hint in _fields_of(type(self)):
            value = getattr(self, name)
            if type(value) not in plain:
                place = f"{type(self).__name__}({name})"
                setattr(self, name, _checked(place, value, hint))


@cache
def _fields_of(kind: type[Model]) -> list[tuple[str, set[Any], Any]]:
    """Return the name of each field, the classes that need no check, and its type."""
    hints = get_type_hints(kind)
    fields = []
    for name in kind.__struct_fields__:
        hint = hints[name]
        options = get_args(hint) if get_origin(hint) in _UNIONS else [hint]
        fields.append((name, set(options) - {bytes}, hint))
    return fields


def _checked(place: str, value: Any, hint: Any) -> Any:
    """Return a value that fits its type. Raises TypeError.

    Bytes become base64, and an instance of a subclass of str becomes a plain str.
    """
    if bytes in get_args(hint) and isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if not _fits(value, hint):
        raise TypeError(f"{place}: expected {_type_name(hint)}, got {value!r:.200}")
    return str.__str__(value) if isinstance(value, str) else value


def _type_name(hint: Any) -> str:
    """Return a type as it is written in code, without the names of modules."""
    if isinstance(hint, type):
        return hint.__name__
    return re.sub(r"\b(\w+\.)+", "", str(hint))


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type. The items of lists are checked too."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if hint is Any:
        return True
    if origin in _UNIONS:
        return any(_fits(value, option) for option in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        if not isinstance(value, list):
            return False
        return all(_fits(item, arguments[0]) for item in value)
    if type(value) is bool:  # which is a subclass of int
        return hint is bool
    if hint is float:
        return isinstance(value, (int, float))
    return isinstance(value, origin or hint)


# Values that are parts of others


class Annotations(Model):
    """Hints to the client about content.

    `audience` names the readers of the content, `priority` is its importance from 0 to
    1, and `last_modified` is the time of its last change in ISO 8601.
    """

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(
                "Annotations(priority): expected a number from 0 to 1, "
                f"got {self.priority!r}"
            )


class Icon(Model):
    """An icon for user interfaces; `src` is an https: or data: URL."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Model):
    """The name, version and description of a server or a client."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    website_url: str | None = None


class _WithAnnotations(Model, kw_only=True):
    """The base class of content and resources, with the fields that all may have."""

    annotations: Annotations | None = None
    meta: Json | None = field(default=None, name="_meta")


# Content and resources


class Text(_WithAnnotations, tag_field="type", tag="text"):
    """Text content."""

    text: str


class _Media(_WithAnnotations, tag_field="type"):
    """The base class of images and audio."""

    data: str | bytes
    mime_type: str


class Image(_Media, tag="image"):
    """An image, as bytes or as a string that is already base64."""


class Audio(_Media, tag="audio"):
    """Audio, as bytes or as a string that is already base64."""


class Resource(_WithAnnotations):
    """A resource in a list."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None


class ResourceLink(Resource, tag_field="type", tag="resource_link"):
    """A link to a resource that the client may read or subscribe to."""


class ResourceTemplate(_WithAnnotations):
    """A resource template in a list."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None


class TextContents(_WithAnnotations):
    """The contents of a resource as text."""

    uri: str
    text: str
    mime_type: str | None = None
    title: str | None = None


class BlobContents(_WithAnnotations):
    """The contents of a resource as bytes, or as a string that is already base64."""

    uri: str
    blob: str | bytes
    mime_type: str | None = None


class EmbeddedResource(_WithAnnotations, tag_field="type", tag="resource"):
    """The contents of a resource as a part of a result."""

    resource: TextContents | BlobContents


Content = Text | Image | Audio | ResourceLink | EmbeddedResource
CONTENT_TYPES = (Text, Image, Audio, ResourceLink, EmbeddedResource)


# Tools and prompts


class ToolAnnotations(Model):
    """Hints to the client about what a tool does."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class _Named(Model):
    """The base class of classes with a name, a title and a description."""

    name: str
    title: str | None = None
    description: str | None = None


class _Listed(_Named, kw_only=True):
    """The base class of tools and prompts."""

    icons: list[Icon] | None = None
    meta: Json | None = field(default=None, name="_meta")


class Tool(_Listed):
    """A tool in a list."""

    input_schema: Json = field(default_factory=dict)
    output_schema: Json | None = None
    annotations: ToolAnnotations | None = None


class PromptArgument(_Named):
    """An argument of a prompt."""

    required: bool | None = None


class Prompt(_Listed):
    """A prompt in a list."""

    arguments: list[PromptArgument] | None = None


class PromptMessage(Model):
    """A message of a prompt."""

    role: Role
    content: Content


# Sampling


class ToolUseResult(Model, tag_field="type", tag="tool_result"):
    """The result of a tool that the client's model used, in a message to it.

    `tool_use_id` is the id of the `ToolUse`. Strings in the content become text.
    """

    tool_use_id: str
    content: str | Content | list[Content]
    structured: Any = field(default=None, name="structuredContent")
    is_error: bool = False
    meta: Json | None = field(default=None, name="_meta")

    def __post_init__(self) -> None:
        items = self.content if isinstance(self.content, list) else [self.content]
        self.content = [Text(item) if isinstance(item, str) else item for item in items]
        super().__post_init__()


class ToolUse(Model, tag_field="type", tag="tool_use"):
    """A tool that the client's model wants to use. `input` holds the arguments."""

    id: str
    name: str
    input: Json
    meta: Json | None = field(default=None, name="_meta")

    def result(
        self,
        content: str | Content | list[Content],
        *,
        structured: Any = None,
        is_error: bool = False,
    ) -> ToolUseResult:
        """Return the tool's result for the model."""
        return ToolUseResult(self.id, content, structured, is_error)


SamplingContent = Text | Image | Audio | ToolUse | ToolUseResult
SAMPLING_TYPES = (Text, Image, Audio, ToolUse, ToolUseResult)


class SamplingMessage(Model):
    """A message of a conversation to sample from: one block of content, or several.

    A string as the content becomes text.
    """

    role: Role
    content: str | SamplingContent | list[SamplingContent]
    meta: Json | None = field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if isinstance(self.content, str):
            self.content = Text(self.content)
        super().__post_init__()

    @property
    def blocks(self) -> list[SamplingContent]:
        """The content as a list."""
        assert not isinstance(self.content, str)  # it became text
        return self.content if isinstance(self.content, list) else [self.content]


# Results


class ToolResult(Model):
    """The result of a tool: its content, structured content, and whether it failed.

    `structured` is any JSON value. None is a value, null; UNSET means that structured
    content is absent. `wrapped` says that the output schema is not the schema of an
    object. Revisions in which structured content is always an object then write
    `{"result": ...}`.
    """

    content: list[Content]
    structured: Any = UNSET
    is_error: bool = False
    meta: Json | None = None
    wrapped: bool = False


class StructuredContent(Struct, gc=False):
    """The encoded result of a tool that has only structured content.

    Most structured results are, and need not be decoded to be written. `wrapped` is
    that of `ToolResult`.
    """

    encoded: bytes
    wrapped: bool

    def as_tool_result(self) -> ToolResult:
        """Return the same result in its general form."""
        text = Text(self.encoded.decode())
        return ToolResult([text], json.decode(self.encoded), wrapped=self.wrapped)


class PromptResult(Model):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    description: str | None = None
    meta: Json | None = None


class Completion(Model):
    """Completions of an argument: at most 100 values.

    `total` says how many there are, and `has_more` whether there are more than given.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None
