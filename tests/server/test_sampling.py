"""Sampling: messages in every form, and tools that the client's model uses."""

from typing import Any

import pytest

from mcp_trio import (
    Audio,
    Context,
    EmbeddedResource,
    Image,
    PromptMessage,
    Sample,
    Sampled,
    SamplingMessage,
    Server,
    Text,
    TextContents,
    Tool,
    ToolUse,
    ToolUseResult,
)
from mcp_trio.client.errors import RemoteError
from mcp_trio.protocol.revisions import REVISIONS
from mcp_trio.protocol.types import Implementation, Json
from mcp_trio.server.sampling import Message, read_messages
from tests.support.checked import connect

WITH_TOOLS = ["2025-11-25", "2026-07-28"]
WITHOUT_TOOLS = ["2024-10-07", "2024-11-05", "2025-06-18"]
TEMPERATURES = {"Oslo": 4, "Rome": 22}
LOOK_UP: Json = {
    "name": "look_up",
    "description": "Look up the temperature in a city",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
KINDS = {kind.name: kind for kind in REVISIONS}


def sent(revision: str, messages: Any, **options: Any) -> Json:
    """Return the params of a question in a revision."""
    spoken = KINDS[revision](Implementation("x", "1"))
    question = Sample(messages, max_tokens=10, **options)
    params: Json = spoken.permitted(question.method, question.params(spoken))
    return params


def use(id: str = "u1") -> ToolUse:
    return ToolUse(id, "look_up", {"city": "Oslo"})


# Messages

HELLO = {"role": "user", "content": {"type": "text", "text": "Hello"}}
PICTURE = {"type": "image", "data": "MQ==", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Hello", [HELLO]),
        (["Hello"], [HELLO]),
        ([Text("Hello")], [HELLO]),
        ([PromptMessage("user", Text("Hello"))], [HELLO]),
        ([SamplingMessage("user", "Hello")], [HELLO]),
        ([SamplingMessage("user", Text("Hello"))], [HELLO]),
        ([{"role": "user", "content": "Hello"}], [HELLO]),
        ([HELLO], [HELLO]),
        ([{"type": "text", "text": "Hello"}], [HELLO]),
        ([Image(b"1", "image/png")], [{"role": "user", "content": PICTURE}]),
        ([{"role": "assistant", "content": PICTURE}], [{"role": "assistant", "content": PICTURE}]),
        ([{"role": "user", "content": ["Hello", PICTURE]}], [{"role": "user", "content": [HELLO["content"], PICTURE]}]),
        ([Sampled("assistant", {"type": "text", "text": "Hi", "odd": 1}, "m")], [{"role": "assistant", "content": {"type": "text", "text": "Hi"}}]),
        ([], []),
    ],
)  # fmt: skip
def test_messages_are_given_in_many_forms(given: Any, expected: Any) -> None:
    assert sent("2025-11-25", given)["messages"] == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([5], r"messages\[0\]: expected text, an image, audio, .* got int"),
        (["a", {"text": "b"}], r"messages\[1\]: expected the keys role and content, got \['text'\]"),
        ([{"role": "system", "content": "a"}], r"messages\[0\]: SamplingMessage\(role\): expected"),
        ([{"role": "user"}], r"messages\[0\].content: expected text"),
        ([{"role": "user", "content": {"type": "txt"}}], r"messages\[0\].content.type: expected one of text, image, .* got 'txt'"),
        ([{"role": "user", "content": {"type": "image", "data": "a"}}], r"messages\[0\].content: .*mime_type"),
        ([{"role": "user", "content": ["a", {"type": "image", "data": "a", "mimetype": "b"}]}], r"messages\[0\].content\[1\]: unknown key 'mimetype'; known keys: .*mimeType"),
        ([{"role": "user", "content": "a", "name": "b"}], r"messages\[0\]: unknown key 'name'"),
        ([EmbeddedResource(TextContents("a://b", "c"))], "got EmbeddedResource"),
    ],
)  # fmt: skip
def test_an_invalid_message_is_reported_with_its_place(
    given: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        read_messages(given)


def test_tools_and_their_choice_may_be_plain_values() -> None:
    params = sent("2025-11-25", "Hi", tools=[LOOK_UP], tool_choice="required")
    assert params["tools"] == [LOOK_UP]
    assert params["toolChoice"] == {"mode": "required"}
    tool = Tool("a", input_schema={"type": "object"})
    params = sent("2025-11-25", "Hi", tools=[tool], tool_choice={"mode": "none"})
    assert params["tools"] == [{"name": "a", "inputSchema": {"type": "object"}}]
    assert params["toolChoice"] == {"mode": "none"}
    with pytest.raises(
        ValueError, match="tool_choice: expected auto, required or none"
    ):
        sent("2025-11-25", "Hi", tool_choice="any")
    with pytest.raises(TypeError, match=r"tools\[0\]: unknown key 'input_schema'"):
        sent("2025-11-25", "Hi", tools=[{"name": "a", "input_schema": {}}])
    with pytest.raises(TypeError, match=r"tools\[0\]: expected a Tool or a dict"):
        sent("2025-11-25", "Hi", tools=["a"])


@pytest.mark.parametrize("revision", WITHOUT_TOOLS)
def test_older_revisions_have_one_block_a_message_and_no_tools(revision: str) -> None:
    several: list[Message] = [SamplingMessage("user", [Text("a"), Text("b")])]
    texts = [one["content"]["text"] for one in sent(revision, several)["messages"]]
    assert texts == ["a", "b"]
    with pytest.raises(
        ValueError, match=f"{revision} does not support tools in sampling"
    ):
        sent(revision, "a", tools=[LOOK_UP])
    with pytest.raises(ValueError, match="does not support tools in sampling"):
        sent(revision, [SamplingMessage("assistant", use()), use().result("4")])


def test_results_of_tools_go_out_in_the_revisions_form() -> None:
    messages: list[Message] = [
        "How warm is it?",
        SamplingMessage("assistant", [Text("Let me see."), use("a"), use("b")]),
        [use("a").result("4", structured=4), use("b").result(["x", Audio(b"1", "audio/wav")], is_error=True)],  # type: ignore[list-item]
    ]  # fmt: skip
    results = sent("2025-11-25", messages)["messages"][2]
    assert results["role"] == "user"
    first, second = results["content"]
    assert first == {
        "type": "tool_result",
        "toolUseId": "a",
        "content": [{"type": "text", "text": "4"}],
        "structuredContent": {"result": 4},
        "isError": False,
    }
    assert second["isError"]
    assert [block["type"] for block in second["content"]] == ["text", "audio"]
    newest = sent("2026-07-28", messages)["messages"][2]["content"][0]
    assert newest["structuredContent"] == 4


def test_a_conversation_with_tools_may_consist_of_dicts_only() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look_up", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "toolUseId": "a", "content": [{"type": "text", "text": "4"}, {"type": "resource", "resource": {"uri": "a://b", "text": "c"}}]}]},
    ]  # fmt: skip
    written = sent("2025-11-25", messages)["messages"]
    assert written[1]["content"] == messages[1]["content"]  # type: ignore[index, call-overload]
    embedded = written[2]["content"][0]["content"][1]
    assert embedded == {"type": "resource", "resource": {"uri": "a://b", "text": "c"}}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([SamplingMessage("assistant", use())], "expected the results of the tool uses u1 at the end"),
        ([SamplingMessage("assistant", use()), "and?"], r"messages\[1\]: expected the results .* u1; got none"),
        ([use().result("4")], r"messages\[0\]: expected the results .* none; got u1"),
        ([SamplingMessage("assistant", use()), [use().result("4"), Text("so?")]], r"messages\[1\]: expected tool results only"),
    ],
)  # fmt: skip
def test_each_use_of_a_tool_needs_its_result(messages: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_messages(messages)


# Answers


def test_an_answer_names_the_tools_that_the_model_wants_to_use() -> None:
    wants = {"type": "tool_use", "id": "a", "name": "n", "input": {"x": 1}, "odd": 1}
    answer = Sampled("assistant", [{"type": "text", "text": "Hm."}, wants], "m")
    assert answer.text == "Hm."
    assert answer.tool_uses == [ToolUse("a", "n", {"x": 1})]
    assert answer.message.blocks == [Text("Hm."), ToolUse("a", "n", {"x": 1})]
    assert answer.tool_uses[0].result("1") == ToolUseResult("a", [Text("1")])
    with pytest.raises(ValueError, match=r"\$\.content: .*ToolUse\(input\): expected"):
        Sampled("assistant", {**wants, "input": 5}, "m")


class Model:
    """A client's model: it uses look_up once for each city, then answers."""

    def __init__(self) -> None:
        self.asked: list[Json] = []

    async def __call__(self, method: str, params: Json) -> Json:
        assert method == "sampling/createMessage"
        self.asked.append(params)
        results: Any = params["messages"][-1]["content"]
        if isinstance(results, dict):
            content: Any = [
                {
                    "type": "tool_use",
                    "id": city,
                    "name": "look_up",
                    "input": {"city": city},
                }
                for city in TEMPERATURES
            ]
            return {
                "role": "assistant",
                "content": content,
                "model": "m",
                "stopReason": "toolUse",
            }
        texts = [result["content"][0]["text"] for result in results]
        content = {"type": "text", "text": " and ".join(texts)}
        return {
            "role": "assistant",
            "content": content,
            "model": "m",
            "stopReason": "endTurn",
        }


@pytest.mark.parametrize("revision", WITH_TOOLS)
async def test_a_tool_lets_the_clients_model_use_tools_of_its_own(
    revision: str,
) -> None:
    server = Server("agent")

    @server.tool
    async def warmth(ctx: Context) -> str:
        """Say how warm it is."""
        messages: list[Message] = ["How warm is it in Oslo and Rome?"]
        for _ in range(5):
            answer = await ctx.sample(messages, max_tokens=100, tools=[LOOK_UP])
            if not answer.tool_uses:
                return answer.text
            messages.append(answer)
            messages.append(
                [
                    use.result(f"{TEMPERATURES[use.input['city']]} °C")
                    for use in answer.tool_uses
                ]
            )
        return "no answer"

    model = Model()
    capabilities: Json = {"sampling": {"tools": {}}}
    async with connect(
        server, revision, capabilities=capabilities, answer=model
    ) as client:
        assert (await client.call_tool("warmth")).text == "4 °C and 22 °C"
    assert [len(asked["messages"]) for asked in model.asked] == [1, 3]
    assert model.asked[0]["tools"] == [LOOK_UP]


@pytest.mark.parametrize("revision", WITH_TOOLS)
async def test_a_client_without_tools_learns_what_it_needs(revision: str) -> None:
    server = Server("agent")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Hi", max_tokens=1, tools=[LOOK_UP])).text

    async with connect(server, revision, capabilities={"sampling": {}}) as client:
        if revision == "2025-11-25":
            text = (await client.call_tool("ask")).text
            assert text.endswith("the capability sampling.tools")
            return
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("ask")
    assert caught.value.data == {"requiredCapabilities": {"sampling": {"tools": {}}}}
