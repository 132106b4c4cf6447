"""Resources, templates and prompts are hidden from clients without their scopes."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from mcp_trio import Principal, Server
from mcp_trio.client.client import Client
from mcp_trio.client.errors import RemoteError
from mcp_trio.testing import connect
from tests.support.checked import ALL, OPENING

NEWEST = ALL[-1]
SOMEBODY = Principal("somebody", frozenset({"read"}))
ADMIN = Principal("admin", frozenset({"read", "admin"}))


@pytest.fixture
def server() -> Server:
    server = Server("guarded")
    admins = {"admin"}

    @server.resource("a://open")
    @server.resource("a://hidden", scopes=admins)
    async def fixed() -> str:
        return "fixed"

    @server.resource("b://open/{id}")
    @server.resource("b://hidden/{id}", scopes=admins)
    async def variable(id: str) -> str:
        return id

    @server.prompt
    async def shown(word: str) -> str:
        return word

    @server.prompt(scopes=admins)
    async def hidden(word: str) -> str:
        return word

    @server.complete("shown", "word")
    @server.complete("hidden", "word")
    @server.complete("b://open/{id}", "id")
    @server.complete("b://hidden/{id}", "id")
    async def words(value: str) -> list[str]:
        return ["word"]

    return server


async def refusal(asking: Callable[[], Awaitable[Any]]) -> tuple[int, str]:
    with pytest.raises(RemoteError) as caught:
        await asking()
    return caught.value.code, str(caught.value)


async def both_refusals(
    client: Client, method: str, params: Any, hidden: str, absent: str
) -> list[str]:
    """Return the errors for something hidden and for something that does not exist."""
    found = []
    for name in (hidden, absent):
        given = params(name)
        with pytest.raises(RemoteError) as caught:
            await client.request(method, given)
        found.append(f"{caught.value.code} {caught.value}".replace(name, "NAME"))
    return found


def uri(name: str) -> Any:
    return {"uri": name}


def prompt(name: str) -> Any:
    return {"name": name, "arguments": {"word": "x"}}


def completing_prompt(name: str) -> Any:
    argument = {"name": "word", "value": ""}
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": argument}


def completing_template(name: str) -> Any:
    argument = {"name": "id", "value": ""}
    return {"ref": {"type": "ref/resource", "uri": name}, "argument": argument}


REQUESTS = [
    ("resources/read", uri, "a://hidden", "a://absent"),
    ("resources/read", uri, "b://hidden/1", "b://absent/1"),
    ("prompts/get", prompt, "hidden", "absent"),
    ("completion/complete", completing_prompt, "hidden", "absent"),
    ("completion/complete", completing_template, "b://hidden/{id}", "b://absent/{id}"),
]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("principal", [SOMEBODY, ADMIN])
async def test_lists_show_what_a_principal_may_use(
    server: Server, revision: str, principal: Principal
) -> None:
    kinds = ["hidden", "open"] if principal is ADMIN else ["open"]
    async with connect(server, revision, principal=principal) as client:
        resources = await client.list_resources()
        assert [one["uri"] for one in resources] == [f"a://{kind}" for kind in kinds]
        if revision == "2024-10-07":
            listed = await client.request("resources/list")
            templates = listed["resourceTemplates"]
        else:
            templates = await client.list_templates()
        expected = [f"b://{kind}/{{id}}" for kind in kinds]
        assert [one["uriTemplate"] for one in templates] == expected
        prompts = [one["name"] for one in await client.list_prompts()]
        assert prompts == (["shown", "hidden"] if principal is ADMIN else ["shown"])


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(("method", "params", "hidden", "absent"), REQUESTS)
async def test_what_is_hidden_is_refused_as_what_is_absent(
    server: Server, revision: str, method: str, params: Any, hidden: str, absent: str
) -> None:
    async with connect(server, revision, principal=SOMEBODY) as client:
        one, other = await both_refusals(client, method, params, hidden, absent)
        assert one == other


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(("method", "params", "hidden", "absent"), REQUESTS)
async def test_a_principal_with_the_scopes_is_served(
    server: Server, revision: str, method: str, params: Any, hidden: str, absent: str
) -> None:
    async with connect(server, revision, principal=ADMIN) as client:
        assert await client.request(method, params(hidden))


@pytest.mark.parametrize("revision", OPENING)
async def test_nobody_subscribes_to_a_hidden_resource(
    server: Server, revision: str
) -> None:
    async with connect(server, revision, principal=SOMEBODY) as client:
        for hidden, absent in (
            ("a://hidden", "a://none"),
            ("b://hidden/1", "b://none"),
        ):
            one, other = await both_refusals(
                client, "resources/subscribe", uri, hidden, absent
            )
            assert one == other
    async with connect(server, revision, principal=ADMIN) as client:
        await client.request("resources/subscribe", {"uri": "a://hidden"})
        server.resource_updated("a://hidden")
        (heard,) = await client.hear("notifications/resources/updated")
        assert heard["params"] == {"uri": "a://hidden"}


async def test_a_session_is_not_told_of_a_resource_that_is_now_hidden(
    server: Server, autojump_clock: Any
) -> None:
    async with connect(server, "2025-11-25", principal=SOMEBODY) as client:
        for name in ("a://open", "b://open/1"):
            await client.request("resources/subscribe", {"uri": name})
        server.remove_resource("a://open")
        server.add_resource("a://open", lambda: "x", scopes={"admin"})
        server.resource_updated("a://open")
        server.resource_updated("b://open/1")
        (heard,) = await client.hear("notifications/resources/updated")
        assert heard["params"] == {"uri": "b://open/1"}


@pytest.mark.parametrize("principal", [SOMEBODY, ADMIN])
async def test_a_listener_is_told_of_what_its_principal_may_read(
    server: Server, principal: Principal, autojump_clock: Any
) -> None:
    names = ["a://hidden", "b://hidden/1", "a://open"]
    wanted = {"notifications": {"resourceSubscriptions": names}}
    async with connect(server, NEWEST, principal=principal) as client:
        client.begin("subscriptions/listen", wanted)
        await client.hear("notifications/subscriptions/acknowledged")
        for name in names:
            server.resource_updated(name)
        expected = names if principal is ADMIN else ["a://open"]
        await trio.sleep(1)
        heard = await client.hear("notifications/resources/updated")
        assert [one["params"]["uri"] for one in heard] == expected


async def test_a_hidden_resource_is_not_replaced_by_a_template_that_matches(
    server: Server,
) -> None:
    @server.resource("a://{+anything}")
    async def anything(anything: str) -> str:
        return anything

    async with connect(server, NEWEST, principal=SOMEBODY) as client:
        (contents,) = await client.read_resource("a://else")
        assert contents["text"] == "else"
        code, _ = await refusal(lambda: client.read_resource("a://hidden"))
        assert code == -32602


async def test_without_a_principal_nothing_with_scopes_is_there(server: Server) -> None:
    assert server.prompts.get_for(None, "hidden") is None
    assert [item.name for item in server.resources.visible_to(None)] == ["a://open"]
    assert server.scopes == {"admin"}


@pytest.mark.parametrize("add", ["resource", "prompt"])
def test_scopes_are_a_set_of_scopes(add: str) -> None:
    server = Server("x")

    async def function() -> str:
        return ""

    adding: dict[str, Callable[[], Any]] = {
        "resource": lambda: server.add_resource("a://b", function, scopes="admin"),
        "prompt": lambda: server.add_prompt(function, scopes="admin"),
    }
    with pytest.raises(TypeError, match=rf"server.{add}\(scopes\)"):
        adding[add]()
