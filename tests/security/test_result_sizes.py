"""A result is measured before it is encoded, however large it is."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mcp_trio import (
    Audio,
    BlobContents,
    EmbeddedResource,
    Image,
    Limits,
    PromptMessage,
    PromptResult,
    Server,
    Text,
    TextContents,
    ToolResult,
)
from mcp_trio.client.errors import RemoteError
from mcp_trio.server.truncate import truncate_text
from tests.support.checked import ALL, connect

R = ALL[-2]
LARGE = 64 * 2**20
MOST = 100_000
TEXT = "x" * LARGE
# Each of these characters takes six bytes as JSON.
ESCAPED = "\u2028" * 50_000


class Peak:
    """Measures the peak of additional memory."""

    def __enter__(self) -> "Peak":
        tracemalloc.start()
        return self

    def __exit__(self, *problem: object) -> None:
        _, self.size = tracemalloc.get_traced_memory()
        tracemalloc.stop()


RESULTS: dict[str, Callable[[], Any]] = {
    "text": lambda: TEXT,
    "texts": lambda: [TEXT, TEXT],
    "content": lambda: [Text(TEXT), Text("short")],
    "result": lambda: ToolResult([Text(TEXT)], is_error=True),
    "image": lambda: Image(data=TEXT, mime_type="image/png"),
    "audio": lambda: Audio(data=TEXT, mime_type="audio/wav"),
    "embedded text": lambda: EmbeddedResource(resource=TextContents("a:b", TEXT)),
    "embedded blob": lambda: EmbeddedResource(resource=BlobContents("a:b", TEXT)),
}


@pytest.mark.parametrize("name", RESULTS)
async def test_a_huge_result_is_never_encoded(name: str) -> None:
    server = Server("x", limits=Limits(max_result=MOST))
    value = RESULTS[name]()

    async def huge() -> Any:
        return value

    server.add_tool(huge)
    async with connect(server, R) as client:
        with Peak() as peak:
            result = await client.call_tool("huge")
    assert peak.size < 2**21
    if name in ("image", "audio", "embedded blob"):
        assert result.is_error
        assert f"at most {MOST:,} are allowed" in result.text
    else:
        assert f"[cut: {LARGE:,} characters, of which the first " in str(result)


async def test_structured_content_is_encoded_once_and_then_measured() -> None:
    server = Server("x", limits=Limits(max_result=MOST))

    @server.tool
    async def huge() -> dict[str, Any]:
        return {"numbers": list(range(MOST))}

    async with connect(server, R) as client:
        result = await client.call_tool("huge")
    assert result.is_error
    assert "tool huge returned a result of " in result.text
    assert "structured content cannot be truncated" in result.text


@pytest.mark.parametrize("revision", ALL)
async def test_huge_resources_and_prompts_are_never_encoded(revision: str) -> None:
    server = Server("x", limits=Limits(max_result=MOST))
    blob = bytes(LARGE)

    @server.resource("text://it")
    async def text() -> str:
        return TEXT

    @server.resource("bytes://it")
    async def raw() -> bytes:
        return blob

    @server.prompt
    async def ask() -> PromptResult:
        return PromptResult([PromptMessage("user", Text(TEXT))])

    async with connect(server, revision) as client:
        with Peak() as peak:
            contents = await client.request("resources/read", {"uri": "text://it"})
            with pytest.raises(RemoteError, match="returned a result of"):
                await client.request("resources/read", {"uri": "bytes://it"})
            prompt = await client.request("prompts/get", {"name": "ask"})
        assert peak.size < 2**21
        assert f"[cut: {LARGE:,} characters" in contents["contents"][0]["text"]
        assert f"[cut: {LARGE:,} characters" in prompt["messages"][0]["content"]["text"]


async def test_a_text_whose_characters_take_more_bytes_is_cut_once_more() -> None:
    server = Server("x", limits=Limits(max_result=MOST))

    @server.tool
    async def escaped() -> list[Text]:
        return [Text(ESCAPED + TEXT), Text("short")]

    async with connect(server, R) as client:
        result = await client.call_tool("escaped")
    first, second = result["content"]
    assert len(msgspec.json.encode(first)) <= MOST
    assert first["text"].count("[cut: ") == 1
    assert second["text"] == "short"


async def test_by_default_a_result_may_have_8_mib() -> None:
    server = Server("x")

    @server.tool
    async def fits() -> str:
        return "x" * (8 * 2**20 - 1000)

    @server.tool
    async def is_cut() -> str:
        return "x" * (8 * 2**20)

    async with connect(server, R) as client:
        assert "[cut: " not in (await client.call_tool("fits")).text
        assert "[cut: 8,388,608 characters" in (await client.call_tool("is_cut")).text


@pytest.mark.parametrize("most", [0, 10, 80, 1000])
def test_a_truncated_text_has_at_most_so_many_bytes(most: int) -> None:
    cut = truncate_text(TEXT, most)
    note = "\n[cut: 67,108,864 characters, of which the first 0 are shown]"
    assert len(msgspec.json.encode(cut)) <= max(most, len(msgspec.json.encode(note)))
