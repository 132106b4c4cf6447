"""The demo server: the answers of its tools, resources, prompts and completions."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import subprocess
import sys
import wave
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Server, ToolError, demo
from mcp_trio.client.client import Client
from mcp_trio.client.errors import RemoteError
from tests.support.checked import ALL, MODERN, NEWEST, VENDOR, connect

OLDEST = ALL[0]
BOTH = pytest.mark.parametrize("revision", [OLDEST, NEWEST])
WEATHER = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
SAID = {"content": [{"type": "text", "text": WEATHER}], "isError": False}
NEW_YORK = {"location": "New York"}


async def value_of(client: Client, name: str, **arguments: Any) -> Any:
    """Return a tool's structured value, or else its text, or else its content."""
    result = await client.call_tool(name, arguments)
    if "toolResult" in result:
        return result["toolResult"]
    assert not result.is_error, result.text
    return result.get("structuredContent", result.text or result["content"])


async def failure_of(client: Client, name: str, **arguments: Any) -> str:
    """Return the text of a tool's error, which 2024-10-07 has as the value."""
    result = await client.call_tool(name, arguments)
    if client.revision == OLDEST:
        text: str = result["toolResult"]
        return text
    assert result.is_error
    return result.text


# The weather


@pytest.mark.parametrize("revision", ALL)
async def test_the_weather_in_new_york_is_exact_in_the_form_of_each_revision(
    revision: str,
) -> None:
    async with connect(demo.server, revision) as client:
        result = await client.call_tool("get_weather", NEW_YORK)
    if revision == OLDEST:
        assert result == {"toolResult": WEATHER}
    elif revision in MODERN:
        info = result["_meta"][VENDOR + "serverInfo"]
        assert info["name"] == "mcp_trio demo"
        assert result == {
            **SAID,
            "resultType": "complete",
            "_meta": {VENDOR + "serverInfo": info},
        }
    else:
        assert result == SAID


async def test_the_weather_in_new_york_has_the_shape_of_the_pocket_profile() -> None:
    pocket = Server("pocket demo", profile="pocket")
    pocket.add_tool(demo.get_weather)
    async with connect(pocket, "2025-06-18") as client:
        assert await client.call_tool("get_weather", NEW_YORK) == {
            **SAID,
            "structuredContent": {},
        }


@pytest.mark.parametrize("revision", ALL)
async def test_bad_arguments_are_refused_as_the_revision_has_it(revision: str) -> None:
    missing = "Missing required argument: location"
    async with connect(demo.server, revision) as client:
        if revision >= "2025-11-25":
            result = await client.call_tool("get_weather", {})
            assert result.is_error
            assert result.text == f"Invalid arguments for tool get_weather: {missing}"
            return
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("get_weather", {})
    assert caught.value.code == -32602
    if revision == OLDEST:
        assert (caught.value.message, caught.value.data) == (
            "Invalid params",
            {"reason": missing},
        )
    else:
        assert missing in caught.value.message


@BOTH
async def test_weather_is_available_in_both_units_and_by_zip_code(
    revision: str,
) -> None:
    async with connect(demo.server, revision) as client:
        assert (
            await value_of(
                client, "get_weather", location=" new york ", units="imperial"
            )
            == WEATHER
        )
        assert await value_of(client, "get_weather", location="10001") == WEATHER
        metric = await value_of(
            client, "get_weather", location="New York", units="metric"
        )
        assert metric == WEATHER.replace("72°F", "22.5°C")


