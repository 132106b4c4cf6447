"""The server asks questions, and clients listen, with and without sessions."""

from __future__ import annotations

from .methods import CHANGES, QUESTIONS, SAID, having
from .playing import ALL, LATEST, MODERN, NEWEST, OPENING, Scenarios, Talk, cancelled

ASKING = having("server_requests", "elicitation/create")
SCENARIOS = Scenarios()
add = SCENARIOS.add


# Questions, with and without sessions


@add(ASKING)
async def asking_the_demo(talk: Talk) -> None:
    """The demo server asks where to travel
    A form with two fields."""
    await talk.open({"elicitation": {}})
    answer = {"action": "accept", "content": {"city": "Nairobi", "days": 5}}
    await talk.converse(talk.call("plan_trip"), {"elicitation/create": answer})


@add(ASKING, server=QUESTIONS)
async def asking_several_at_once(talk: Talk) -> None:
    """A tool asks the user, the model and the client
    One after the other where questions travel; in one result where they do not."""
    await talk.open({"elicitation": {}, "sampling": {}, "roots": {}})
    answers = {
        "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
        "sampling/createMessage": SAID,
        "roots/list": {"roots": [{"uri": "file:///home"}]},
    }
    await talk.converse(talk.call("plan"), answers)


@add(ASKING, server=QUESTIONS)
async def asking_twice(talk: Talk) -> None:
    """A tool asks again after the first answer
    With a step between that is done once, though the function may run three times."""
    await talk.open({"elicitation": {}})
    rounds = [
        {"elicitation/create": {"action": "accept", "content": {"name": name}}}
        for name in ("Ada", "Grace")
    ]
    await talk.converse(talk.call("register"), *rounds)


@add(ASKING, server=QUESTIONS)
async def asking_in_vain(talk: Talk) -> None:
    """Answers that are none
    What was entered does not fit the form; then the action is unknown."""
    await talk.open({"elicitation": {}})
    for answer in (
        {"action": "accept", "content": {"seats": "two"}},
        {"action": "perhaps"},
    ):
        await talk.converse(talk.call("book"), {"elicitation/create": answer})


@add(having("server_requests", "sampling/createMessage", OPENING), server=QUESTIONS)
async def asking_is_declined(talk: Talk) -> None:
    """The client answers a question with an error
    The tool has failed, and the session goes on."""
    await talk.open({"sampling": {}})
    declined = {"error": {"code": -1, "message": "User rejected sampling request"}}
    await talk.converse(talk.call("think"), {"sampling/createMessage": declined})
    await talk.ask("ping")


@add(ALL, server=QUESTIONS)
async def asking_who_cannot_answer(talk: Talk) -> None:
    """A tool asks a client that has not offered it
    No question goes out; the error says what is missing."""
    await talk.open()
    await talk.use("think")
    await talk.use("book")


@add([LATEST, NEWEST], server=QUESTIONS)
async def asking_by_address(talk: Talk) -> None:
    """The user is sent to a page
    Then a tool refuses to go on before that has happened, with an error that one of the
    two revisions has for it."""
    await talk.open({"elicitation": {"url": {}}})
    await talk.converse(
        talk.call("visit"), {"elicitation/create": {"action": "decline"}}
    )
    await talk.use("pay")
    await talk.use("book")


@add([LATEST, NEWEST], server=QUESTIONS)
async def asking_with_tools(talk: Talk) -> None:
    """The client's model may call a tool
    Which only clients can that say so."""
    used = {"type": "tool_use", "id": "call-1", "name": "clock", "input": {}}
    said = {
        "role": "assistant",
        "content": [used],
        "model": "small",
        "stopReason": "toolUse",
    }
    await talk.open({"sampling": {"tools": {}}})
    await talk.converse(talk.call("think_with_tools"), {"sampling/createMessage": said})


@add(MODERN, server=QUESTIONS)
async def asking_in_prompts_and_resources(talk: Talk) -> None:
    """A prompt and a resource ask before they answer
    By the same two rounds as a tool."""
    await talk.open({"elicitation": {}})
    answers = {"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}}
    await talk.converse(talk.request("prompts/get", {"name": "introduce"}), answers)
    await talk.converse(talk.request("resources/read", {"uri": "people://7"}), answers)


# Subscriptions, in the newest revision


@add(MODERN, server=CHANGES, paced=True)
async def listening_twice(talk: Talk) -> None:
    """One client listens to two things
    Each notification says to which of the two it belongs."""
    await talk.open()
    for id, kind in (("tools", "toolsListChanged"), ("prompts", "promptsListChanged")):
        await talk.ask("subscriptions/listen", {"notifications": {kind: True}}, id=id)
    await talk.use("add_tool", {"name": "x"})
    await talk.use("add_prompt", {"name": "x"})
    await talk.say(cancelled("tools"))
    await talk.use("remove_tool", {"name": "x"})
    await talk.say(cancelled("prompts"))
