"""What a tool may return, and how each revision sends it."""

import json
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from mcp_trio import (
    Annotations,
    Audio,
    BlobContents,
    Completion,
    EmbeddedResource,
    Icon,
    Image,
    InvalidParams,
    PromptMessage,
    PromptResult,
    ResourceLink,
    Server,
    Text,
    TextContents,
    ToolAnnotations,
    ToolResult,
)
from mcp_trio.client.client import Client, Result
from tests.support.checked import ALL, connect

STRUCTURED = [revision for revision in ALL if revision >= "2025-06-18"]
WRAPPING = ["2025-06-18", "2025-11-25"]
NEWEST = ALL[-1]


@dataclass
class Point:
    x: int
    y: int = 0


class Size(TypedDict):
    width: float


PICTURE = Image(
    b"123", "image/png", annotations=Annotations(audience=["user"], priority=0.5)
)
SOUND = Audio(b"12345", "audio/wav")
LINK = ResourceLink(
    "a://b", "b", title="The B", icons=[Icon("https://example.com/i.png")], size=3
)
NOTE = EmbeddedResource(TextContents("a://note", "hello", mime_type="text/plain"))
BLOB = EmbeddedResource(BlobContents("a://blob", b"1234", mime_type="image/png"))
EVERYTHING = [Text("words"), PICTURE, SOUND, LINK, NOTE, BLOB]
SOUND_NOTE = "[audio/wav, 5 bytes: this protocol revision cannot carry it]"


def returning(value: Any, annotation: Any = msgspec.UNSET, **options: Any) -> Server:
    """Return a server whose only tool `get` returns a value."""
    server = Server("x")

    async def get():  # type: ignore[no-untyped-def]
        return value

    if annotation is not msgspec.UNSET:
        get.__annotations__["return"] = annotation
    server.add_tool(get, **options)
    return server


async def got(server: Server, revision: str = NEWEST) -> Result:
    async with connect(server, revision) as client:
        return await client.call_tool("get")


def value_of(result: Result) -> Any:
    """Return the content without the additions of a revision."""
    return result["toolResult"] if "toolResult" in result else result["content"]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("value", "content", "first"),
    [
        ("hello", [{"type": "text", "text": "hello"}], "hello"),
        ("", [{"type": "text", "text": ""}], ""),
        (None, [], None),
        (Text("a"), [{"type": "text", "text": "a"}], "a"),
        (
            ["a", Text("b")],
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            None,
        ),
        (("a",), [{"type": "text", "text": "a"}], "a"),
        ('{"a": 1}', [{"type": "text", "text": '{"a": 1}'}], '{"a": 1}'),
        (ToolResult([Text("a")]), [{"type": "text", "text": "a"}], "a"),
    ],
    ids=repr,
)
async def test_text_becomes_text_content(
    revision: str, value: Any, content: Any, first: Any
) -> None:
    result = await got(returning(value), revision)
    if revision == "2024-10-07":
        assert value_of(result) == (content if len(content) > 1 else first)
    else:
        assert value_of(result) == content
        assert "structuredContent" not in result
        assert result["isError"] is False


@pytest.mark.parametrize("revision", ALL)
async def test_every_kind_of_content_goes_as_far_as_the_revision_carries_it(
    revision: str,
) -> None:
    result = await got(returning(EVERYTHING), revision)
    words, picture, sound, link, note, blob = value_of(result)
    assert words == {"type": "text", "text": "words"}
    assert picture["data"] == "MTIz"
    assert ("annotations" in picture) == (revision >= "2024-11-05")
    assert sound == (
        {"type": "audio", "data": "MTIzNDU=", "mimeType": "audio/wav"}
        if revision >= "2025-03-26"
        else {"type": "text", "text": SOUND_NOTE}
    )
    assert link["type"] == ("resource_link" if revision >= "2025-06-18" else "text")
    assert "a://b" in json.dumps(link)
    assert ("icons" in link) == (revision >= "2025-11-25")
    assert (
        note["type"]
        == blob["type"]
        == ("resource" if revision >= "2024-11-05" else "text")
    )
    assert "hello" in json.dumps(note)
    assert "image/png" in json.dumps(blob)


