"""Half-typed arguments of prompts, and variables of URIs, are completed."""

from typing import Any

import pytest

from mcp_trio import Completion, Context, Server
from mcp_trio.client.client import Client
from mcp_trio.client.errors import RemoteError
from tests.support.checked import ALL, OPENING, connect

R = "2025-11-25"
CITIES = ["Paris", "Prague", "Rome"]


def make_completing_server() -> Server:
    server = Server("x")

    @server.prompt
    async def trip(city: str, street: str = "") -> str:
        return city

    @server.resource("city://{name}")
    async def city(name: str) -> str:
        return name

    @server.complete("trip", "city")
    async def cities(typed: str) -> list[str]:
        return [name for name in CITIES if name.startswith(typed)]

    @server.complete("trip", "street")
    def streets(typed: str, others: dict[str, str]) -> list[str]:
        return [f"{others.get('city')} {number}" for number in range(250)]

    @server.complete("city://{name}", "name")
    async def names(typed: str, ctx: Context) -> Completion:
        return Completion([ctx.revision], total=7, has_more=True)

    return server


async def test_what_is_removed_takes_its_completers_along() -> None:
    server = make_completing_server()
    server.remove_prompt("trip")
    server.remove_resource("city://{name}")
    assert "completions" not in server.features()
    server.add_prompt(lambda city: city, name="trip")
    async with connect(server) as client:
        assert (await complete(client, "trip", "city"))["values"] == []


async def complete(
    client: Client, name: str, argument: str, typed: str = "", **params: Any
) -> Any:
    kind = (
        {"type": "ref/resource", "uri": name}
        if ":" in name
        else {"type": "ref/prompt", "name": name}
    )
    body = {"ref": kind, "argument": {"name": argument, "value": typed}, **params}
    return (await client.request("completion/complete", body))["completion"]


@pytest.mark.parametrize("revision", ALL)
async def test_a_prompts_argument(revision: str) -> None:
    async with connect(make_completing_server(), revision) as client:
        assert await complete(client, "trip", "city", "P") == {
            "values": ["Paris", "Prague"],
            "total": 2,
            "hasMore": False,
        }


@pytest.mark.parametrize("revision", ALL)
async def test_at_most_a_hundred_values_and_how_many_there_are(revision: str) -> None:
    async with connect(make_completing_server(), revision) as client:
        found = await complete(client, "trip", "street")
    assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 250, True)


async def test_the_other_arguments_are_known() -> None:
    async with connect(make_completing_server(), R) as client:
        found = await complete(
            client, "trip", "street", context={"arguments": {"city": "Rome"}}
        )
    assert found["values"][0] == "Rome 0"


@pytest.mark.parametrize("revision", ALL)
async def test_a_variable_of_a_uri_is_completed(revision: str) -> None:
    async with connect(make_completing_server(), revision) as client:
        found = await complete(client, "city://{name}", "name")
    assert found == {"values": [revision], "total": 7, "hasMore": True}


@pytest.mark.parametrize("revision", ALL)
async def test_what_nothing_is_known_of_has_no_completions(revision: str) -> None:
    async with connect(make_completing_server(), revision) as client:
        assert (await complete(client, "trip", "unknown"))["values"] == []


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("name", ["nothing", "other://{x}"])
async def test_what_does_not_exist_cannot_be_completed(
    revision: str, name: str
) -> None:
    async with connect(make_completing_server(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await complete(client, name, "x")
    assert caught.value.code == (
        -32002 if ":" in name and revision in OPENING else -32602
    )


BAD = [
    pytest.param("Paris", id="a string"),
    pytest.param([1, 2], id="numbers"),
    pytest.param(None, id="nothing"),
    pytest.param(
        Completion([str(number) for number in range(101)]), id="too many by hand"
    ),
]


@pytest.mark.parametrize("value", BAD)
async def test_completions_that_are_not_texts_are_never_sent(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("x")

    @server.prompt
    async def trip(city: str) -> str:
        return city

    @server.complete("trip", "city")
    async def cities(typed: str) -> Any:
        return value

    async with connect(server, R) as client:
        if isinstance(value, Completion):
            assert len((await complete(client, "trip", "city"))["values"]) == 100
        else:
            with pytest.raises(RemoteError, match="Internal error"):
                await complete(client, "trip", "city")
