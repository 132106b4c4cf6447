"""Extensions of users: what a server advertises, accepts and refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec import Struct, structs

from mcp_trio import Server
from mcp_trio.client.errors import RemoteError
from mcp_trio.extensions import Extension, ExtensionContext, Params, method
from mcp_trio.extensions.base import Listening, Proceed
from mcp_trio.protocol.jsonrpc import encode
from mcp_trio.protocol.revisions import REVISIONS
from mcp_trio.testing import connect

CLOCK = "com.example/clock"
DECLARED = {"extensions": {CLOCK: {"format": "iso"}}}
MODERN = [revision.name for revision in REVISIONS if not revision.opens]
OPENING = [revision.name for revision in REVISIONS if revision.opens]
ALL = OPENING + MODERN


class Zone(Params, rename="camel"):
    """The params of clock/now."""

    zone_name: str = "UTC"


class Now(Struct, rename="camel"):
    """The result of clock/now."""

    iso_time: str
    result_type: str = "complete"


class Clock(Extension):
    """An extension with one of everything."""

    identifier = CLOCK
    notifications = ("notifications/clock/tick",)
    result_types = ("com.example/time",)
    listens_to = ("zones",)

    def __init__(self) -> None:
        self.settings = {"zones": ["UTC"]}
        self.ran = False

    @method("clock/now", named_by="zoneName")
    async def now(self, params: Zone, ctx: ExtensionContext) -> Now:
        """Say what time it is."""
        await ctx.notify("notifications/clock/tick", {"zone": params.zone_name})
        form = ctx.settings.get("format", "none")
        return Now(f"12:00 {params.zone_name} {form}", "com.example/time")

    @method("clock/reset")
    async def reset(self, params: Params, ctx: ExtensionContext) -> None:
        """Return an empty result."""

    @method("clock/ask")
    async def ask(self, params: Params, ctx: ExtensionContext) -> None:
        """Ask the client, which only features can."""
        await ctx.roots()

    async def follow(self, listening: Listening) -> None:
        """Tick once for each zone that is listened to."""
        for zone in listening.wanted["zones"]:
            listening.notify("notifications/clock/tick", {"zone": zone})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Note that the server runs."""
        self.ran = True
        yield


def clock_server() -> Server[Any]:
    server = Server("clock", extensions=[Clock()])

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@pytest.mark.parametrize("revision", MODERN)
async def test_discover_advertises_the_extension_and_its_settings(
    revision: str,
) -> None:
    async with connect(clock_server(), revision) as client:
        result = await client.request("server/discover")
    assert result["capabilities"]["extensions"] == {CLOCK: {"zones": ["UTC"]}}


@pytest.mark.parametrize("revision", OPENING)
@pytest.mark.parametrize("capabilities", [{"extensions": {}}, {}])
async def test_initialize_advertises_extensions_to_clients_that_sent_some(
    revision: str, capabilities: dict[str, Any]
) -> None:
    async with connect(clock_server(), revision, capabilities=capabilities) as client:
        shown = client.server["capabilities"].get("extensions")
    expected = {CLOCK: {"zones": ["UTC"]}} if capabilities else None
    assert shown == expected


@pytest.mark.parametrize("revision", ALL)
async def test_a_client_that_declared_it_can_use_its_methods(revision: str) -> None:
    async with connect(clock_server(), revision, capabilities=DECLARED) as client:
        result = await client.request("clock/now", {"zoneName": "CET"})
    assert result["isoTime"] == "12:00 CET iso"
    assert client.heard[-1]["method"] == "notifications/clock/tick"
    assert client.heard[-1]["params"] == {"zone": "CET"}
    expected = "com.example/time" if revision in MODERN else None
    assert result.get("resultType") == expected


@pytest.mark.parametrize("revision", ALL)
async def test_a_method_without_a_value_has_an_empty_result(revision: str) -> None:
    async with connect(clock_server(), revision, capabilities=DECLARED) as client:
        result = await client.request("clock/reset")
    assert result.keys() - {"_meta", "resultType"} == set()


