"""A function asks the client in the middle of its work, in every revision."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest
import trio

from mcp_trio import (
    AskFailed,
    Audio,
    Context,
    Elicit,
    PromptMessage,
    ResourceLink,
    Roots,
    Sample,
    Server,
    Text,
)
from mcp_trio.client.errors import RemoteError
from mcp_trio.server.conversation import PendingQuestion
from mcp_trio.server.sealed_state import seal, unseal
from tests.support.checked import (
    ALL,
    MODERN,
    NEWEST,
    VENDOR,
    Json,
    cancelled,
    connect,
    initialize,
    modern,
    opened,
    raw,
    request,
)
from tests.support.reachable import reachable

R = "2025-11-25"
CALL = {"name": "look", "arguments": {}}
ELICITING = [revision for revision in ALL if revision >= "2025-06-18"]
WITH_ROOTS = [revision for revision in ALL if revision > "2024-10-07"]
URL = ["2025-11-25", NEWEST]
CAPABLE = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
ACCEPT = {"action": "accept", "content": {"seats": 2}}
REPLY = {
    "role": "assistant",
    "content": {"type": "text", "text": "Paris"},
    "model": "m",
}


@dataclass
class Booking:
    seats: int
    window: bool = False


@dataclass
class Remark:
    words: str = ""


class Client:
    """Answers each method, and records the questions."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[tuple[str, Json]] = []
        self._answers = {
            "elicitation": ACCEPT,
            "sampling": REPLY,
            "roots": {"roots": [{"uri": "file:///a"}]},
            **answers,
        }

    async def __call__(self, method: str, params: Json) -> Json:
        self.asked.append((method, params))
        answer: Json = self._answers[method.partition("/")[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer


def make_asking_server(
    secret: str = "the secret of these tests, and no other",
) -> Server:
    server = Server("x", secret=secret)

    @server.tool
    async def book(ctx: Context, city: str = "Paris") -> str:
        answer = await ctx.elicit(f"Seats to {city}?", Booking)
        return f"{answer.action} {answer.content}"

    @server.tool
    async def hear(ctx: Context) -> str:
        return str((await ctx.elicit("Anything else?", Remark)).content)

    @server.tool
    async def visit(ctx: Context) -> str:
        return (
            await ctx.elicit_url("Log in", "https://example.com/login", "login-1")
        ).action

    @server.tool
    async def think(ctx: Context) -> str:
        said = await ctx.sample(
            "The capital of France?",
            max_tokens=10,
            system_prompt="Be short.",
            temperature=0.5,
        )
        return f"{said.role} {said.text} {said.model} {said.stop_reason}"

    @server.tool
    async def look(ctx: Context) -> str:
        return str([(root.uri, root.name) for root in await ctx.roots()])

    @server.tool
    async def all_at_once(ctx: Context) -> str:
        booking, said, roots = await ctx.ask(
            Elicit("Seats?", Booking), Sample("Where?", max_tokens=5), Roots()
        )
        return f"{booking.content.seats} {said.text} {roots[0].uri}"

    return server


async def tool_text(
    revision: str,
    name: str,
    client: Client,
    capabilities: Json | None = None,
    **arguments: Any,
) -> str:
    async with connect(
        make_asking_server(),
        revision,
        capabilities=CAPABLE if capabilities is None else capabilities,
        answer=client,
    ) as connected:
        result = await connected.call_tool(name, arguments)
    return str(result.get("toolResult", result.text))


@pytest.mark.parametrize("revision", ELICITING)
async def test_a_form_is_filled_in_by_the_user(revision: str) -> None:
    client = Client()
    assert (
        await tool_text(revision, "book", client)
        == "accept Booking(seats=2, window=False)"
    )
    ((method, params),) = client.asked
    assert method == "elicitation/create"
    assert params["message"] == "Seats to Paris?"
    assert params["requestedSchema"]["required"] == ["seats"]
    assert params.get("mode", "form") == "form"


@pytest.mark.parametrize("revision", ELICITING)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_does_not_answer(revision: str, action: str) -> None:
    assert (
        await tool_text(revision, "book", Client(elicitation={"action": action}))
        == f"{action} None"
    )


@pytest.mark.parametrize("revision", URL)
async def test_a_user_is_sent_to_a_page(revision: str) -> None:
    client = Client(elicitation={"action": "accept"})
    assert await tool_text(revision, "visit", client) == "accept"
    ((_, params),) = client.asked
    assert (params["mode"], params["url"]) == ("url", "https://example.com/login")
    assert ("elicitationId" in params) == (revision == "2025-11-25")


@pytest.mark.parametrize("revision", ALL)
async def test_a_models_words(revision: str) -> None:
    client = Client()
    assert await tool_text(revision, "think", client) == "assistant Paris m None"
    ((method, params),) = client.asked
    assert method == "sampling/createMessage"
    question = {
        "role": "user",
        "content": {"type": "text", "text": "The capital of France?"},
    }
    wanted = {
        "messages": [question],
        "maxTokens": 10,
        "systemPrompt": "Be short.",
        "temperature": 0.5,
    }
    assert params == wanted


@pytest.mark.parametrize("revision", URL)
async def test_the_texts_of_a_models_message_are_joined(revision: str) -> None:
    pieces = [
        {"type": "text", "text": "Pa"},
        {"type": "image", "data": "", "mimeType": "a/b"},
        {"type": "text", "text": "ris"},
    ]
    said = await tool_text(
        revision,
        "think",
        Client(sampling={**REPLY, "content": pieces, "stopReason": "endTurn"}),
    )
    assert said == "assistant Paris m endTurn"


@pytest.mark.parametrize("revision", WITH_ROOTS)
async def test_the_clients_folders(revision: str) -> None:
    client = Client(
        roots={"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}]}
    )
    assert (
        await tool_text(revision, "look", client)
        == "[('file:///a', None), ('file:///b', 'B')]"
    )


@pytest.mark.parametrize("revision", ELICITING)
async def test_several_questions_in_one_round(revision: str) -> None:
    client = Client()
    assert await tool_text(revision, "all_at_once", client) == "2 Paris file:///a"
    assert [method for method, _ in client.asked] == [
        "elicitation/create",
        "sampling/createMessage",
        "roots/list",
    ]


async def test_several_questions_are_sent_in_one_result() -> None:
    async with raw(make_asking_server(), NEWEST) as client:
        call = modern(
            1, "tools/call", {"name": "all_at_once"}, clientCapabilities=CAPABLE
        )
        (reply,) = await client.exchange(call)
    assert reply["result"]["resultType"] == "input_required"
    assert len(reply["result"]["inputRequests"]) == 3


# What the client cannot do


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("tool", "capability"),
    [("book", "elicitation"), ("think", "sampling"), ("look", "roots")],
)
async def test_a_client_without_the_capability_is_not_asked(
    revision: str, tool: str, capability: str
) -> None:
    client = Client()
    able = {key: value for key, value in CAPABLE.items() if key != capability}
    says = f"This request needs a client with the capability {capability}"
    async with connect(
        make_asking_server(), revision, capabilities=able, answer=client
    ) as connected:
        if revision in MODERN:
            with pytest.raises(RemoteError) as caught:
                await connected.call_tool(tool)
            assert (caught.value.code, caught.value.message) == (-32021, says)
            assert caught.value.data == {"requiredCapabilities": {capability: {}}}
        else:
            result = await connected.call_tool(tool)
            assert result.get("toolResult", result.text) == says
    assert client.asked == []


@pytest.mark.parametrize("revision", URL)
@pytest.mark.parametrize(
    ("offered", "form", "url"),
    [({}, True, False), ({"form": {}}, True, False), ({"url": {}}, False, True)],
)
async def test_the_two_ways_to_elicit_are_offered_apart(
    revision: str, offered: Json, form: bool, url: bool
) -> None:
    for tool, allowed in (("book", form), ("visit", url)):
        client = Client()
        async with connect(
            make_asking_server(),
            revision,
            capabilities={"elicitation": offered},
            answer=client,
        ) as connected:
            try:
                refused = (await connected.call_tool(tool)).is_error
            except RemoteError as error:
                refused = error.code == -32021
        assert (not refused, len(client.asked)) == (allowed, int(allowed))


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
async def test_a_revision_without_elicitation_has_none_whatever_the_client_says(
    revision: str,
) -> None:
    says = await tool_text(revision, "book", Client())
    assert says == "This request needs a client with the capability elicitation"


# What the client answers


@pytest.mark.parametrize(
    "revision", [revision for revision in ALL if revision not in MODERN]
)
async def test_an_error_of_the_client_reaches_the_tool(revision: str) -> None:
    refusal = RemoteError({"code": -1, "message": "User rejected sampling request"})
    says = await tool_text(revision, "think", Client(sampling=refusal))
    assert says.startswith("the client answered sampling/createMessage with an error: ")
    assert "User rejected sampling request" in says


GARBAGE: list[tuple[str, str, Any]] = [
    ("book", "elicitation", {}),
    ("book", "elicitation", {"action": "perhaps"}),
    ("book", "elicitation", {"action": "accept", "content": {"seats": "two"}}),
    ("book", "elicitation", {"action": "accept", "content": {}}),
    ("book", "elicitation", {"action": "accept"}),
    ("book", "elicitation", {"action": "accept", "content": []}),
    ("hear", "elicitation", {"action": "accept", "content": []}),
    ("hear", "elicitation", {"action": "accept", "content": 0}),
    ("hear", "elicitation", {"action": "accept", "content": ""}),
    ("think", "sampling", {**REPLY, "content": "Paris"}),
    ("think", "sampling", {**REPLY, "content": [5]}),
    ("think", "sampling", {**REPLY, "content": {"type": "text"}}),
    ("think", "sampling", {}),
    ("think", "sampling", {"role": 5, "content": {}, "model": "m"}),
    ("look", "roots", {"roots": [5]}),
    ("look", "roots", {}),
    ("look", "roots", 5),
    ("look", "roots", None),
]


@pytest.mark.parametrize("revision", [R, NEWEST])
@pytest.mark.parametrize(("tool", "capability", "answer"), GARBAGE)
async def test_a_garbage_answer_is_an_error_that_says_so(
    revision: str, tool: str, capability: str, answer: Any
) -> None:
    async with connect(
        make_asking_server(),
        revision,
        capabilities=CAPABLE,
        answer=Client(**{capability: answer}),
    ) as connected:
        if revision in MODERN:
            with pytest.raises(RemoteError) as caught:
                await connected.call_tool(tool)
            assert caught.value.code == -32602
            assert "$.params.inputResponses" in caught.value.message
        else:
            result = await connected.call_tool(tool)
            assert "is unusable" in result.text


@pytest.mark.parametrize("revision", [R, NEWEST])
@pytest.mark.parametrize(
    "content",
    ["Paris", 5, None, [5], {"type": "text"}, [{"type": "text", "text": 5}]],
    ids=repr,
)
async def test_the_content_of_a_sample_may_be_anything_without_harm(
    revision: str, content: Any
) -> None:
    async with connect(
        make_asking_server(),
        revision,
        capabilities=CAPABLE,
        answer=Client(sampling={**REPLY, "content": content}),
    ) as connected:
        try:
            says = (await connected.call_tool("think")).text
        except RemoteError as error:
            says = error.message
    assert says


async def test_a_tool_may_catch_that_asking_failed() -> None:
    server = Server("x")

    @server.tool
    async def look(ctx: Context) -> str:
        try:
            return str(await ctx.roots())
        except AskFailed:
            return "no roots"

    refusal = Client(roots=RemoteError({"code": -1, "message": "no"}))
    async with connect(server, R, capabilities=CAPABLE, answer=refusal) as client:
        assert (await client.call_tool("look")).text == "no roots"


async def test_an_answer_to_nothing_and_a_second_answer_are_passed_over() -> None:
    async with raw(make_asking_server()) as client:
        await client.open(R)
        assert (
            await client.exchange({"jsonrpc": "2.0", "id": "ask-0", "result": {}}) == []
        )
        assert await client.exchange({"jsonrpc": "2.0", "id": 0, "result": {}}) == []


async def test_a_message_to_sample_from_is_text_image_or_audio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("x")

    @server.tool
    async def think(ctx: Context, sound: bool) -> str:
        said = Audio(b"1", "audio/wav") if sound else ResourceLink("a://b", "b")
        return (await ctx.sample([PromptMessage("user", said)], max_tokens=1)).text

    async with connect(
        server, "2024-11-05", capabilities=CAPABLE, answer=Client()
    ) as client:
        assert (await client.call_tool("think", {"sound": True})).text == "Paris"
        assert (await client.call_tool("think", {"sound": False})).is_error
    assert (
        "expected text, an image, audio, a ToolUse or a ToolUseResult, got ResourceLink"
        in caplog.text
    )


# Running again


@pytest.mark.parametrize("revision", ELICITING)
async def test_a_step_is_done_once_though_the_function_runs_again(
    revision: str,
) -> None:
    server, done = Server("x"), []

    @server.tool
    async def pay(ctx: Context) -> str:
        async def charge() -> dict[str, int]:
            done.append("charged")
            return {"receipt": len(done)}

        receipt = await ctx.once("charge", charge)
        first = await ctx.elicit("First?", Booking)
        second = await ctx.elicit("Second?", Booking)
        return f"{receipt} {first.content.seats} {second.content.seats}"  # type: ignore[union-attr]

    client = Client()
    async with connect(
        server, revision, capabilities=CAPABLE, answer=client
    ) as connected:
        assert (await connected.call_tool("pay")).text == "{'receipt': 1} 2 2"
    assert done == ["charged"]
    assert [params["message"] for _, params in client.asked] == ["First?", "Second?"]


@pytest.mark.parametrize("revision", ELICITING)
async def test_prompts_and_resources_ask_too(revision: str) -> None:
    server = Server("x")

    @server.prompt
    async def prompt(ctx: Context) -> str:
        return str((await ctx.roots())[0].uri)

    @server.resource("a://{id}")
    async def read(id: str, ctx: Context) -> str:
        return id + (await ctx.roots())[0].uri

    async with connect(
        server, revision, capabilities=CAPABLE, answer=Client()
    ) as client:
        result = await client.get_prompt("prompt")
        assert result["messages"][0]["content"]["text"] == "file:///a"
        read_result = await client.request("resources/read", {"uri": "a://1"})
        assert read_result["contents"][0]["text"] == "1file:///a"


@pytest.mark.parametrize("revision", ELICITING)
async def test_questions_from_within_a_nursery_are_answered(revision: str) -> None:
    server = Server("x")

    @server.tool
    async def both(ctx: Context) -> str:
        found: list[Any] = []

        async def ask(question: Any) -> None:
            found.extend(await ctx.ask(question))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, Roots())
            nursery.start_soon(ask, Roots())
        return str(len(found))

    async with connect(
        server, revision, capabilities=CAPABLE, answer=Client()
    ) as client:
        assert (await client.call_tool("both")).text == "2"


async def ask_for_a_booking(client: Any, id: Any = 1, **params: Any) -> Any:
    body = {"name": "book", **params}
    replies = await client.exchange(
        modern(id, "tools/call", body, clientCapabilities=CAPABLE)
    )
    return replies[0]


async def first_round(client: Any) -> tuple[str, str]:
    """Return the state and the key of the first question."""
    result = (await ask_for_a_booking(client))["result"]
    (key,) = result["inputRequests"]
    return result["requestState"], key


def resealed(server: Server, state: str, **changes: Any) -> str:
    content = json.loads(unseal(server.environment.secret, state))
    return seal(server.environment.secret, msgspec.json.encode({**content, **changes}))


def flipped(state: str) -> str:
    plain = bytearray(urlsafe_b64decode(state))
    plain[40] ^= 1
    return urlsafe_b64encode(plain).decode()


async def test_a_state_of_another_process_is_logged_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with raw(make_asking_server(), NEWEST) as client:
        state, key = await first_round(client)
    async with raw(make_asking_server("2" * 32), NEWEST) as client:
        for _ in range(3):
            await ask_for_a_booking(
                client, requestState=state, inputResponses={key: ACCEPT}
            )
    assert caplog.text.count("set MCP_TRIO_SECRET to the same value") == 1


@pytest.mark.parametrize(
    "how",
    [
        "",
        "x",
        "é",
        "AAAA",
        "flipped",
        "cut",
        "longer",
        "of another server",
        "expired",
        "no state",
    ],
)
async def test_a_state_that_was_not_given_is_refused(how: str) -> None:
    server = make_asking_server()
    async with raw(server, NEWEST) as client:
        state, key = await first_round(client)
        bad = {
            "flipped": flipped(state),
            "cut": state[:-8],
            "longer": state + state,
            "of another server": seal(
                b"another", unseal(server.environment.secret, state)
            ),
            "expired": resealed(server, state, expires=1.0),
            "no state": seal(server.environment.secret, b"{}"),
        }.get(how, how)
        refused = await ask_for_a_booking(
            client, requestState=bad, inputResponses={key: ACCEPT}
        )
        assert refused["error"]["code"] == -32602
        assert "$.params.requestState" in refused["error"]["message"]
        good = await ask_for_a_booking(
            client, requestState=state, inputResponses={key: ACCEPT}
        )
    assert (
        good["result"]["content"][0]["text"] == "accept Booking(seats=2, window=False)"
    )


@pytest.mark.parametrize(
    "params",
    [
        {"arguments": {"city": "Rome"}},
        {"name": "look"},
        {"arguments": {"city": "Paris"}},
    ],
)
async def test_a_state_belongs_to_the_request_that_it_was_given_for(
    params: Json,
) -> None:
    async with raw(make_asking_server(), NEWEST) as client:
        state, key = await first_round(client)
        refused = await ask_for_a_booking(
            client, requestState=state, inputResponses={key: ACCEPT}, **params
        )
    assert refused["error"]["code"] == -32602
    assert "belongs to another request" in refused["error"]["message"]


async def test_the_same_arguments_in_another_order_are_the_same_request() -> None:
    server = Server("x")

    @server.tool
    async def look(ctx: Context, a: int, b: int) -> str:
        return str(len(await ctx.roots()))

    async with raw(server, NEWEST) as client:
        one = {"name": "look", "arguments": {"a": 1, "b": 2}}
        (reply,) = await client.exchange(
            modern(1, "tools/call", one, clientCapabilities=CAPABLE)
        )
        (key,) = reply["result"]["inputRequests"]
        again = {
            "name": "look",
            "arguments": {"b": 2, "a": 1},
            "requestState": reply["result"]["requestState"],
            "inputResponses": {key: {"roots": []}},
        }
        (reply,) = await client.exchange(
            modern(2, "tools/call", again, clientCapabilities=CAPABLE)
        )
    assert reply["result"]["content"][0]["text"] == "0"


async def test_another_process_with_the_same_secret_goes_on() -> None:
    async with raw(make_asking_server(), NEWEST) as client:
        state, key = await first_round(client)
    async with raw(make_asking_server(), NEWEST) as client:
        good = await ask_for_a_booking(
            client, requestState=state, inputResponses={key: ACCEPT}
        )
    assert good["result"]["content"][0]["text"].startswith("accept")


async def test_a_client_that_returns_without_the_answer_is_asked_again() -> None:
    async with raw(make_asking_server(), NEWEST) as client:
        state, key = await first_round(client)
        for responses in ({}, {"other": ACCEPT}):
            again = await ask_for_a_booking(
                client, requestState=state, inputResponses=responses
            )
            assert list(again["result"]["inputRequests"]) == [key]


@pytest.mark.parametrize("responses", [5, [], None])
async def test_answers_other_than_an_object_are_refused(responses: Any) -> None:
    async with raw(make_asking_server(), NEWEST) as client:
        reply = await ask_for_a_booking(client, inputResponses=responses)
    assert reply["error"]["code"] == -32602
    assert "$.params.inputResponses" in reply["error"]["message"]


async def test_answers_to_other_questions_are_ignored() -> None:
    async with raw(make_asking_server(), NEWEST) as client:
        reply = await ask_for_a_booking(client, inputResponses={"a": 5})
    assert reply["result"]["resultType"] == "input_required"


async def test_an_old_answer_does_not_pass_for_one_to_another_question() -> None:
    server, messages = Server("x"), ["Seats?", "Delete everything?"]

    @server.tool
    async def book(ctx: Context) -> str:
        await ctx.elicit(messages[0], Booking)
        return "answered"

    async with raw(server, NEWEST) as client:
        state, key = await first_round(client)
        del messages[0]
        reply = await ask_for_a_booking(
            client, requestState=state, inputResponses={key: ACCEPT}
        )
    assert reply["result"]["resultType"] == "input_required"


# Forms


@dataclass
class Every:
    text: str
    number: float
    count: int
    yes: bool
    one: Literal["a", "b"]
    maybe: str | None = None


@dataclass
class WithList:
    some: list[Literal["a", "b"]]


@dataclass
class Nested:
    inner: Booking


def asking_by(form: Any) -> Server:
    server = Server("x")

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("?", form)).content)

    return server


