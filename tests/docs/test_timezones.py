"""examples/timezones: the time in any time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from mcp_trio.load_spec import load
from mcp_trio.server.app import Server
from tests.support.checked import connect
from tests.support.paths import PROJECT


@pytest.fixture(scope="module")
def server() -> Server:
    return load(str(PROJECT / "examples" / "timezones" / "timezones.py"))


async def test_the_current_time_is_told(server: Server) -> None:
    async with connect(server) as client:
        told = (await client.call_tool("get_current_time", {"timezone": "UTC"})).data
    moment = datetime.fromisoformat(told["datetime"])
    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=5)
    assert told["timezone"] == "UTC"
    assert told["day_of_week"] == f"{moment:%A}"
    assert told["is_dst"] is False


@pytest.mark.parametrize(
    ("source", "time", "target", "converted", "difference"),
    [
        ("UTC", "12:30", "Asia/Tokyo", "21:30", "+9.0h"),
        ("Asia/Tokyo", "9:05", "UTC", "00:05", "-9.0h"),
        ("UTC", "00:00", "Asia/Kathmandu", "05:45", "+5.75h"),
        ("UTC", "23:59", "Asia/Kolkata", "05:29", "+5.5h"),
        ("Asia/Tokyo", "10:00", "Asia/Tokyo", "10:00", "+0.0h"),
    ],
)
async def test_times_are_converted(
    server: Server, source: str, time: str, target: str, converted: str, difference: str
) -> None:
    arguments = {"source_timezone": source, "time": time, "target_timezone": target}
    async with connect(server) as client:
        result = (await client.call_tool("convert_time", arguments)).data
    assert result["target"]["datetime"][11:16] == converted
    assert result["time_difference"] == difference


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("source_timezone", "Mars", "expected an IANA name .* got 'Mars'"),
        ("target_timezone", "../etc", r"expected an IANA name .* got '\.\./etc'"),
        ("target_timezone", "", "expected an IANA name .* got ''"),
        ("time", "24:00", "expected HH:MM from 00:00 to 23:59, got '24:00'"),
        ("time", "noon", "expected HH:MM from 00:00 to 23:59, got 'noon'"),
    ],
)
async def test_what_is_invalid_is_named(
    server: Server, argument: str, value: str, said: str
) -> None:
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"}
    arguments[argument] = value
    async with connect(server) as client:
        result = await client.call_tool("convert_time", arguments)
    assert result.is_error
    assert re.search(said, result.text)
