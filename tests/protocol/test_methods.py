"""Every method of every revision answers in that revision's form."""

from typing import Any

import pytest

from mcp_trio import Image, PromptMessage, ResourceLink, Server, Text
from mcp_trio.client.errors import RemoteError
from mcp_trio.protocol.revisions import REVISIONS
from tests.support.checked import ALL, OPENING, asking, connect, opened

BY_NAME = {revision.name: revision for revision in REVISIONS}
EVERY_METHOD = sorted(
    {method for revision in REVISIONS for method in revision.requests}
)
PROMPT = {"type": "ref/prompt", "name": "greet"}

CASES: dict[
    str, tuple[dict[str, Any], str | None]
] = {  # method -> params, and a key that its result has
    "ping": ({}, None),
    "server/discover": ({}, "supportedVersions"),
    "tools/list": ({}, "tools"),
    "tools/call": ({"name": "add", "arguments": {"a": 1, "b": 2}}, None),
    "resources/list": ({}, "resources"),
    "resources/templates/list": ({}, "resourceTemplates"),
    "resources/read": ({"uri": "notes://1"}, "contents"),
    "resources/subscribe": ({"uri": "notes://1"}, None),
    "resources/unsubscribe": ({"uri": "notes://1"}, None),
    "prompts/list": ({}, "prompts"),
    "prompts/get": ({"name": "greet", "arguments": {"who": "Ada"}}, "messages"),
    "logging/setLevel": ({"level": "warning"}, None),
    "completion/complete": (
        {"ref": PROMPT, "argument": {"name": "who", "value": "A"}},
        "completion",
    ),
}
ELSEWHERE = {
    "initialize": "protocol/test_initialize.py",
    "subscriptions/listen": "server/test_subscriptions.py",
}
ALLOWED = [
    (name, method)
    for name in ALL
    for method in sorted(BY_NAME[name].requests)
    if method in CASES
]
# An `initialize` opens a session for what follows it, whatever else was said before: it
# is foreign to none.
FOREIGN = [
    (name, method)
    for name in ALL
    for method in EVERY_METHOD
    if method not in {"initialize", *BY_NAME[name].requests}
]


def make_server_of_everything() -> Server:
    server = Server(
        "everything", "1.0", title="Everything", instructions="Ask for anything."
    )

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(title="Look", meta={"example.com/kind": "picture"})
    async def look() -> list[Any]:
        return [Image(b"\x89PNG", "image/png"), ResourceLink("notes://1", "first")]

    @server.resource("notes://1", title="First", description="The first note.", size=5)
    async def first() -> str:
        return "hello"

    @server.resource("notes://by/{name}")
    async def by_name(name: str) -> bytes:
        return name.encode()

    @server.prompt(title="Greeting")
    async def greet(who: str) -> list[PromptMessage]:
        """Greet somebody."""
        return [
            PromptMessage("user", Text(f"Greet {who}.")),
            PromptMessage("assistant", Image("eA==", "image/png")),
        ]

    @server.complete("greet", "who")
    async def names(typed: str) -> list[str]:
        return [name for name in ("Ada", "Alan", "Grace") if name.startswith(typed)]

    return server


@pytest.mark.parametrize(("revision", "method"), ALLOWED)
async def test_a_method_answers_in_its_revision(revision: str, method: str) -> None:
    params, key = CASES[method]
    async with connect(make_server_of_everything(), revision) as client:
        result = await client.request(method, params)
    assert key is None or key in result