@pytest.mark.parametrize("revision", ELICITING)
async def test_a_form_has_every_kind_of_field(revision: str) -> None:
    content = {"text": "t", "number": 1, "count": 2, "yes": True, "one": "a"}
    client = Client(elicitation={"action": "accept", "content": content})
    async with connect(
        asking_by(Every), revision, capabilities=CAPABLE, answer=client
    ) as connected:
        says = (await connected.call_tool("ask")).text
    assert says == "Every(text='t', number=1.0, count=2, yes=True, one='a', maybe=None)"


@pytest.mark.parametrize("revision", ELICITING)
async def test_several_choices_are_a_list_in_revisions_that_have_them(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(elicitation={"action": "accept", "content": {"some": ["a"]}})
    async with connect(
        asking_by(WithList), revision, capabilities=CAPABLE, answer=client
    ) as connected:
        result = await connected.call_tool("ask")
    if revision == "2025-06-18":
        assert result.is_error
        assert "this protocol revision does not support lists in forms" in caplog.text
    else:
        assert result.text == "WithList(some=['a'])"


@pytest.mark.parametrize("form", [Nested, int, list[str], dict[str, int]])
async def test_a_class_that_is_not_a_form_is_an_error_of_the_tool(
    form: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(
        asking_by(form), R, capabilities=CAPABLE, answer=Client()
    ) as client:
        assert (await client.call_tool("ask")).text.startswith("Internal error")
    assert "form" in caplog.text


async def test_prompt_messages_with_text_can_be_sampled() -> None:
    server = Server("x")

    @server.tool
    async def think(ctx: Context) -> str:
        messages = [
            PromptMessage("user", Text("a")),
            PromptMessage("assistant", Text("b")),
        ]
        return (await ctx.sample(messages, max_tokens=1)).text

    client = Client()
    async with connect(
        server, NEWEST, capabilities=CAPABLE, answer=client
    ) as connected:
        assert (await connected.call_tool("think")).text == "Paris"
    assert [message["role"] for message in client.asked[0][1]["messages"]] == [
        "user",
        "assistant",
    ]


async def test_the_vendors_keys_do_not_reach_a_legacy_client() -> None:
    async with opened(make_asking_server(), R) as client:
        replies = await client.exchange(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "book"},
            }
        )
    assert VENDOR not in json.dumps(replies)


@pytest.mark.parametrize("ending", ["an answer", "an error", "a cancellation"])
async def test_a_question_is_forgotten_when_it_has_ended(ending: str) -> None:
    server = Server("x")
    conversations = set()
    server.on_message = lambda conversation, sender, message: conversations.add(
        conversation
    )

    @server.tool
    async def look(ctx: Context) -> str:
        return str(await ctx.roots())

    async with raw(server, R) as client:
        await client.exchange(initialize(R, capabilities={"roots": {}}))
        (question,) = await client.exchange(request(1, "tools/call", CALL))
        (conversation,) = conversations
        assert len(reachable(conversation, PendingQuestion)) == 1
        answer: Json = {"jsonrpc": "2.0", "id": question["id"]}
        if ending == "an answer":
            answer["result"] = {"roots": []}
        elif ending == "an error":
            answer["error"] = {"code": -32601, "message": "no"}
        else:
            answer = cancelled(1)
        await client.exchange(answer)
        assert reachable(conversation, PendingQuestion) == []
