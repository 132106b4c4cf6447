"""Structured content: lists of text, the compact text form, and its encoding."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mcp_trio import Image, Limits, Server, Text, ToolResult
from mcp_trio.client.client import Result
from mcp_trio.protocol.revisions import REVISIONS
from mcp_trio.protocol.revisions.pocket import Pocket
from mcp_trio.protocol.types import Implementation, StructuredContent
from mcp_trio.server.schema.signature import Returned
from tests.support.checked import ALL, connect

STRUCTURED = [revision for revision in ALL if revision >= "2025-06-18"]
WRAPPING = ["2025-06-18", "2025-11-25"]
NEWEST = ALL[-1]
TAGS = ["a", "b c"]


class Size(msgspec.Struct):
    width: float
    unit: str = "mm"


def returning(value: Any, annotation: Any, **options: Any) -> Server:
    """Return a server whose tool `get` returns a value."""
    server = Server("x", **options)

    async def get():  # type: ignore[no-untyped-def]
        return value

    get.__annotations__["return"] = annotation
    server.add_tool(get)
    return server


async def got(server: Server, revision: str = NEWEST) -> Result:
    async with connect(server, revision) as client:
        return await client.call_tool("get")


@pytest.mark.parametrize("annotation", [list[str], tuple[str, ...], Sequence[str]])
@pytest.mark.parametrize("revision", STRUCTURED)
async def test_a_list_of_texts_is_structured(revision: str, annotation: Any) -> None:
    async with connect(returning(TAGS, annotation), revision) as client:
        result = await client.call_tool("get")
        (tool,) = await client.list_tools()
    assert result["content"] == [{"type": "text", "text": '["a","b c"]'}]
    inner = {"type": "array", "items": {"type": "string"}}
    if revision in WRAPPING:
        assert result["structuredContent"] == {"result": TAGS}
        assert tool["outputSchema"]["properties"]["result"] == inner
    else:
        assert result["structuredContent"] == TAGS
        assert tool["outputSchema"] == inner


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
async def test_a_list_of_texts_is_json_where_nothing_is_structured(
    revision: str,
) -> None:
    result = await got(returning(TAGS, list[str]), revision)
    assert result["content"] == [{"type": "text", "text": '["a","b c"]'}]


async def test_a_list_of_texts_is_the_result_in_the_first_revision() -> None:
    result = await got(returning(TAGS, list[str]), "2024-10-07")
    assert result["toolResult"] == TAGS


@pytest.mark.parametrize(
    "annotation",
    [list[str], list[str] | None, str | list[str], list[list[str]], tuple[str, str]],
    ids=str,
)
def test_lists_of_texts_have_an_output_schema(annotation: Any) -> None:
    def function(): ...  # type: ignore[no-untyped-def]

    function.__annotations__["return"] = annotation
    assert Returned(function, content=(Text, Image)).schema is not None


@pytest.mark.parametrize(
    "annotation",
    [list, list[Any], list[str | Text], list[Text | Image], str | list[Image], str],
    ids=str,
)
def test_lists_of_content_have_no_output_schema(annotation: Any) -> None:
    def function(): ...  # type: ignore[no-untyped-def]

    function.__annotations__["return"] = annotation
    assert Returned(function, content=(Text, Image)).schema is None


def test_a_list_of_texts_and_content_apart_is_refused() -> None:
    def function() -> list[str] | Image: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match=r"mixes content \(Image\) with structured"):
        Returned(function, content=(Text, Image))


@pytest.mark.parametrize("revision", ALL[1:])
async def test_the_text_of_structured_content_is_compact_json(revision: str) -> None:
    result = await got(returning(Size(1.5), Size), revision)
    assert result.text == '{"width":1.5,"unit":"mm"}'


VALUES = [
    (5, int),
    (Size(1), Size),
    ({"100%": "%(text)b"}, dict[str, str]),
    (["\x1b[31mred\x9b", "\ud800", "é\n"], list[str]),
    ("text", str | int),
    (None, int | None),
    ([1.0, 2], Any),
    ({"a": None}, Any),
]


EVERY_KIND = [kind(Implementation("x", "1")) for kind in (*REVISIONS, Pocket)]


@pytest.mark.parametrize("revision", EVERY_KIND, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(("value", "annotation"), VALUES, ids=repr)
def test_the_fast_encoding_is_the_general_one(
    revision: Any, value: Any, annotation: Any
) -> None:
    def function(): ...  # type: ignore[no-untyped-def]

    function.__annotations__["return"] = annotation
    returned = Returned(function)
    encoded = returned.encode(value)
    is_object = (
        encoded.startswith(b"{") if returned.schema is None else returned.is_object
    )
    result = StructuredContent(encoded, wrapped=not is_object)
    general = msgspec.json.encode(revision.tool_result(result.as_tool_result()))
    assert revision.encode_structured(result) == general


async def test_structured_content_that_is_too_large_is_refused() -> None:
    server = returning(["x" * 50] * 10, list[str], limits=Limits(max_result=400))
    result = await got(server, "2025-11-25")
    assert result["isError"]
    assert "structured content cannot be truncated" in result.text


async def test_a_tool_result_keeps_its_own_text() -> None:
    value = ToolResult([Text("five")], structured=5)
    result = await got(returning(value, int))
    assert result.text == "five"
    assert result["structuredContent"] == 5