VALUES: list[tuple[Any, Any, Any]] = [  # value, annotation, JSON
    (Point(1, 2), Point, {"x": 1, "y": 2}),
    (Size(width=1.5), Size, {"width": 1.5}),
    ({"a": None}, dict[str, None], {"a": None}),
    ({"a": 1}, msgspec.UNSET, {"a": 1}),
    (5, int, 5),
    (5, msgspec.UNSET, 5),
    (True, bool, True),
    (0.5, float, 0.5),
    ([1, 2], list[int], [1, 2]),
    ([], msgspec.UNSET, []),
    ([Point(1)], list[Point], [{"x": 1, "y": 0}]),
    (None, Point | None, None),
    (Point(1), Point | None, {"x": 1, "y": 0}),
    (b"abc", bytes, "YWJj"),
    (msgspec.json.decode(b'{"deep":[{"a":[]}]}'), msgspec.UNSET, {"deep": [{"a": []}]}),
]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("value", "annotation", "wanted"), VALUES, ids=lambda value: repr(value)[:40]
)
async def test_structured_values(
    revision: str, value: Any, annotation: Any, wanted: Any
) -> None:
    server = returning(value, annotation)
    async with connect(server, revision) as client:
        result = await client.call_tool("get")
        schema = (await client.list_tools())[0].get("outputSchema")
    if revision == "2024-10-07":
        assert result == {"toolResult": wanted}
        return
    (text,) = result["content"]
    assert json.loads(text["text"]) == wanted
    if revision not in STRUCTURED:
        assert "structuredContent" not in result
        assert schema is None
        return
    assert (schema is None) == (annotation is msgspec.UNSET)
    check_structured(result, revision, schema, wanted)


def check_structured(result: Result, revision: str, schema: Any, wanted: Any) -> None:
    import jsonschema

    if revision in WRAPPING:
        assert isinstance(result.structured, dict)
        assert result.structured in (wanted, {"result": wanted})
        assert schema is None or schema["type"] == "object"
    else:
        assert result.structured == wanted
    if schema is not None:
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(result.structured, schema)


@pytest.mark.parametrize("revision", WRAPPING)
async def test_an_object_under_a_schema_that_is_not_an_objects_is_wrapped_too(
    revision: str,
) -> None:
    assert (await got(returning(Point(1), Point | None), revision)).structured == {
        "result": {"x": 1, "y": 0}
    }


