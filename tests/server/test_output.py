"""Results and messages are sanitized, bounded, and reveal no internal errors."""

import json
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings, strategies

from mcp_trio import (
    Audio,
    Context,
    EmbeddedResource,
    Image,
    Limits,
    PromptMessage,
    ResourceLink,
    Server,
    Text,
    TextContents,
    ToolError,
    ToolResult,
)
from mcp_trio.protocol.jsonrpc import encode
from mcp_trio.protocol.sanitize import strip_controls, visible
from mcp_trio.protocol.types import Content
from mcp_trio.server.truncate import truncate_result, truncate_text
from tests.support.checked import ALL, Json, asking, call, connect, opened
from tests.support.growth import assert_linear

R = "2025-11-25"
NEWEST = ALL[-1]
DIRTY = "\x1b[31mred\x1b[0m\x07 \x1b]8;;https://evil.example\x07link\x1b]8;;\x1b\\\x9b2J\x00!"
CLEAN = "red link!"


def making(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return the function as an async one that does not wait."""

    async def made():  # type: ignore[no-untyped-def]
        return make()

    return made


# Cleaning


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("tab\tand\r\nlines\n", "tab\tand\r\nlines\n"),
        ("\x1b[1;31mred\x1b[m", "red"),
        ("\x1b[?25lhidden\x1b[2J", "hidden"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]0;title\x1b\\text", "text"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x1b]52;c;c2VjcmV0\x07", ""),
        ("\x1bPq#0;2;0\x1b\\picture", "picture"),
        ("\x1b_hidden\x1b\\\x1b^hidden\x1b\\\x1bXhidden\x1b\\seen", "seen"),
        ("\x1b(Bcharset\x1b=\x1bM\x1bc", "charset"),
        ("\x1b]0;never ended", "0;never ended"),
        ("\x1b]0;never ended\nsafe\x07", "0;never ended\nsafe"),
        ("\x1b[31", "31"),
        ("\x1b[\x1b[31mnested", "nested"),
        ("\x1b\x00[31mtorn", "[31mtorn"),
        ("\x1b", ""),
        ("".join(map(chr, range(32))), "\t\n\r"),
        ("".join(map(chr, range(127, 160))), ""),
        ("a\x7fb\x85c", "abc"),
        (
            "שלום \u202eabc\u202c \u200f\u200d\ufeff",
            "שלום \u202eabc\u202c \u200f\u200d\ufeff",
        ),
        (
            "👩\u200d👩\u200d👧 naïve \u2028 \xa0",
            "👩\u200d👩\u200d👧 naïve \u2028 \xa0",
        ),
    ],
)
def test_a_text_is_cleaned(text: str, cleaned: str) -> None:
    assert strip_controls(text) == cleaned
    assert strip_controls("x" * 2000 + text) == "x" * 2000 + cleaned
    assert strip_controls(cleaned) == cleaned


@given(strategies.text("\x1b[]P^\\0;m \x07\n\r\x00\x7f\x9b\x9d\x9c\xe9", max_size=40))
@settings(max_examples=200, deadline=None)
def test_whatever_is_cleaned_has_nothing_left_to_obey(text: str) -> None:
    cleaned = strip_controls(text)
    assert not any(character in cleaned for character in "\x1b\x07\x00\x7f\x9b\x9d\x9c")
    assert strip_controls(cleaned) == cleaned
    assert cleaned.count("\n") == text.count("\n")  # no sequence swallows a line


@pytest.mark.parametrize(
    ("start", "filling"),
    [
        ("", "\x9d"),
        ("", "\x1b]"),
        ("\x9b", "0"),
        ("", "\x1b[0"),
        ("\x1b", " "),
    ],
)
def test_control_sequences_are_stripped_in_linear_time(
    start: str, filling: str
) -> None:
    assert_linear(strip_controls, lambda size: start + filling * size, 200_000)


def test_what_a_log_shows_stays_on_its_line() -> None:
    assert (
        visible("a\r\nb\x1b[31m\x9b\u2028\ud800") == r"a\r\nb\x1b[31m\x9b\u2028\ud800"
    )
    assert (
        visible("refused: \u202eeci\u202c\u2066l\u2069a")
        == r"refused: \u202eeci\u202c\u2066l\u2069a"
    )
    assert visible("plain \t text") == r"plain \t text"
    assert visible("naïve") == "naïve"


def make_dirty_server() -> Server:
    """Return a server that sends control characters in every possible place."""
    server = Server("dirty", instructions=DIRTY)
    results: dict[str, Callable[[], Any]] = {
        "plain": lambda: DIRTY,
        "text": lambda: Text(DIRTY),
        "several": lambda: [DIRTY, Text(DIRTY)],
        "embedded": lambda: EmbeddedResource(TextContents("a://b", DIRTY)),
        "link": lambda: ResourceLink("a://b", "b", title=DIRTY, description=DIRTY),
        "by_hand": lambda: ToolResult([Text(DIRTY)]),
        "nothing_else": lambda: ToolResult([Text(DIRTY)], is_error=True),
    }
    for name, make in results.items():
        server.add_tool(making(make), name=name, description=DIRTY)

    @server.tool
    async def fail() -> str:
        raise ToolError(DIRTY)

    @server.tool
    async def tell(ctx: Context) -> str:
        await ctx.progress(1, message=DIRTY)
        await ctx.log("error", DIRTY)
        return "told"

    server.add_resource("text://it", making(lambda: DIRTY))
    server.add_resource(
        "contents://it", making(lambda: TextContents("contents://it", DIRTY))
    )
    server.add_prompt(making(lambda: DIRTY), name="text", description=DIRTY)
    server.add_prompt(
        making(lambda: PromptMessage("user", Text(DIRTY))), name="message"
    )
    return server


def texts(value: Any) -> list[str]:
    """Every string in a message."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("revision", ALL)
async def test_every_text_that_goes_out_is_clean(revision: str) -> None:
    server = make_dirty_server()
    asked = [call(revision, name, name) for name in server.tools]
    asked += [
        asking(revision, uri, "resources/read", {"uri": uri})
        for uri in server.resources
    ]
    asked += [
        asking(revision, f"prompt {name}", "prompts/get", {"name": name})
        for name in server.prompts
    ]
    asked += [asking(revision, what, what) for what in ("tools/list", "prompts/list")]
    telling = call(revision, "telling", "tell")
    telling["params"].setdefault("_meta", {}).update(
        {"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"}
    )
    async with opened(server, revision) as client:
        replies = await client.exchange(*asked, telling)
    assert len(replies) >= len(asked) + 2
    said = texts(replies)
    assert said.count(CLEAN) >= len(server.tools)
    assert [text for text in said if strip_controls(text) != text] == []


async def test_structured_content_stays_data() -> None:
    server = Server("x")

    @server.tool
    async def data() -> dict[str, str]:
        return {"raw": DIRTY}

    async with connect(server, NEWEST) as client:
        assert (await client.call_tool("data")).structured == {"raw": DIRTY}


@pytest.mark.parametrize("padding", ["", "x" * 2000], ids=["short", "long"])
async def test_structured_content_is_clean_where_it_is_repeated_as_text(
    padding: str,
) -> None:
    # JSON escapes some control characters, but not these.
    server = Server("x")

    @server.tool
    async def data() -> dict[str, str]:
        return {"raw": f"\x9b31mred\x7f{padding}"}

    async with connect(server, NEWEST) as client:
        assert (await client.call_tool("data")).text == f'{{"raw":"red{padding}"}}'


# Size


def fits(result: Any, most: int) -> int:
    size = len(msgspec.json.encode(result))
    assert size <= most
    return size


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("unit", ["x", "é", "𝄞", '"', "\n", "日"])
async def test_a_text_that_is_too_large_is_cut_and_says_so(
    revision: str, unit: str
) -> None:
    server = Server("x", limits=Limits(max_result=2000))
    server.add_tool(making(lambda: unit * 5000), name="large")
    async with opened(server, revision) as client:
        (reply,) = await client.exchange(call(revision, 1, "large"))
    assert fits(reply["result"], 2000) > 1900
    text = reply["result"].get("toolResult") or reply["result"]["content"][0]["text"]
    shown, _, note = text.partition("\n[cut: ")
    shown = text[: text.rindex("\n[cut: ")]
    assert shown == unit * len(shown)
    assert text.endswith(
        f"\n[cut: 5,000 characters, of which the first {len(shown):,} are shown]"
    )
    assert note


async def test_the_largest_text_is_cut_first() -> None:
    server, kept = Server("x"), Text("small" * 20)
    large = Text("large" * 1000)
    server.add_tool(
        making(lambda: [kept, large, Image(b"x" * 300, "image/png")]),
        name="mixed",
        max_result=2000,
    )
    async with opened(server, R) as client:
        (reply,) = await client.exchange(call(R, 1, "mixed"))
    first, second, picture = reply["result"]["content"]
    assert (first["text"], picture["type"]) == (kept.text, "image")
    assert "[cut: 5,000 characters" in second["text"]
    assert large.text == "large" * 1000  # the tool's own object
    fits(reply["result"], 2000)


@pytest.mark.parametrize(
    "result",
    [
        lambda: Image(b"x" * 3000, "image/png"),
        lambda: Audio(b"x" * 3000, "audio/wav"),
        lambda: [Text("y" * 3000), Image(b"x" * 3000, "image/png")],
        lambda: {"a": "x" * 3000},
    ],
)
@pytest.mark.parametrize("revision", [R, NEWEST])
async def test_what_cannot_be_cut_is_refused_with_its_size(
    revision: str, result: Any
) -> None:
    server = Server("x")
    server.add_tool(result, name="large", max_result=2000)
    async with connect(server, revision) as client:
        got = await client.call_tool("large")
    assert got.is_error
    assert got.text.startswith("tool large returned a result of ")
    assert (
        "at most 2,000 are allowed, and images, audio, blobs and structured content cannot be truncated"
        in got.text
    )


@pytest.mark.parametrize("unit", ["x" * 100, "y", "\x1b[31m"])
async def test_of_many_texts_only_as_many_are_cut_as_necessary(
    unit: str,
) -> None:
    server = Server("x")
    server.add_tool(
        lambda: [Text(unit)] * 5_000 + [Text("long" * 1000)] * 10,
        name="many",
        max_result=150_000,
    )
    async with connect(server, R) as client:
        result = await client.call_tool("many")
    fits(result.text, 150_000)
    # Texts of a hundred characters cannot be made short enough.
    assert result.is_error == (unit == "x" * 100)


def test_many_texts_are_cut_in_linear_time() -> None:
    def texts(count: int) -> ToolResult:
        short: list[Content] = [Text("y")] * count
        long: list[Content] = [Text("long" * 1000)] * 10
        return ToolResult(short + long)

    def truncate(result: ToolResult) -> None:
        most = len(encode(result)) - 20_000
        assert len(truncate_result(result, encode, most, "tool many")) <= most

    assert_linear(truncate, texts, 20_000)


async def test_a_refusal_names_the_size_that_was_made() -> None:
    server = Server("x")
    server.add_tool(lambda: [Text("short")] * 3, name="small", max_result=20)
    server.add_tool(lambda: Text("short"), name="smallest", max_result=20)
    async with connect(server, R) as client:
        three = await client.call_tool("small")
        one = await client.call_tool("smallest")
    sizes = [
        int(number)
        for got in (three, one)
        for number in re.findall("result of ([0-9]+) bytes", got.text)
    ]
    assert sizes[0] - sizes[1] == 2 * len('{"type":"text","text":"short"},')


async def test_a_tools_own_bound_goes_before_the_servers() -> None:
    server = Server("x", limits=Limits(max_result=500))
    server.add_tool(lambda: "x" * 5000, name="large", max_result=10_000)
    server.add_tool(lambda: "x" * 5000, name="small")
    async with connect(server, R) as client:
        assert (await client.call_tool("large")).text == "x" * 5000
        assert "[cut: 5,000 characters" in (await client.call_tool("small")).text


@pytest.mark.parametrize("revision", ALL)
async def test_resources_and_prompts_are_cut_too(revision: str) -> None:
    server = Server("x", limits=Limits(max_result=1000))
    server.add_resource("text://it", making(lambda: "x" * 5000))
    server.add_resource("bytes://it", making(lambda: b"x" * 5000))
    server.add_prompt(making(lambda: ["small", "x" * 5000]), name="long")
    async with opened(server, revision) as client:
        text, blob, prompt = await client.exchange(
            asking(revision, 1, "resources/read", {"uri": "text://it"}),
            asking(revision, 2, "resources/read", {"uri": "bytes://it"}),
            asking(revision, 3, "prompts/get", {"name": "long"}),
        )
    assert "[cut: 5,000 characters" in text["result"]["contents"][0]["text"]
    assert blob["error"]["message"].startswith(
        "resource bytes://it returned a result of "
    )
    small, long = prompt["result"]["messages"]
    assert small["content"]["text"] == "small"
    assert "[cut: 5,000 characters" in long["content"]["text"]
    fits(text["result"], 1000)
    fits(prompt["result"], 1000)


async def test_the_words_of_a_failure_are_cut_too() -> None:
    server = Server("x", limits=Limits(max_result=1000))

    @server.tool
    async def fail() -> str:
        raise ToolError("x" * 5000)

    async with connect(server, R) as client:
        result = await client.call_tool("fail")
    assert result.is_error
    assert result.text.endswith("are shown]")
    assert len(result.text) <= 1000


def test_a_cut_falls_between_characters() -> None:
    for size in range(60, 200):
        shown = truncate_text('aé𝄞"\\\n' * 100, size)
        assert len(msgspec.json.encode(shown)) <= max(size, 70)
        assert "\ufffd" not in shown


# What must not leave the server


SECRET = "/srv/secret/swordfish.py"


class Checked(msgspec.Struct):
    name: Literal["a", "b"]


def fail(value: str = "") -> Any:
    """Raise a FileNotFoundError that names the path."""
    with open(SECRET):
        raise AssertionError


def frail() -> Server:
    """Fails in every place where a user's code runs, with a secret in the message."""
    server = Server("frail")

    class Sly(Exception):
        def __str__(self) -> str:
            raise OSError(SECRET)

    def fail_slyly() -> Any:
        raise Sly

    class Unprintable:
        def __repr__(self) -> str:
            return SECRET

    for name, function in {
        "fail": fail_slyly,
        "file": lambda: fail(),
        "odd": lambda: {"x": Unprintable()},
    }.items():
        server.add_tool(function, name=name)

    @server.tool(
        output_schema={"type": "object", "properties": {"a": {"type": "integer"}}}
    )
    async def mismatched() -> dict[str, Any]:
        return {"a": SECRET}

    @server.tool
    async def typed() -> int:
        return SECRET  # type: ignore[return-value]

    @server.tool
    async def module() -> None:
        import mcp_trio.swordfish  # type: ignore[import-not-found] # noqa: F401

    @server.tool
    async def checked(value: Checked) -> str:
        return "x"

    server.add_resource("file://it", lambda: fail())
    server.add_resource("notes://{id}", lambda id: fail())
    server.add_prompt(lambda: fail(), name="file")
    server.add_prompt(lambda word="": fail(), name="words")
    return server


class Unsayable(ToolError):
    def __str__(self) -> str:
        raise OSError(SECRET)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("revision", ALL)
async def test_a_failure_that_cannot_even_be_said_is_masked(
    revision: str, several: bool
) -> None:
    server = Server("x")

    @server.tool
    async def fail() -> str:
        if several:
            raise BaseExceptionGroup("", [Unsayable(), ToolError("b")])
        raise Unsayable

    async with opened(server, revision) as client:
        replies = await client.exchange(
            call(revision, 1, "fail"), call(revision, 2, "fail")
        )
    assert json.dumps(replies).count("(reference ") == 2
    assert SECRET not in json.dumps(replies)


@pytest.mark.parametrize("revision", ALL)
async def test_no_traceback_path_or_secret_reaches_the_wire(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = frail()
    server.complete("notes://{id}", "id")(fail)
    asked: list[Json] = [call(revision, name, name) for name in server.tools]
    asked += [
        asking(revision, uri, "resources/read", {"uri": uri})
        for uri in ("file://it", "notes://1")
    ]
    asked += [
        asking(revision, f"p {name}", "prompts/get", {"name": name})
        for name in server.prompts
    ]
    ref = {"type": "ref/resource", "uri": "notes://{id}"}
    asked += [
        asking(
            revision,
            "c",
            "completion/complete",
            {"ref": ref, "argument": {"name": "id", "value": "x"}},
        )
    ]
    async with opened(server, revision) as client:
        client.send(*asked)
        replies = await client.replies(len(asked))
    wire = json.dumps(replies)
    for forbidden in (
        "swordfish",
        "Traceback",
        ".py",
        "/srv",
        "line ",
        "0x",
        "Error:",
        "site-packages",
    ):
        assert forbidden not in wire, forbidden
    assert (
        wire.count("(reference ") == len(asked) - 1
    )  # but for the arguments that do not fit
    assert "swordfish" in caplog.text
