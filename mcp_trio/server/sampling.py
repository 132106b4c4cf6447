"""Sampling: the messages that users may pass, and the model's answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..protocol import types
from ..protocol.types import (
    SAMPLING_TYPES,
    Annotations,
    BlobContents,
    EmbeddedResource,
    Json,
    PromptMessage,
    ResourceLink,
    SamplingContent,
    SamplingMessage,
    Text,
    TextContents,
    Tool,
    ToolUse,
    ToolUseResult,
)

# The classes of content blocks, by the `type` that they have in JSON.
_BLOCKS: dict[str, type[Any]] = {
    str(cls.__struct_config__.tag): cls
    for cls in (*SAMPLING_TYPES, ResourceLink, EmbeddedResource)
}


class Sampled(Struct, rename="camel"):
    """A message from the client's model.

    Attributes:
        role: "assistant".
        content: One content block, or a list of them, as the client sent it.
        model: The name of the model.
        stop_reason: Why the model stopped, such as "endTurn".
    """

    role: str
    content: Json | list[Json]
    model: str
    stop_reason: str | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in self._texts()):
            raise ValueError("$.content: the text of a text is no string")
        try:
            _ = self.tool_uses
        except TypeError as error:
            raise ValueError(f"$.content: {error}") from None

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        return "".join(self._texts())

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tools that the model wants to use. Answer each with `ToolUse.result`."""
        return [
            _known_block(block, ToolUse)
            for block in self._blocks()
            if block.get("type") == "tool_use"
        ]

    @property
    def message(self) -> SamplingMessage:
        """This message, to append to the conversation."""
        blocks = []
        for block in self._blocks():
            cls = _BLOCKS.get(block.get("type", ""))
            if cls not in SAMPLING_TYPES:
                known = ", ".join(
                    tag for tag, cls in _BLOCKS.items() if cls in SAMPLING_TYPES
                )
                raise TypeError(
                    f"the model's message: expected content of the types {known}, got "
                    f"{block.get('type')!r}"
                )
            blocks.append(_known_block(block, cls))
        role: Any = self.role
        if isinstance(self.content, list):
            return SamplingMessage(role, blocks)
        return SamplingMessage(role, blocks[0])

    def _blocks(self) -> list[Json]:
        return self.content if isinstance(self.content, list) else [self.content]

    def _texts(self) -> list[Any]:
        blocks = self._blocks()
        return [block.get("text") for block in blocks if block.get("type") == "text"]


# A message of a conversation, as users may pass it. Strings, content blocks and lists
# of content blocks become messages with the role "user". A `Sampled` becomes a message
# of the model.
Message = (
    str
    | Mapping[str, Any]
    | PromptMessage
    | SamplingMessage
    | Sampled
    | SamplingContent
    | Sequence[SamplingContent]
)


# Converting what users pass


def read_messages(given: str | Sequence[Message]) -> list[SamplingMessage]:
    """Convert messages. Raises TypeError or ValueError."""
    if isinstance(given, str):
        return [SamplingMessage("user", given)]
    messages = [
        _read_message(message, f"messages[{index}]")
        for index, message in enumerate(given)
    ]
    _check_tool_results(messages)
    return messages


def read_tools(given: Sequence[Tool | Mapping[str, Any]] | None) -> list[Tool] | None:
    """Convert tools, which may be dicts with the protocol's keys. Raises TypeError."""
    if given is None:
        return None
    tools = []
    for index, tool in enumerate(given):
        if isinstance(tool, Mapping):
            tool = _build(Tool, tool, f"tools[{index}]")
        if not isinstance(tool, Tool):
            raise TypeError(
                f"tools[{index}]: expected a Tool or a dict, got {tool!r:.100}"
            )
        tools.append(tool)
    return tools


def read_tool_choice(given: str | Mapping[str, Any] | None) -> Json | None:
    """Convert a tool choice, which may be only its mode. Raises ValueError."""
    if given is None:
        return None
    choice = {"mode": given} if isinstance(given, str) else dict(given)
    mode = choice.get("mode")
    if mode not in ("auto", "required", "none"):
        raise ValueError(f"tool_choice: expected auto, required or none, got {mode!r}")
    return choice


