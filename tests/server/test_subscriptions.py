"""Which clients are notified when a list or a resource has changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from mcp_trio import Server
from mcp_trio.client.errors import RemoteError
from tests.support.checked import (
    ALL,
    NEWEST,
    OPENING,
    VENDOR,
    RawClient,
    cancelled,
    connect,
    initialize,
    modern,
    opened,
    raw,
)

EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a://b", "a://x/1"],
}
LIST_CHANGED = [
    f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")
]
UPDATED = "notifications/resources/updated"


async def nothing() -> str:
    return "nothing"


def make_server_with_lists() -> Server:
    server = Server("x")
    server.add_tool(nothing)
    server.add_prompt(nothing)
    server.add_resource("a://b", nothing)

    @server.resource("a://x/{id}")
    async def x(id: str) -> str:
        return id

    return server


def change_everything(server: Server, name: str = "new") -> None:
    server.add_tool(nothing, name=name)
    server.add_prompt(nothing, name=name)
    server.add_resource(f"a://{name}", nothing)


def methods(messages: list[Any]) -> list[str]:
    return sorted(message["method"] for message in messages)


@pytest.mark.parametrize("revision", OPENING)
async def test_an_open_session_is_told_once_of_each_changed_list(revision: str) -> None:
    server = make_server_with_lists()
    async with opened(server, revision) as client:
        await client.quiet()
        for number in range(3):
            change_everything(server, f"new{number}")
        server.remove_tool("nothing")
        assert methods(await client.quiet()) == LIST_CHANGED
        server.remove_tool("new1")
        assert methods(await client.quiet()) == [LIST_CHANGED[2]]
        server.remove_resource("a://x/{id}")
        assert methods(await client.quiet()) == [LIST_CHANGED[1]]


async def test_a_client_is_not_told_of_lists_that_were_not_announced() -> None:
    server = Server("x")
    async with raw(server, "2025-11-25") as client:
        await client.exchange(initialize("2025-11-25"))
        change_everything(
            server
        )  # after the server has listed its features, and before the client is ready
        await client.exchange({"jsonrpc": "2.0", "method": "notifications/initialized"})
        change_everything(server, "newer")
        assert methods(await client.quiet()) == ["notifications/tools/list_changed"]


async def test_a_session_that_is_not_open_yet_is_told_nothing() -> None:
    server = make_server_with_lists()
    async with raw(server, "2025-11-25") as client:
        change_everything(server, "before")
        assert await client.quiet() == []
        await client.exchange(initialize("2025-11-25"))
        change_everything(server, "between")
        assert await client.quiet() == []


@pytest.mark.parametrize("revision", OPENING)
async def test_a_change_in_another_thread_is_announced(revision: str) -> None:
    server = make_server_with_lists()
    async with opened(server, revision) as client:
        await client.quiet()
        await trio.to_thread.run_sync(change_everything, server)
        assert methods(await client.quiet()) == LIST_CHANGED


def test_a_server_that_does_not_run_may_change() -> None:
    server = make_server_with_lists()
    change_everything(server)
    server.resource_updated("a://b")


async def test_changes_made_before_the_server_runs_are_not_announced() -> None:
    server = make_server_with_lists()
    async with opened(server, "2025-11-25") as client:
        assert await client.quiet() == []
    change_everything(server)
    async with opened(server, "2025-11-25") as client:
        assert await client.quiet() == []


@pytest.mark.parametrize("revision", OPENING)
async def test_a_subscribed_resource(revision: str) -> None:
    server = make_server_with_lists()
    async with connect(server, revision) as client:
        for uri in ("a://b", "a://x/1"):
            await client.request("resources/subscribe", {"uri": uri})
        for uri in ("a://b", "a://x/1", "a://x/1", "a://x/2"):
            server.resource_updated(uri)
        heard = await client.hear(UPDATED, 2)
        assert [message["params"]["uri"] for message in heard] == ["a://b", "a://x/1"]
        await client.request("resources/unsubscribe", {"uri": "a://b"})
        await client.request("resources/unsubscribe", {"uri": "a://never"})
        server.resource_updated("a://b")
        await client.ping()
        await trio.testing.wait_all_tasks_blocked()
        assert len(client.heard) == 2


async def test_other_clients_do_not_hear_of_it() -> None:
    server = make_server_with_lists()
    async with (
        connect(server, "2025-11-25") as one,
        connect(server, "2025-06-18") as other,
    ):
        await one.request("resources/subscribe", {"uri": "a://b"})
        server.resource_updated("a://b")
        server.add_tool(nothing, name="new")
        await one.hear(UPDATED)
        await other.hear(LIST_CHANGED[2])
        assert methods(other.heard) == [LIST_CHANGED[2]]


# subscriptions/listen


@asynccontextmanager
async def listening(
    server: Server, wanted: Any, id: Any = "s"
) -> AsyncIterator[tuple[RawClient, Any]]:
    async with raw(server, NEWEST) as client:
        first, *more = await client.exchange(
            modern(id, "subscriptions/listen", {"notifications": wanted})
        )
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["_meta"] == {VENDOR + "subscriptionId": id}
        assert more == []
        yield client, first["params"]["notifications"]


@pytest.mark.parametrize("id", ["s", 0, 7])
async def test_every_requested_notification_carries_the_id_of_the_request(
    id: Any,
) -> None:
    server = make_server_with_lists()
    async with listening(server, EVERYTHING, id) as (client, honoured):
        assert honoured == EVERYTHING
        change_everything(server)
        for uri in ("a://b", "a://x/1", "a://x/2"):
            server.resource_updated(uri)
        told = await client.quiet()
    assert methods(told) == sorted([*LIST_CHANGED, UPDATED, UPDATED])
    assert {
        message["params"]["_meta"][VENDOR + "subscriptionId"] for message in told
    } == {id}


@pytest.mark.parametrize("key", EVERYTHING)
async def test_only_requested_notifications_are_sent(key: str) -> None:
    server = make_server_with_lists()
    async with listening(server, {key: EVERYTHING[key]}) as (client, honoured):
        assert honoured == {key: EVERYTHING[key]}
        change_everything(server)
        server.resource_updated("a://b")
        (told,) = await client.quiet()
    assert (
        key.removesuffix("ListChanged").removesuffix("Subscriptions") in told["method"]
    )


async def test_a_client_that_requested_nothing_is_told_nothing() -> None:
    server = make_server_with_lists()
    async with listening(server, {}) as (client, honoured):
        assert honoured == {}
        change_everything(server)
        server.resource_updated("a://b")
        assert await client.quiet() == []


async def test_what_the_server_does_not_have_is_not_promised() -> None:
    async with listening(Server("bare"), EVERYTHING) as (_, honoured):
        assert honoured == {"toolsListChanged": True}


async def test_a_cancelled_subscription_is_told_nothing_more() -> None:
    server = make_server_with_lists()
    async with listening(server, EVERYTHING) as (client, _):
        assert await client.exchange(cancelled("s")) == []
        change_everything(server)
        assert await client.quiet() == []


async def test_a_subscription_ends_with_a_result_when_the_input_ends() -> None:
    async with listening(make_server_with_lists(), EVERYTHING) as (client, _):
        client.end()
        await client.ended()
        (reply,) = await client.quiet()
    assert reply["id"] == "s"
    assert reply["result"]["_meta"][VENDOR + "subscriptionId"] == "s"


async def test_a_subscription_ends_with_a_result_when_the_server_stops() -> None:
    server = make_server_with_lists()
    async with listening(server, EVERYTHING) as (client, _):
        server.subscriptions.end_all()
        (reply,) = await client.quiet()
        assert reply["result"]["resultType"] == "complete"
        change_everything(server)
        assert await client.quiet() == []


async def test_two_subscriptions_at_a_time() -> None:
    server = make_server_with_lists()
    async with listening(server, {"toolsListChanged": True}, "one") as (client, _):
        await client.exchange(
            modern("two", "subscriptions/listen", {"notifications": EVERYTHING})
        )
        server.add_tool(nothing, name="new")
        told = await client.quiet()
    assert [
        message["params"]["_meta"][VENDOR + "subscriptionId"] for message in told
    ] == ["one", "two"]


async def test_a_client_that_does_not_listen_is_told_nothing() -> None:
    server = make_server_with_lists()
    async with connect(server, NEWEST) as client:
        await client.list_tools()
        change_everything(server)
        server.resource_updated("a://b")
        await client.list_tools()
        assert client.heard == []


@pytest.mark.parametrize(
    "params", [{}, {"notifications": 5}, {"notifications": {"toolsListChanged": "yes"}}]
)
async def test_an_invalid_filter_is_refused(params: Any) -> None:
    async with connect(make_server_with_lists(), NEWEST) as client:
        with pytest.raises(RemoteError) as caught:
            await client.request("subscriptions/listen", params)
    assert caught.value.code == -32602


@pytest.mark.parametrize("revision", ALL)
async def test_each_era_has_its_own_way(revision: str) -> None:
    foreign = "subscriptions/listen" if revision in OPENING else "resources/subscribe"
    async with connect(make_server_with_lists(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.request(foreign, {"uri": "a://b", "notifications": {}})
    assert caught.value.code == -32601


async def test_a_session_subscribes_to_a_bounded_number_of_resources() -> None:
    server = Server("notes")

    @server.resource("notes://{id}")
    async def note(id: str) -> str:
        return id

    async with connect(server, "2025-11-25") as client:
        for number in range(1000):
            await client.request("resources/subscribe", {"uri": f"notes://{number}"})
        with pytest.raises(RemoteError, match="this session has 1000"):
            await client.request("resources/subscribe", {"uri": "notes://one-more"})