@pytest.mark.parametrize(("revision", "method"), FOREIGN)
async def test_a_method_of_another_revision_is_not_found(
    revision: str, method: str
) -> None:
    async with connect(make_server_of_everything(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.request(method, CASES.get(method, ({}, None))[0])
    assert (caught.value.code, caught.value.message) == (
        -32601,
        f"Method not found: {method}",
    )


@pytest.mark.parametrize("revision", ALL)
async def test_an_unknown_method_is_not_found_whatever_its_params(
    revision: str,
) -> None:
    async with opened(make_server_of_everything(), revision) as client:
        for params in ({}, {"cursor": 5}):
            (reply,) = await client.exchange(
                asking(revision, 1, "tools/destroy", params)
            )
            assert reply["error"]["code"] == -32601


@pytest.mark.parametrize("revision", OPENING)
async def test_unknown_notifications_are_passed_over(revision: str) -> None:
    async with opened(make_server_of_everything(), revision) as client:
        assert (
            await client.exchange(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/strange",
                    "params": {"a": 1},
                }
            )
            == []
        )


@pytest.mark.parametrize("revision", ALL)
async def test_a_notification_sent_as_a_request_is_not_found(revision: str) -> None:
    params = {"requestId": 1, "progressToken": 1, "progress": 1}
    for method in sorted(set().union(*(one.notifications for one in REVISIONS))):
        async with opened(make_server_of_everything(), revision) as client:
            (reply,) = await client.exchange(asking(revision, 1, method, params))
            assert reply["error"]["code"] == -32601


@pytest.mark.parametrize("revision", ALL)
async def test_a_request_sent_as_a_notification_is_passed_over(revision: str) -> None:
    async with opened(make_server_of_everything(), revision) as client:
        for method in sorted(EVERY_METHOD):
            message = asking(revision, 1, method, CASES.get(method, ({}, None))[0])
            del message["id"]
            assert await client.exchange(message) == []


def test_every_method_in_the_tables_has_a_case() -> None:
    assert set(EVERY_METHOD) == CASES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("revision", ALL)
async def test_what_a_server_does_not_offer_is_not_found(revision: str) -> None:
    async with connect(Server("bare"), revision) as client:
        for method, params in (
            ("resources/list", {}),
            ("prompts/list", {}),
            ("prompts/get", {"name": "x"}),
        ):
            with pytest.raises(RemoteError) as caught:
                await client.request(method, params)
            assert caught.value.code == -32601
        assert (await client.request("tools/list"))["tools"] == []


@pytest.mark.parametrize("revision", ALL)
async def test_unknown_names_are_refused(revision: str) -> None:
    not_found = -32002 if revision in OPENING else -32602
    ref = {"type": "ref/prompt", "name": "nothing"}
    cases: list[tuple[str, Any, int]] = [
        ("tools/call", {"name": "nothing"}, -32602),
        ("prompts/get", {"name": "nothing"}, -32602),
        ("resources/read", {"uri": "notes://none"}, not_found),
        ("resources/read", {"uri": "other://1"}, not_found),
        (
            "completion/complete",
            {"ref": ref, "argument": {"name": "a", "value": ""}},
            -32602,
        ),
    ]
    if revision in OPENING:
        cases.append(("resources/subscribe", {"uri": "notes://none"}, not_found))
    async with connect(make_server_of_everything(), revision) as client:
        for method, params, code in cases:
            with pytest.raises(RemoteError) as caught:
                await client.request(method, params)
            assert caught.value.code == code, method


async def test_the_first_revision_lists_templates_with_the_resources() -> None:
    async with connect(make_server_of_everything(), "2024-10-07") as client:
        result = await client.request("resources/list")
    assert [item["uriTemplate"] for item in result["resourceTemplates"]] == [
        "notes://by/{name}"
    ]
    assert [item["uri"] for item in result["resources"]] == ["notes://1"]


@pytest.mark.parametrize("revision", ALL)
async def test_a_tool_is_listed_with_the_fields_of_the_revision(revision: str) -> None:
    async with connect(make_server_of_everything(), revision) as client:
        add, look = await client.list_tools()
    assert add["inputSchema"]["required"] == ["a", "b"]
    assert (
        ("title" in look)
        == ("_meta" in look)
        == ("outputSchema" in add)
        == (revision >= "2025-06-18")
    )


async def test_a_typed_template_variable_is_decoded() -> None:
    server = Server("x")

    @server.resource("notes://by/{name}")
    async def by_name(name: str) -> str:
        return name

    async with connect(server) as client:
        (contents,) = await client.read_resource("notes://by/a%20b%C3%A9")
    assert contents["text"] == "a bé"
    assert contents["uri"] == "notes://by/a%20b%C3%A9"