def _read_message(given: object, place: str) -> SamplingMessage:
    if isinstance(given, SamplingMessage):
        return given
    if isinstance(given, Sampled):
        return given.message
    if isinstance(given, PromptMessage):
        return SamplingMessage(given.role, _read_content(given.content, place))
    if isinstance(given, Mapping) and "role" in given:
        fields = dict(given)
        fields["content"] = _read_content(given.get("content"), f"{place}.content")
        message: SamplingMessage = _build(SamplingMessage, fields, place)
        return message
    if isinstance(given, Mapping) and "type" not in given:
        raise TypeError(f"{place}: expected the keys role and content, got {[*given]}")
    return SamplingMessage("user", _read_content(given, place))


def _read_content(given: object, place: str) -> SamplingContent | list[SamplingContent]:
    """Convert content to a block or a list of blocks."""
    if isinstance(given, list | tuple):
        return [
            _read_block(item, f"{place}[{index}]") for index, item in enumerate(given)
        ]
    return _read_block(given, place)


def _read_block(given: object, place: str) -> SamplingContent:
    block = _read_any_block(given, place)
    if isinstance(block, SAMPLING_TYPES):
        return block
    raise TypeError(
        f"{place}: expected text, an image, audio, a ToolUse or a ToolUseResult, "
        f"got {type(given).__name__}"
    )


def _read_any_block(given: object, place: str) -> Any:
    """Convert a string or a dict to a content block of any type."""
    if isinstance(given, str):
        return Text(given)
    if not isinstance(given, Mapping):
        return given
    kind = given.get("type")
    if kind not in _BLOCKS:
        expected = ", ".join(_BLOCKS)
        raise TypeError(f"{place}.type: expected one of {expected}, got {kind!r}")
    fields = {key: value for key, value in given.items() if key != "type"}
    if kind == "tool_result" and isinstance(fields.get("content"), list):
        fields["content"] = [
            _read_any_block(item, f"{place}.content") for item in fields["content"]
        ]
    if kind == "resource" and isinstance(fields.get("resource"), Mapping):
        contents = fields["resource"]
        cls = TextContents if "text" in contents else BlobContents
        fields["resource"] = _build(cls, contents, f"{place}.resource")
    return _build(_BLOCKS[kind], fields, place)


def _build(cls: type[Any], fields: Mapping[str, Any], place: str) -> Any:
    """Return an instance of a class of the protocol, given its fields as in JSON."""
    names = _names(cls)
    values = {}
    for key, value in fields.items():
        if key not in names:
            known = ", ".join(names)
            raise TypeError(f"{place}: unknown key {key!r}; known keys: {known}")
        values[names[key]] = value
    annotations = values.get("annotations")
    if isinstance(annotations, Mapping):
        kind = types.ToolAnnotations if cls is Tool else Annotations
        values["annotations"] = _build(kind, annotations, f"{place}.annotations")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{place}: {error}") from None


def _names(cls: type[Any]) -> dict[str, str]:
    """Return the attribute of each key in JSON."""
    return dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))


def _known_block(block: Json, cls: type[Any]) -> Any:
    """Convert a block that the client sent. Unknown keys are ignored."""
    names = _names(cls)
    known = {key: value for key, value in block.items() if key in {*names, "type"}}
    return _read_any_block(known, "the model's message")


# The rules of the protocol


def _check_tool_results(messages: list[SamplingMessage]) -> None:
    """Raise ValueError unless the next message has the result of each tool use."""
    open_ids: set[str] = set()
    for index, message in enumerate(messages):
        blocks = message.blocks
        results = [one for one in blocks if isinstance(one, ToolUseResult)]
        if results and len(results) < len(blocks):
            raise ValueError(
                f"messages[{index}]: expected tool results only, got other content "
                "too; put that into a separate message"
            )
        given_ids = {one.tool_use_id for one in results}
        if given_ids != open_ids:
            expected = ", ".join(sorted(open_ids)) or "none"
            given = ", ".join(sorted(given_ids)) or "none"
            raise ValueError(
                f"messages[{index}]: expected the results of the tool uses in the "
                f"message before, {expected}; got {given}"
            )
        open_ids = {one.id for one in blocks if isinstance(one, ToolUse)}
    if open_ids:
        expected = ", ".join(sorted(open_ids))
        raise ValueError(
            f"messages: expected the results of the tool uses {expected} at the end"
        )