@pytest.mark.parametrize("revision", STRUCTURED)
@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
async def test_a_wrapped_schema_keeps_what_its_references_lead_to(
    revision: str, keyword: str
) -> None:
    import jsonschema

    dialect = "http://json-schema.org/draft-07/schema#"
    city = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    schema = {
        "$schema": dialect,
        "type": "array",
        "items": {"$ref": f"#/{keyword}/City"},
        keyword: {"City": city},
    }
    async with connect(
        returning([{"name": "Rome"}], output_schema=schema), revision
    ) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("get")
    jsonschema.validate(result.structured, tool["outputSchema"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            [{}] if revision == NEWEST else {"result": [{}]}, tool["outputSchema"]
        )


MISMATCHES: list[tuple[Any, Any]] = [
    ("5", int),
    (None, Point),
    ({"x": "1"}, Point),
    ({"y": 1}, Point),
    ([1, "2"], list[int]),
    (float("nan"), float),
    ({"a": object()}, dict[str, Any]),
    (object(), msgspec.UNSET),
    ({1: {2: {3}}, "a": lambda: 5}, msgspec.UNSET),
    (ToolResult([Text("a")], structured={"x": "1"}), Point),
    (ToolResult([Text("a")]), Point),
    (Text("words"), Point),
]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("value", "annotation"), MISMATCHES, ids=range(len(MISMATCHES))
)
async def test_what_was_not_promised_is_masked_and_logged(
    revision: str, value: Any, annotation: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("x")

    async def get():  # type: ignore[no-untyped-def]
        return value

    if annotation is not msgspec.UNSET:
        get.__annotations__["return"] = annotation
    server.add_tool(get)
    result = await got(server, revision)
    assert "structuredContent" not in result
    shown = result["toolResult"] if revision == "2024-10-07" else result.text
    assert shown.startswith("Internal error (reference ")
    assert len(caplog.records) == 1


@pytest.mark.parametrize("revision", ALL)
async def test_a_tool_result_is_sent_as_it_is(revision: str) -> None:
    result = ToolResult(
        [Text("one")], structured={"x": 1, "y": 2}, meta={"example.com/a": 1}
    )
    shown = await got(returning(result, Point), revision)
    assert shown["_meta"]["example.com/a"] == 1
    if revision == "2024-10-07":
        assert shown["toolResult"] == {"x": 1, "y": 2}
    else:
        assert shown["content"] == [{"type": "text", "text": "one"}]
        assert shown.structured == (
            {"x": 1, "y": 2} if revision in STRUCTURED else None
        )


@pytest.mark.parametrize("revision", ALL)
async def test_a_failure_with_full_control_need_not_keep_the_schema(
    revision: str,
) -> None:
    server = returning(ToolResult([Text("no luck")], is_error=True), Point)
    result = await got(server, revision)
    if revision == "2024-10-07":
        assert result["toolResult"] == "no luck"
    else:
        assert (result.is_error, result.text, result.structured) == (
            True,
            "no luck",
            None,
        )


@pytest.mark.parametrize("revision", STRUCTURED)
async def test_null_is_a_structured_value(revision: str) -> None:
    result = await got(returning(ToolResult([], structured=None)), revision)
    assert result["structuredContent"] == (
        {"result": None} if revision in WRAPPING else None
    )


WRONG: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (Text, (5,), {}, "Text(text): expected str, got 5"),
    (
        Text,
        ("x",),
        {"annotations": {"priority": 99, "bogus": 1}},
        "Text(annotations): expected Annotations | None, got {",
    ),
    (
        Text,
        ("x",),
        {"meta": "m"},
        "Text(meta): expected dict[str, Any] | None, got 'm'",
    ),
    (Image, (None, "image/png"), {}, "Image(data): expected str | bytes, got None"),
    (Image, (b"", None), {}, "Image(mime_type): expected str, got None"),
    (ResourceLink, ("a://b", None), {}, "ResourceLink(name): expected str, got None"),
    (
        ResourceLink,
        ("a://b", "b"),
        {"size": True},
        "ResourceLink(size): expected int | None, got True",
    ),
    (
        TextContents,
        ("a://b", b"text"),
        {},
        "TextContents(text): expected str, got b'text'",
    ),
    (
        TextContents,
        ("a://b", "text"),
        {"mime_type": 4},
        "TextContents(mime_type): expected str | None, got 4",
    ),
    (BlobContents, (None, b"blob"), {}, "BlobContents(uri): expected str, got None"),
    (
        EmbeddedResource,
        ("zz",),
        {},
        "EmbeddedResource(resource): expected TextContents | BlobContents, got 'zz'",
    ),
    (
        Annotations,
        (["system"],),
        {},
        "Annotations(audience): expected list[Literal['user', 'assistant']] | None, got",
    ),
    (
        Annotations,
        (),
        {"priority": 99},
        "Annotations(priority): expected a number from 0 to 1, got 99",
    ),
    (Annotations, (), {"priority": float("nan")}, "from 0 to 1, got nan"),
    (Icon, ("https://i",), {"theme": "pink"}, "Icon(theme): expected "),
    (
        ToolAnnotations,
        (),
        {"read_only_hint": "yes"},
        "ToolAnnotations(read_only_hint): expected bool | None, got 'yes'",
    ),
    (
        PromptMessage,
        ("system", Text("hi")),
        {},
        "PromptMessage(role): expected Literal['user', 'assistant'], got 'system'",
    ),
    (PromptMessage, ("user", "hi"), {}, "PromptMessage(content): expected Text | "),
    (ToolResult, ("hello",), {}, "ToolResult(content): expected list["),
    (ToolResult, (["hello"],), {}, "ToolResult(content): expected list["),
    (
        PromptResult,
        (["hello"],),
        {},
        "PromptResult(messages): expected list[PromptMessage], got ['hello']",
    ),
    (Completion, ([5],), {}, "Completion(values): expected list[str], got [5]"),
    (Completion, ("abc",), {}, "Completion(values): expected list[str], got 'abc'"),
    (InvalidParams, (5,), {}, "InvalidParams(message): expected str, got 5"),
]


