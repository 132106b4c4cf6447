"""The examples of the seed documents, each with its own small server."""

from __future__ import annotations

from .playing import SERVERS, Json, Play, Scenario, Talk

REVISION = {
    0: "2025-06-18",
    1: "2025-11-25",
    2: "2024-10-07",
    3: "2024-11-05",
    4: "2025-06-18",
}
WHY = "As the document of seed {} shows it."
WEATHER = {"name": "get_weather", "arguments": {"location": "New York"}}
FIRST: Json = {
    "method": "tools/list",
    "id": 1,
    "params": {"cursor": "optional-cursor-value"},
}
NEXT: Json = {"method": "tools/list", "id": 9, "params": {"cursor": "next-page-cursor"}}
CONTENT = {
    "text": "a text",
    "image": "a picture",
    "audio": "a sound",
    "resource_link": "a link",
}
CONTENT["resource"] = "an embedded resource"


def call(id: int, name: str, /, **arguments: object) -> Json:
    """Return a call of a tool."""
    return {
        "method": "tools/call",
        "id": id,
        "params": {"name": name, "arguments": arguments},
    }


LISTED = "The tools are listed"
CALLED = "The tool is called"
UNKNOWN = "A tool is called that there is not"

# Seed, name -> title, requests.
SHOWN: dict[tuple[int, str], tuple[str, list[Json]]] = {
    **{(seed, "initialize"): ("The capability is declared", []) for seed in REVISION},
    **{(seed, "tools-list"): (LISTED, [FIRST, NEXT]) for seed in (0, 1, 3)},
    (2, "tools-list"): (LISTED, [{"method": "tools/list", "id": 1}]),
    (4, "tools-list"): (LISTED, [{"method": "tools/list", "id": 1}]),
    **{
        (seed, "tools-call"): (
            CALLED,
            [{"method": "tools/call", "id": 2, "params": WEATHER}],
        )
        for seed in (0, 1, 3)
    },
    (2, "tools-call"): (
        CALLED,
        [call(2, "get_weather", location="New York", units="imperial")],
    ),
    (4, "tools-call"): (CALLED, [call(7, "greet", name="Ada")]),
    (4, "tools-call-placeholder"): (UNKNOWN, [call(7, "<tool-name>", **{"…": "…"})]),
    **{
        (seed, "error-unknown-tool"): (UNKNOWN, [call(3, "invalid_tool_name")])
        for seed in (1, 3)
    },
    (1, "error-of-a-tool"): (
        "A tool fails",
        [call(4, "book_trip", departure="2025-08-08")],
    ),
    (1, "structured-content"): (
        "A tool answers with data",
        [call(5, "get_weather_data", location="New York")],
    ),
    (1, "draft-07"): ("A schema says its dialect", [call(2, "use_draft_07"), NEXT]),
    (1, "no-parameters"): (
        "Tools without parameters",
        [call(2, "take_anything", anything=1), call(3, "get_current_time", anything=1)],
    ),
    (2, "error-missing-argument"): (
        "An argument is missing",
        [call(3, "get_weather", units="metric")],
    ),
    (2, "error-unknown-tool"): (UNKNOWN, [call(4, "invalid_tool_name")]),
    (2, "error-of-a-tool"): (
        "A tool finds nothing",
        [call(5, "query_database", query="widgets manufactured in 1972")],
    ),
    (3, "error-of-a-tool"): (
        "A tool fails",
        [call(4, "get_weather", location="Chicago")],
    ),
    **{
        (seed, f"content-{kind.replace('_', '-')}"): (
            f"A tool answers with {what}",
            [call(1, kind)],
        )
        for seed, kinds in {
            0: [*CONTENT],
            1: [*CONTENT],
            3: ["text", "image", "resource"],
        }.items()
        for kind, what in CONTENT.items()
        if kind in kinds
    },
}


def shown(requests: list[Json]) -> Play:
    """Add a scenario that sends the requests one at a time."""

    async def play(talk: Talk) -> None:
        await talk.open()
        for request in requests:
            await talk.say({"jsonrpc": "2.0", "id": request["id"], **request})

    return play


async def grow(talk: Talk) -> None:
    """The list of tools becomes longer."""
    await talk.open()
    await talk.use("grow")


def name_of(seed: int, name: str) -> str:
    return f"seed-{seed:03}-{name}"


SCENARIOS = [
    Scenario(
        name_of(seed, name),
        REVISION[seed],
        title,
        WHY.format(f"{seed:03}"),
        shown(requests),
        server=f"tests/seeds/seed_{seed:03}.py",
    )
    for (seed, name), (title, requests) in SHOWN.items()
] + [
    Scenario(
        name_of(seed, "list-changed"),
        revision,
        "The list of tools changes",
        f"{WHY.format(f'{seed:03}')} Its server has one tool more here, which adds another.",
        grow,
        server=f"{SERVERS}growing.py:seed_{seed:03}",
    )
    for seed, revision in REVISION.items()
]