@BOTH
async def test_an_unknown_place_is_answered_with_the_known_ones(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        for name in ("get_weather", "get_weather_data", "link_city", "embed_city"):
            words = await failure_of(client, name, location="Atlantis")
            assert words.startswith(
                "There is no 'Atlantis' in the sample; it has New York (10001), "
            )


@BOTH
async def test_weather_data_is_structured(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        value = await value_of(client, "get_weather_data", **NEW_YORK)
        assert value == {
            "temperature": 22.5,
            "conditions": "Partly cloudy",
            "humidity": 65,
        }


async def test_weather_data_has_a_schema_and_is_also_sent_as_text() -> None:
    async with connect(demo.server, "2025-11-25") as client:
        listed = {tool["name"]: tool for tool in await client.list_tools()}
        assert listed["get_weather_data"]["outputSchema"]["required"] == [
            "temperature",
            "conditions",
            "humidity",
        ]
        result = await client.call_tool("get_weather_data", NEW_YORK)
        assert json.loads(result.text) == result.structured


# The databases


@BOTH
async def test_each_database_can_be_queried(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        users = await value_of(
            client,
            "query_database",
            query="SELECT id, name FROM users ORDER BY id LIMIT 2",
        )
        assert users == {
            "columns": ["id", "name"],
            "rows": [[1, "Ada"], [2, "Grace"]],
            "truncated": False,
        }
        for database in ("products", "orders"):
            count = await value_of(
                client,
                "query_database",
                query=f"SELECT count(*) FROM {database}",
                database=database,
            )
            assert count["rows"][0][0] > 0


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DELETE FROM users", "only SELECT is allowed"),
        ("DROP TABLE users", "only SELECT is allowed"),
        ("INSERT INTO users (name) VALUES ('x')", "only SELECT is allowed"),
        ("CREATE TABLE mine (a)", "only SELECT is allowed"),
        ("ATTACH 'file.db' AS other", "only SELECT is allowed"),
        ("VACUUM INTO 'file.db'", "only SELECT is allowed"),
        ("PRAGMA query_only = OFF", "only SELECT is allowed"),
        ("BEGIN", "only SELECT is allowed"),
        ("SELECT load_extension('x')", "only SELECT is allowed"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT age FROM users", "no such column: age"),
        ("SELEC", "syntax error"),
        ("", "empty"),
        ("-- nothing", "empty"),
        ("SELECT '\0'", "The query failed"),
        ("SELECT zeroblob(5000)", "too big"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
            "takes too long",
        ),
        (
            "SELECT count(*) FROM users a, users b, users c, users d, users e, users f, users g, users h",
            "takes too long",
        ),
    ],
)
async def test_a_query_can_only_read_a_little_of_the_sample(
    query: str, words: str
) -> None:
    async with connect(demo.server) as client:
        assert words in await failure_of(client, "query_database", query=query)
        assert (
            await value_of(client, "query_database", query="SELECT count(*) FROM users")
        )["rows"] == [[5]]


async def test_a_query_gets_a_bounded_number_of_rows() -> None:
    query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT i FROM n"
    async with connect(demo.server) as client:
        exact = await value_of(
            client, "query_database", query=query.format(demo.MAX_ROWS)
        )
        more = await value_of(
            client, "query_database", query=query.format(demo.MAX_ROWS + 1)
        )
    assert (len(exact["rows"]), exact["truncated"]) == (demo.MAX_ROWS, False)
    assert (len(more["rows"]), more["truncated"]) == (demo.MAX_ROWS, True)


async def test_every_kind_of_value_can_be_read_from_a_database() -> None:
    async with connect(demo.server) as client:
        found = await value_of(
            client,
            "query_database",
            query="SELECT NULL, 1, 1.5, 'text', x'00ff', 9e999",
        )
        assert found["rows"] == [[None, 1, 1.5, "text", "00ff", None]]


# Sums and times


@BOTH
async def test_the_sum_of_two_numbers_is_a_number(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        assert await value_of(client, "calculate_sum", a=2, b=3.5) == 5.5


@pytest.mark.parametrize("revision", ALL[1:])
async def test_the_text_of_a_sum_is_that_number(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        assert (
            json.loads(
                (await client.call_tool("calculate_sum", {"a": 2, "b": 3.5})).text
            )
            == 5.5
        )


async def test_a_sum_that_is_not_a_number_is_a_failure() -> None:
    async with connect(demo.server) as client:
        assert (
            await failure_of(client, "calculate_sum", a=1.7e308, b=1.7e308)
            == "The sum is too large for a number"
        )


@BOTH
async def test_the_time_is_now_in_utc(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        told = datetime.fromisoformat(await value_of(client, "get_current_time"))
        assert told.utcoffset() == timedelta(0)
        assert abs(datetime.now(UTC) - told) < timedelta(minutes=1)


async def test_the_slow_tool_reports_its_progress(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(demo.server) as client:
        begun = trio.current_time()
        result = await client.call_tool(
            "count_slowly", {"steps": 3, "seconds": 2}, meta={"progressToken": 7}
        )
        assert trio.current_time() - begun == 6
        assert result.text == "Counted to 3"
        told = [
            message["params"]
            for message in await client.hear("notifications/progress", 3)
        ]
        assert [(one["progress"], one["total"], one["message"]) for one in told] == [
            (step, 3, f"step {step} of 3") for step in (1, 2, 3)
        ]


async def test_the_slow_tool_can_be_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(demo.server) as client:
        with trio.move_on_after(5):
            await client.call_tool(
                "count_slowly", {"steps": 100, "seconds": 2}, meta={"progressToken": 7}
            )
        await trio.sleep(100)
        assert len(await client.hear("notifications/progress")) == 2


async def test_the_oldest_revision_counts_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(demo.server, OLDEST) as client:
        result = await client.call_tool(
            "count_slowly", {"steps": 2}, meta={"progressToken": "p"}
        )
        assert result == {"toolResult": "Counted to 2"}
        told = [
            message["params"]
            for message in await client.hear("notifications/progress", 2)
        ]
        assert told == [
            {"progressToken": "p", "progress": step, "total": 2} for step in (1, 2)
        ]


# Content of each type


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Return the size and the lines of a PNG file, after checking its checksums."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data, end = (
            png[at + 4 : at + 8],
            png[at + 8 : at + 8 + size],
            at + 12 + size,
        )
        assert struct.unpack(">I", png[end - 4 : end]) == (zlib.crc32(kind + data),)
        chunks[kind], at = data, end
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    return width, height, zlib.decompress(chunks[b"IDAT"])


@BOTH
async def test_an_image_is_a_png(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        [image] = await value_of(client, "draw_gradient", size=16)
        assert (image["type"], image["mimeType"]) == ("image", "image/png")
        width, height, lines = pixels(base64.b64decode(image["data"]))
        assert (width, height, len(lines)) == (16, 16, 16 * (1 + 3 * 16))


async def test_a_sound_is_a_wav() -> None:
    async with connect(demo.server) as client:
        [audio] = await value_of(client, "play_tone", hertz=500)
        assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
        with wave.open(io.BytesIO(base64.b64decode(audio["data"]))) as sound:
            assert sound.getparams()[:4] == (1, 1, 8000, 1600)
            assert len(sound.readframes(2000)) == 1600


async def test_the_oldest_revision_gets_a_description_of_the_sound() -> None:
    async with connect(demo.server, OLDEST) as client:
        assert "audio/wav" in await value_of(client, "play_tone")


@BOTH
async def test_a_link_leads_to_a_resource_that_can_be_read(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        link = await value_of(client, "link_city", **NEW_YORK)
        if revision == OLDEST:
            assert link == "Resource: New York (cities://New%20York)"
            return
        assert (link[0]["type"], link[0]["name"]) == ("resource_link", "New York")
        [contents] = await client.read_resource(link[0]["uri"])
        assert json.loads(contents["text"])["zip_code"] == "10001"


@BOTH
async def test_a_resource_can_be_embedded(revision: str) -> None:
    words = "New York, United States: 22.5°C, Partly cloudy, humidity 65%"
    async with connect(demo.server, revision) as client:
        value = await value_of(client, "embed_city", **NEW_YORK)
        if revision == OLDEST:
            assert value == words
        else:
            contents = {
                "uri": "cities://New%20York",
                "text": words,
                "mimeType": "text/plain",
            }
            assert value == [{"type": "resource", "resource": contents}]


# Questions to the client


ASKED = [revision for revision in ALL if revision >= "2025-06-18"]
FORM: dict[str, Any] = {"elicitation": {}}


@pytest.mark.parametrize("revision", ASKED)
async def test_the_user_is_asked_where_to_travel(revision: str) -> None:
    asked = []

    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append((method, params["requestedSchema"]["required"]))
        return {"action": "accept", "content": {"city": "Tokyo", "days": 5}}

    async with connect(
        demo.server, revision, capabilities=FORM, answer=answer
    ) as client:
        plan = await value_of(client, "plan_trip")
    assert plan == "5 days in Tokyo: Thunderstorms. Pack light clothes."
    assert asked == [("elicitation/create", ["city"])]


async def test_the_newest_revision_asks_by_a_result() -> None:
    async with connect(demo.server, capabilities=FORM) as client:
        asked = await client.finish(client.begin("tools/call", {"name": "plan_trip"}))
    assert asked["resultType"] == "input_required"
    [request] = asked["inputRequests"].values()
    assert request["params"]["message"] == "Where would you like to travel?"


@pytest.mark.parametrize("revision", ASKED)
async def test_a_user_may_not_want_to_travel(revision: str) -> None:
    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "decline"}

    async with connect(
        demo.server, revision, capabilities=FORM, answer=answer
    ) as client:
        assert await value_of(client, "plan_trip") == "No trip, then."


@pytest.mark.parametrize(
    "revision", [revision for revision in ALL if revision not in MODERN]
)
async def test_a_client_that_cannot_ask_learns_what_is_missing(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        words = await failure_of(client, "plan_trip")
        assert "capability elicitation" in words


async def test_the_newest_revision_has_an_error_for_a_client_that_cannot_ask() -> None:
    async with connect(demo.server) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("plan_trip")
    assert caught.value.code == -32021


# Resources, prompts, completion


@BOTH
async def test_resources_are_listed(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        assert [one["uri"] for one in await client.list_resources()] == [
            "demo://about",
            "demo://logo.png",
        ]
        if revision == OLDEST:
            templates = (await client.request("resources/list"))["resourceTemplates"]
        else:
            templates = await client.list_templates()
        assert [one["uriTemplate"] for one in templates] == ["cities://{name}"]


@BOTH
async def test_a_text_a_picture_and_a_city_can_be_read(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        [about] = await client.read_resource("demo://about")
        assert about["mimeType"] == "text/markdown"
        assert about["text"].startswith("# mcp_trio demo\n")
        [logo] = await client.read_resource("demo://logo.png")
        assert pixels(base64.b64decode(logo["blob"]))[:2] == (32, 32)
        [city] = await client.read_resource("cities://San%20Francisco")
        assert (city["mimeType"], json.loads(city["text"])["country"]) == (
            "application/json",
            "United States",
        )


@BOTH
async def test_a_city_that_is_not_in_the_sample_is_not_found(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("cities://Atlantis")
    assert caught.value.code == (-32602 if revision == NEWEST else -32002)
    assert caught.value.data == {"uri": "cities://Atlantis"}


@BOTH
async def test_prompts_are_filled_in(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        listed = {one["name"]: one["arguments"] for one in await client.list_prompts()}
        required = {
            name: [one["required"] for one in arguments]
            for name, arguments in listed.items()
        }
        assert required == {
            "write_postcard": [True, False],
            "compare_weather": [True, True],
        }
        postcard = await client.get_prompt(
            "write_postcard", {"city": "London", "mood": "homesick"}
        )
        [message] = postcard["messages"]
        assert message["role"] == "user"
        assert message["content"]["text"].startswith(
            "Write a homesick postcard from London"
        )
        comparison = await client.get_prompt(
            "compare_weather", {"first": "Tokyo", "second": "Berlin"}
        )
        assert [message["role"] for message in comparison["messages"]] == [
            "user",
            "assistant",
            "user",
        ]


@BOTH
async def test_a_prompt_refuses_what_it_does_not_know(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        for arguments in (
            {"city": "Atlantis"},
            {},
            {"city": "London", "mood": "furious"},
        ):
            with pytest.raises(RemoteError) as caught:
                await client.get_prompt("write_postcard", arguments)
            assert caught.value.code == -32602


@BOTH
@pytest.mark.parametrize(
    ("ref", "argument", "value", "found"),
    [
        (
            {"type": "ref/prompt", "name": "write_postcard"},
            "city",
            "",
            list(demo.SAMPLE),
        ),
        (
            {"type": "ref/prompt", "name": "write_postcard"},
            "city",
            "n",
            ["New York", "Nairobi"],
        ),
        ({"type": "ref/prompt", "name": "compare_weather"}, "first", "Lo", ["London"]),
        ({"type": "ref/prompt", "name": "compare_weather"}, "second", "Lo", ["London"]),
        (
            {"type": "ref/resource", "uri": "cities://{name}"},
            "name",
            "san",
            ["San Francisco"],
        ),
        ({"type": "ref/resource", "uri": "cities://{name}"}, "name", "x", []),
    ],
)
async def test_cities_are_completed(
    revision: str, ref: dict[str, str], argument: str, value: str, found: list[str]
) -> None:
    async with connect(demo.server, revision) as client:
        params = {"ref": ref, "argument": {"name": argument, "value": value}}
        completion = (await client.request("completion/complete", params))["completion"]
        assert completion == {"values": found, "total": len(found), "hasMore": False}


async def test_the_city_to_compare_with_is_another_one() -> None:
    async with connect(demo.server) as client:
        params = {
            "ref": {"type": "ref/prompt", "name": "compare_weather"},
            "argument": {"name": "second", "value": "n"},
            "context": {"arguments": {"first": "New York"}},
        }
        assert (await client.request("completion/complete", params))["completion"][
            "values"
        ] == ["Nairobi"]


# The whole server


@BOTH
async def test_every_tool_is_described(revision: str) -> None:
    async with connect(demo.server, revision) as client:
        tools = await client.list_tools()
    assert [tool["name"] for tool in tools] == [
        tool.listed.name for tool in demo.server.tools.values()
    ]
    for tool in tools:
        assert tool["description"]
        for name, schema in tool["inputSchema"].get("properties", {}).items():
            assert schema.get("description") or tool["name"] == "calculate_sum", (
                tool["name"],
                name,
            )


async def test_its_functions_stay_functions() -> None:
    assert await demo.get_weather("New York") == WEATHER
    with pytest.raises(ToolError, match="it has New York"):
        await demo.get_weather("Atlantis")


def test_it_loads_no_database_until_one_is_asked_for() -> None:
    loaded = "import sys, mcp_trio.demo; print([name for name in ('sqlite3', 'jsonschema') if name in sys.modules])"
    # Coverage tools may load a database themselves.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COVERAGE_")
    }
    done = subprocess.run(
        [sys.executable, "-c", loaded],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "[]"
