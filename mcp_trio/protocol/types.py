"""Features, content and results, independent of any protocol revision.

Each class has the fields of all revisions. A revision only writes the fields that it
defines: see `mcp_trio.protocol.revisions`. On the wire, field names are in camelCase,
and `meta` is `_meta`.
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
    """The base class. Checks that each field has its declared type.

    A field that is None is never written. Bytes are stored as base64.
    """

    def __post_init__(self) -> None:
        for name, plain, hint in _fields_of(type(self)):
            value = getattr(self, name)
            if type(value) not in plain:
                place = f"{type(self).__name__}({name})"
                setattr(self, name, _checked(place, value, hint))


@cache
def _fields_of(kind: type[Model]) -> list[tuple[str, set[Any], Any]]:
    """Return each field's name, the classes that need no check, and its type."""
    hints = get_type_hints(kind)
    fields = []
    for name in kind.__struct_fields__:
        hint = hints[name]
        options = get_args(hint) if get_origin(hint) in _UNIONS else [hint]
        fields.append((name, set(options) - {bytes}, hint))
    return fields


def _checked(place: str, value: Any, hint: Any) -> Any:
    """Return a value of the declared type. Raises TypeError.

    Bytes become base64, and instances of subclasses of str become plain strings.
    """
    if bytes in get_args(hint) and isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if not _fits(value, hint):
        raise TypeError(f"{place}: expected {_type_name(hint)}, got {value!r:.200}")
    return str.__str__(value) if isinstance(value, str) else value


def _type_name(hint: Any) -> str:
    """Return a type as it is written in code, without module names."""
    if isinstance(hint, type):
        return hint.__name__
    return re.sub(r"\b(\w+\.)+", "", str(hint))


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type. List items are checked too."""
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


# Annotations, icons and implementations


class Annotations(Model):
    """Hints to the client about content.

    Attributes:
        audience: Who the content is for: "user", "assistant" or both.
        priority: Its importance, from 0 to 1.
        last_modified: The time of its last change, in ISO 8601.
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
    """An icon for user interfaces.

    Attributes:
        src: An https: or data: URL.
        mime_type: Its MIME type, such as "image/png".
        sizes: Its sizes, such as "48x48", or "any".
        theme: The theme that it is made for: "light" or "dark".
    """

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
    """The base class of content and resources, with their common fields."""

    annotations: Annotations | None = None
    meta: Json | None = field(default=None, name="_meta")


# Content and resources


class Text(_WithAnnotations, tag_field="type", tag="text"):
    """Text content.

    Attributes:
        text: The text.
        annotations: Hints for the client, such as who the text is for.
        meta: The `_meta` of the content block.
    """

    text: str


class _Media(_WithAnnotations, tag_field="type"):
    """The base class of images and audio."""

    data: str | bytes
    mime_type: str


class Image(_Media, tag="image"):
    """An image.

    Attributes:
        data: The bytes of the image, or a base64 string.
        mime_type: Its MIME type, such as "image/png".
        annotations: Hints for the client, such as who the image is for.
        meta: The `_meta` of the content block.
    """


class Audio(_Media, tag="audio"):
    """A sound.

    Attributes:
        data: The bytes of the sound, or a base64 string.
        mime_type: Its MIME type, such as "audio/wav".
        annotations: Hints for the client, such as who the sound is for.
        meta: The `_meta` of the content block.
    """


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
    """A link to a resource that the client may read or subscribe to.

    Attributes:
        uri: The URI of the resource.
        name: Its name.
        title: Its name for people.
        description: What it contains.
        mime_type: Its MIME type.
        size: Its size in bytes.
        icons: Its icons.
        annotations: Hints for the client, such as who the resource is for.
        meta: The `_meta` of the content block.
    """