@pytest.mark.parametrize(
    ("kind", "given", "named", "says"), WRONG, ids=[case[3] for case in WRONG]
)
def test_a_field_of_the_wrong_type_is_refused_when_it_is_made(
    kind: Any, given: Any, named: Any, says: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        kind(*given, **named)
    assert says in str(caught.value)


def test_a_model_is_made_as_fast_as_it_is_checked() -> None:
    assert min(timeit.repeat(lambda: Text("x"), number=1000, repeat=20)) < 1000 * 3e-6


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize("annotation", [str, msgspec.UNSET])
async def test_a_kind_of_str_is_text(annotation: Any) -> None:
    assert (await got(returning(Word("one"), annotation))).text == "one"
    assert (await got(returning([Word("one"), Text(Word("two"))]))).text == "onetwo"


@pytest.mark.parametrize(
    "annotation",
    [
        tuple[Text, Image],
        tuple[Text | Image, ...],
        Sequence[Text | Image],
        tuple[str | Text, ...] | None,
    ],
)
async def test_content_in_any_sequence_is_content(annotation: Any) -> None:
    server = returning((Text("a"), PICTURE), annotation)
    (tool,) = server.tools.values()
    assert tool.listed.output_schema is None
    assert [item["type"] for item in (await got(server))["content"]] == [
        "text",
        "image",
    ]


@pytest.mark.parametrize(
    "annotation", [Image | dict[str, int], tuple[Image, int], list[Text | Point]]
)
def test_content_mixed_with_structured_types_is_refused(annotation: Any) -> None:
    with pytest.raises(
        TypeError,
        match=r"the return type mixes content \((Image|Text)\) with structured types",
    ):
        returning(None, annotation)


async def test_an_object_is_any_value() -> None:
    server = returning({"a": [1, None]}, object)
    assert next(iter(server.tools.values())).listed.output_schema is None
    assert (await got(server)).structured == {"a": [1, None]}
    assert (await got(returning({"a": 1}, dict[str, object]))).structured == {"a": 1}


async def test_what_a_plain_function_returns_to_be_awaited_is_awaited() -> None:
    server = Server("x")

    async def wrapped() -> str:
        return "awaited"

    server.add_tool(lambda: wrapped(), name="get")
    assert (await got(server)).text == "awaited"


async def test_an_empty_list_of_content_is_not_structured() -> None:
    assert "structuredContent" not in await got(returning([], list[Text]))


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff", "𝄞", "\r\n", "\u2028", '"\\'])
@pytest.mark.parametrize(
    "shape", [str, lambda text: {"a": text}, lambda text: [Text(text), Text(text)]]
)
async def test_any_text_reaches_the_client(text: str, shape: Any) -> None:
    wanted = text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")
    result = await got(returning(shape(text)))
    assert not result.is_error
    assert wanted in (result.structured["a"] if result.structured else result.text)


async def test_a_plain_text_has_no_newline_on_the_wire() -> None:
    async def bytes_of(client: Client) -> str:
        return (await client.call_tool("get")).text

    async with connect(returning("a\nb\r\n")) as client:
        assert await bytes_of(client) == "a\nb\r\n"


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("value", "key", "wanted"),
    [
        ("text", "text", "text"),
        (b"blob", "blob", "YmxvYg=="),
        ({"a": 1}, "text", '{"a":1}'),
        (
            TextContents(
                "a://other", "x", mime_type="text/css", title="T", meta={"a/b": 1}
            ),
            "text",
            "x",
        ),
        ([BlobContents("a://1", b"1"), TextContents("a://2", "2")], "blob", "MQ=="),
    ],
    ids=repr,
)
async def test_what_a_resource_reads_as(
    revision: str, value: Any, key: str, wanted: str
) -> None:
    server = Server("x")

    @server.resource("a://b")
    async def read() -> Any:
        return value

    async with connect(server, revision) as client:
        contents = await client.read_resource("a://b")
    assert contents[0][key] == wanted
    assert len(contents) == (2 if isinstance(value, list) else 1)


@pytest.mark.parametrize("revision", ALL)
async def test_a_prompt_may_have_every_kind_of_content(revision: str) -> None:
    server = Server("x")

    @server.prompt(icons=[Icon("https://example.com/i.png")], title="All")
    async def everything() -> Any:
        return EVERYTHING

    async with connect(server, revision) as client:
        (listed,) = await client.list_prompts()
        result = await client.get_prompt("everything")
    assert [message["role"] for message in result["messages"]] == ["user"] * 6
    assert ("title" in listed, "icons" in listed) == (
        revision >= "2025-06-18",
        revision >= "2025-11-25",
    )