@pytest.mark.parametrize("revision", MODERN)
async def test_a_client_that_did_not_declare_it_learns_what_is_missing(
    revision: str,
) -> None:
    async with connect(clock_server(), revision) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request("clock/now", {"zoneName": 7})
    assert refused.value.code == -32021
    required = {"extensions": {CLOCK: {}}}
    assert refused.value.data == {"requiredCapabilities": required}


@pytest.mark.parametrize("revision", OPENING)
async def test_an_older_session_that_did_not_declare_it_has_no_such_method(
    revision: str,
) -> None:
    async with connect(clock_server(), revision) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request("clock/now")
    assert refused.value.code == -32601


@pytest.mark.parametrize("settings", [None, True, [], "x" * 10, {"big": "x" * 5000}])
async def test_settings_that_are_no_object_or_too_large_do_not_declare_it(
    settings: Any,
) -> None:
    capabilities = {"extensions": {CLOCK: settings}}
    async with connect(clock_server(), capabilities=capabilities) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request("clock/now")
    assert refused.value.code == -32021


@pytest.mark.parametrize("extensions", [None, [], 7, "all"])
async def test_extensions_that_are_no_object_are_ignored(extensions: Any) -> None:
    capabilities = {"extensions": extensions}
    for revision in ALL:
        async with connect(
            clock_server(), revision, capabilities=capabilities
        ) as client:
            assert await client.call_tool("add", {"a": 1, "b": 2})


async def test_a_session_keeps_known_extensions_only() -> None:
    capabilities = {"extensions": {**DECLARED["extensions"], "com.example/x": {}}}
    kept: list[Any] = []
    server = clock_server()
    server.on_message = lambda conversation, sender, data: kept.append(
        conversation.session.capabilities.extensions
    )
    async with connect(server, OPENING[-1], capabilities=capabilities) as client:
        await client.ping()
    assert bytes(kept[-1]) == encode(DECLARED["extensions"])


async def test_params_that_do_not_fit_are_refused_with_their_place() -> None:
    async with connect(clock_server(), capabilities=DECLARED) as client:
        with pytest.raises(RemoteError, match=r"\$\.params\.zoneName") as refused:
            await client.request("clock/now", {"zoneName": 7})
    assert refused.value.code == -32602


async def test_methods_of_extensions_cannot_ask_the_client() -> None:
    async with connect(clock_server(), capabilities=DECLARED) as client:
        with pytest.raises(RemoteError) as failed:
            await client.request("clock/ask")
    assert failed.value.code == -32603