class ResourceTemplate(_WithAnnotations):
    """A resource template in a list."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None


class TextContents(_WithAnnotations):
    """The contents of a resource as text.

    Attributes:
        uri: The URI of the resource.
        text: The text.
        mime_type: Its MIME type, such as "text/markdown".
        title: Its title for people.
        annotations: Hints for the client, such as who the text is for.
        meta: The `_meta` of the contents.
    """

    uri: str
    text: str
    mime_type: str | None = None
    title: str | None = None


class BlobContents(_WithAnnotations):
    """The contents of a resource as bytes.

    Attributes:
        uri: The URI of the resource.
        blob: The bytes, or a base64 string.
        mime_type: Its MIME type, such as "application/pdf".
        annotations: Hints for the client, such as who the contents are for.
        meta: The `_meta` of the contents.
    """

    uri: str
    blob: str | bytes
    mime_type: str | None = None


class EmbeddedResource(_WithAnnotations, tag_field="type", tag="resource"):
    """The contents of a resource, embedded in a result.

    Attributes:
        resource: The contents.
        annotations: Hints for the client, such as who the contents are for.
        meta: The `_meta` of the content block.
    """

    resource: TextContents | BlobContents


Content = Text | Image | Audio | ResourceLink | EmbeddedResource
CONTENT_TYPES = (Text, Image, Audio, ResourceLink, EmbeddedResource)


# Tools and prompts


class ToolAnnotations(Model):
    """Hints to the client about what a tool does. Clients need not believe them.

    Attributes:
        title: The tool's name for people.
        read_only_hint: The tool changes nothing.
        destructive_hint: The tool may delete or overwrite something.
        idempotent_hint: Calling the tool again with the same arguments changes nothing
            more.
        open_world_hint: The tool reaches systems outside of the server, such as the
            web.
    """

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
    """A tool as clients see it.

    Attributes:
        name: Its name.
        title: Its name for people.
        description: What it does, for the model.
        input_schema: The JSON Schema of its arguments.
        output_schema: The JSON Schema of its structured content, if it has any.
        annotations: Hints about what it does.
        icons: Its icons.
        meta: The `_meta` of the tool.
    """

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
    """A message of a prompt.

    Attributes:
        role: "user" or "assistant".
        content: One content block.
    """

    role: Role
    content: Content


# Sampling


class ToolUseResult(Model, tag_field="type", tag="tool_result"):
    """The result of a tool that the client's model used, in a message to the model.

    Attributes:
        tool_use_id: The id of the `ToolUse`.
        content: A string, a content block, or a list of these. Strings become `Text`.
        structured: Any JSON value, as structured content.
        is_error: Whether the tool failed.
        meta: The `_meta` of the content block.
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
    """A tool that the client's model wants to use.

    Attributes:
        id: The id of this use, which its result repeats.
        name: The name of the tool.
        input: The arguments, as the model wrote them. They are not validated.
        meta: The `_meta` of the content block.
    """

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
        """Return the tool's result for the model.

        Args:
            content: A string, a content block, or a list of these.
            structured: Any JSON value, as structured content.
            is_error: Whether the tool failed.
        """
        return ToolUseResult(self.id, content, structured, is_error)


SamplingContent = Text | Image | Audio | ToolUse | ToolUseResult
SAMPLING_TYPES = (Text, Image, Audio, ToolUse, ToolUseResult)


class SamplingMessage(Model):
    """A message in a conversation to sample from.

    Attributes:
        role: "user" or "assistant".
        content: A string, a content block, or a list of content blocks.
        meta: The `_meta` of the message.
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
        assert not isinstance(self.content, str)  # converted by __post_init__
        return self.content if isinstance(self.content, list) else [self.content]


# Results


class ToolResult(Model):
    """The complete result of a tool.

    Attributes:
        content: The content blocks, which the model reads.
        structured: The structured content, which may be any JSON value. None means
            null; by default, there is no structured content.
        is_error: Whether the tool failed.
        meta: The `_meta` of the result.
        wrapped: Whether the output schema describes something other than an object.
            Revisions that require an object then send `{"result": ...}`.
    """

    content: list[Content]
    structured: Any = UNSET
    is_error: bool = False
    meta: Json | None = None
    wrapped: bool = False


class StructuredContent(Struct, gc=False):
    """The result of a tool that returns structured content only, encoded.

    Most structured results are of this kind, and are sent without decoding them again.
    `wrapped` has the same meaning as in `ToolResult`.
    """

    encoded: bytes
    wrapped: bool

    def as_tool_result(self) -> ToolResult:
        """Return this result as a ToolResult."""
        text = Text(self.encoded.decode())
        return ToolResult([text], json.decode(self.encoded), wrapped=self.wrapped)


class PromptResult(Model):
    """The messages of a prompt.

    Attributes:
        messages: The messages.
        description: What the prompt does.
        meta: The `_meta` of the result.
    """

    messages: list[PromptMessage]
    description: str | None = None
    meta: Json | None = None


class Completion(Model):
    """Suggestions for an argument that a user types.

    Attributes:
        values: At most 100 suggestions.
        total: How many suggestions there are, including those that are not in `values`.
        has_more: Whether there are more than those in `values`.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None
