"""The server for the conformance suite, called in this process."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_trio.client.errors import RemoteError
from mcp_trio.testing import connect
from tests.conformance.everything import server

OLDER, NEWEST = "2025-11-25", "2026-07-28"
CAPABILITIES: dict[str, Any] = {
    "sampling": {},
    "elicitation": {},
    "roots": {"listChanged": True},
}
FORM = {
    "name": "Alice",
    "color": "blue",
    "ok": True,
    "context": "a test",
    "response": "fine",
}


async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What the suite's client answers."""
    if method == "sampling/createMessage":
        return {
            "role": "assistant",
            "content": {"type": "text", "text": "Paris"},
            "model": "m",
        }
    if method == "roots/list":
        return {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}
    wanted = params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {key: FORM[key] for key in wanted}}


@pytest.mark.parametrize("revision", [OLDER, NEWEST])
async def test_every_tool_that_asks_gets_its_answers(revision: str) -> None:
    async with connect(
        server, revision, capabilities=CAPABILITIES, answer=answer
    ) as client:
        assert (
            await client.call_tool("test_input_required_result_elicitation")
        ).text == "Hello, Alice!"
        assert (
            await client.call_tool("test_input_required_result_sampling")
        ).text == "Paris"
        assert (
            await client.call_tool("test_input_required_result_list_roots")
        ).text == "Roots: file:///test/root"
        assert (
            "state-ok"
            in (await client.call_tool("test_input_required_result_request_state")).text
        )
        assert (
            "1 roots"
            in (
                await client.call_tool("test_input_required_result_multiple_inputs")
            ).text
        )
        assert (
            "blue"
            in (await client.call_tool("test_input_required_result_multi_round")).text
        )
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert prompt["messages"][0]["content"]["text"] == "Use this context: a test"


async def test_a_first_call_that_brings_the_answer_already_is_complete() -> None:
    brought = {
        "user_name": {"action": "accept", "content": {"name": "Alice"}},
        "unknown": {"action": "cancel"},
    }
    params = {
        "name": "test_input_required_result_elicitation",
        "arguments": {},
        "inputResponses": brought,
    }
    async with connect(server, NEWEST, capabilities=CAPABILITIES) as client:
        result = await client.request("tools/call", params)
        assert result["content"][0]["text"] == "Hello, Alice!"


async def test_a_state_with_something_appended_is_refused() -> None:
    params = {"name": "test_input_required_result_tampered_state", "arguments": {}}
    async with connect(server, NEWEST, capabilities=CAPABILITIES) as client:
        asked = await client.finish(client.begin("tools/call", params))
        again = {
            "inputResponses": {},
            "requestState": asked["requestState"] + "-TAMPERED",
        }
        with pytest.raises(RemoteError, match="requestState"):
            await client.finish(client.begin("tools/call", {**params, **again}))


async def test_only_what_the_client_can_do_is_asked() -> None:
    params = {"name": "test_input_required_result_capabilities", "arguments": {}}
    async with connect(server, NEWEST, capabilities={"sampling": {}}) as client:
        asked = await client.finish(client.begin("tools/call", params))
        assert [request["method"] for request in asked["inputRequests"].values()] == [
            "sampling/createMessage"
        ]


async def test_a_form_carries_its_choices_with_their_titles() -> None:
    forms: list[dict[str, Any]] = []

    async def choose(method: str, params: dict[str, Any]) -> dict[str, Any]:
        forms.append(params["requestedSchema"]["properties"])
        return {"action": "decline"}

    async with connect(
        server, OLDER, capabilities=CAPABILITIES, answer=choose
    ) as client:
        await client.call_tool("test_elicitation_sep1330_enums")
    (form,) = forms
    assert form["untitledSingle"] == {
        "type": "string",
        "enum": ["option1", "option2", "option3"],
    }
    assert [choice["title"] for choice in form["titledSingle"]["oneOf"]] == [
        "First Option",
        "Second Option",
        "Third Option",
    ]
    assert form["legacyEnum"]["enumNames"] == [
        "Option One",
        "Option Two",
        "Option Three",
    ]
    assert form["untitledMulti"]["items"] == {
        "type": "string",
        "enum": ["option1", "option2", "option3"],
    }
    assert form["titledMulti"]["items"] == {"anyOf": form["titledSingle"]["oneOf"]}


async def test_the_content_is_what_the_suite_looks_for() -> None:
    async with connect(server, OLDER) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names[0] == "test_simple_text"
        assert (await client.call_tool("test_image_content"))["content"][0][
            "mimeType"
        ] == "image/png"
        assert (await client.call_tool("test_audio_content"))["content"][0][
            "mimeType"
        ] == "audio/wav"
        mixed = await client.call_tool("test_multiple_content_types")
        assert [item["type"] for item in mixed["content"]] == [
            "text",
            "image",
            "resource",
        ]
        assert (await client.call_tool("test_error_handling")).is_error
        assert (
            "test://template/123/data"
            in (await client.read_resource("test://template/123/data"))[0]["uri"]
        )


async def test_schemas_written_by_hand_are_listed_as_they_are() -> None:
    async with connect(server, OLDER) as client:
        tools = {
            tool["name"]: tool["inputSchema"] for tool in await client.list_tools()
        }
        hand_written = tools["json_schema_2020_12_tool"]
        assert {
            "$schema",
            "$defs",
            "allOf",
            "if",
            "then",
            "else",
            "additionalProperties",
        } <= set(hand_written)
        assert hand_written["$defs"]["address"]["$anchor"] == "addressDef"
        assert (
            tools["test_x_mcp_header"]["properties"]["region"]["x-mcp-header"]
            == "Region"
        )
        called = await client.call_tool(
            "json_schema_2020_12_tool", {"name": "Ada", "email": "ada@example.org"}
        )
        assert called.text == "Called with ['email', 'name']."


@pytest.mark.parametrize("kind", ["tool", "prompt"])
async def test_a_change_of_a_list_is_announced(kind: str) -> None:
    async with connect(server, OLDER) as client:
        before = await client.list_tools(), await client.list_prompts()
        await client.call_tool(f"test_trigger_{kind}_change")
        await client.hear(f"notifications/{kind}s/list_changed")
        assert (await client.list_tools(), await client.list_prompts()) == before


async def test_notifications_before_the_result_arrive() -> None:
    async with connect(server, OLDER) as client:
        await client.call_tool("test_tool_with_logging")
        assert len(await client.hear("notifications/message", 3)) == 3
        await client.call_tool("test_tool_with_progress", meta={"progressToken": "p"})
        told = await client.hear("notifications/progress", 3)
        assert [message["params"]["progress"] for message in told] == [0, 50, 100]