async def test_a_subscription_carries_the_extensions_notifications(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(clock_server(), capabilities=DECLARED) as client:
        wanted = {"toolsListChanged": True, "zones": ["UTC", "CET"]}
        id = client.begin("subscriptions/listen", {"notifications": wanted})
        heard = await client.hear("notifications/clock/tick", 2)
    acknowledged = client.heard[0]["params"]
    assert acknowledged["notifications"] == wanted
    zones = [one["params"]["zone"] for one in heard]
    assert zones == ["UTC", "CET"]
    for one in client.heard:
        meta = one["params"]["_meta"]
        assert meta["io.modelcontextprotocol/subscriptionId"] == id


async def test_a_subscription_to_an_undeclared_extension_is_refused() -> None:
    async with connect(clock_server()) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(
                "subscriptions/listen", {"notifications": {"zones": ["UTC"]}}
            )
    assert refused.value.code == -32021


async def test_an_extension_runs_as_long_as_its_server() -> None:
    clock = Clock()
    async with connect(Server("clock", extensions=[clock])):
        assert clock.ran


# Hooks on tools


class Stamp(Extension):
    """Stamps tools in lists, hides one, and counts calls."""

    identifier = "com.example/stamp"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def list_tool(
        self, tool: Any, listed: Any, revision: Any, is_declared: bool
    ) -> Any:
        """Stamp a tool for clients that declare the extension; hide the secret one."""
        if tool.name == "secret" and not is_declared:
            return None
        if is_declared:
            return structs.replace(listed, description="stamped")
        return listed

    async def call_tool(self, request: Any, tool: Any, proceed: Proceed) -> bytes:
        """Note the call, and answer one tool in its place."""
        self.calls.append(tool.name)
        if tool.name == "secret" and self.declared(request) is None:
            return self.encode_result(request.call.revision, {"content": []})
        return await proceed()


def stamped_server(stamp: Stamp) -> Server[Any]:
    server = Server("stamped")

    @server.tool
    def plain() -> str:
        return "plain"

    server.add_extension(stamp)

    @server.tool
    def secret() -> str:
        return "secret"

    return server


async def test_extensions_see_lists_and_calls_of_tools() -> None:
    stamp = Stamp()
    server = stamped_server(stamp)
    async with connect(server) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["plain"]
        assert (await client.call_tool("plain")).text == "plain"
        assert (await client.call_tool("secret")).text == ""
    declared = {"extensions": {Stamp.identifier: {}}}
    async with connect(server, capabilities=declared) as client:
        listed = await client.list_tools()
        assert [tool["description"] for tool in listed] == ["stamped", "stamped"]
        assert (await client.call_tool("secret")).text == "secret"
    assert stamp.calls == ["plain", "secret", "secret"]


# Mistakes


def test_two_extensions_cannot_have_the_same_method() -> None:
    class Other(Extension):
        identifier = "com.example/other"

        @method("clock/now")
        async def now(self, params: Params, ctx: ExtensionContext) -> None: ...

    with pytest.raises(
        ValueError, match=r"'clock/now' already belongs to 'com.example/clock'"
    ):
        Server("x", extensions=[Clock(), Other()])


def test_an_extension_is_added_once() -> None:
    with pytest.raises(ValueError, match="this server already has it"):
        Server("x", extensions=[Clock(), Clock()])
    clock = Clock()
    Server("x", extensions=[clock])
    with pytest.raises(ValueError, match="belongs to <Server 'x'"):
        Server("y", extensions=[clock])


async def test_an_extension_is_added_before_the_server_runs() -> None:
    server = Server("x")
    async with connect(server):
        with pytest.raises(RuntimeError, match="the server is already running"):
            server.add_extension(Clock())


@pytest.mark.parametrize("name", ["tools/call", "notifications/message", "ping"])
def test_a_method_of_the_protocol_is_not_an_extensions(name: str) -> None:
    async def answer(self: Any, params: Params, ctx: ExtensionContext) -> None: ...

    members = {"identifier": "com.example/x", "answer": method(name)(answer)}
    with pytest.raises(TypeError, match="which the protocol itself defines"):
        type("Wrong", (Extension,), members)


@pytest.mark.parametrize(
    "identifier", [None, "clock", "com.example/", "/x", 7, "a b/c"]
)
def test_an_identifier_has_a_prefix(identifier: Any) -> None:
    with pytest.raises(TypeError, match="expected an identifier such as"):
        type("Wrong", (Extension,), {"identifier": identifier})


def test_params_are_annotated_with_a_subclass_of_params() -> None:
    class Wrong(Extension):
        identifier = "com.example/wrong"

        @method("wrong/do")
        async def do(self, params: dict[str, Any], ctx: ExtensionContext) -> None: ...

    with pytest.raises(TypeError, match=r"'wrong/do': expected a subclass of"):
        Server("x", extensions=[Wrong()])


def test_the_name_header_repeats_a_parameter_that_exists() -> None:
    class Wrong(Extension):
        identifier = "com.example/wrong"

        @method("wrong/do", named_by="zone_name")
        async def do(self, params: Zone, ctx: ExtensionContext) -> None: ...

    with pytest.raises(
        TypeError, match=r"named_by: expected one of .*, got 'zone_name'"
    ):
        Server("x", extensions=[Wrong()])


def test_a_server_without_extensions_loads_nothing_of_them() -> None:
    program = """
import sys, trio
from mcp_trio import Server
from mcp_trio.testing import connect
server = Server("plain")
@server.tool
def add(a: int, b: int) -> int:
    return a + b
async def main():
    async with connect(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        await client.list_tools()
trio.run(main)
loaded = [name for name in sys.modules if name.startswith("mcp_trio.")]
rooms = ("mcp_trio.extensions", "mcp_trio.stores", "mcp_trio.server.extension_points")
print([name for name in loaded if name.startswith(rooms)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
