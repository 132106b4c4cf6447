"""An agent: it answers questions about a folder of notes with the client's model, which searches and reads them.

    FOLDER=~/notes python -m mcp_trio run examples/agent.py

Without FOLDER it is the sample beside this file. The client's model does the thinking, so the server needs no key for
one; the client has to support sampling with tools. Every call is logged by middleware.
"""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp_trio import (
    Context,
    MiddlewareCall,
    MissingClientCapability,
    Proceed,
    Server,
    Tool,
    ToolAnnotations,
    ToolError,
    ToolUse,
    ToolUseResult,
)

FOLDER = (
    Path(os.environ.get("FOLDER") or Path(__file__).with_name("data") / "notes")
    .expanduser()
    .resolve()
)
MOST_ROUNDS = 6
MOST_CHARACTERS = 20_000
PROMPT = (
    "Answer the question from the notes, and from nothing else. Search them first. Name "
    "the notes that you used."
)
log = logging.getLogger("agent")

if not FOLDER.is_dir():
    sys.exit(f"FOLDER={FOLDER}: expected a folder")
server = Server("agent")


def search(word: str) -> str:
    """Return the names of the notes that contain a word, one on each line."""
    names = [
        name for name, text in notes().items() if word.casefold() in text.casefold()
    ]
    return "\n".join(names) or f"No note contains {word!r}"


def read(name: str) -> str:
    """Return the text of a note."""
    found = notes().get(name)
    if found is None:
        raise ToolError(f"There is no note {name!r}; search names them")
    return found


def notes() -> dict[str, str]:
    """Return the texts of all notes, by name."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_text("utf-8", "replace")[
            :MOST_CHARACTERS
        ]
        for path in sorted(FOLDER.rglob("*.*"))
        if path.is_file() and not path.is_symlink()
    }


def taking(argument: str) -> dict[str, Any]:
    """Return the schema of a tool with one string as its argument."""
    properties = {argument: {"type": "string"}}
    return {"type": "object", "properties": properties, "required": [argument]}


# What the model may use, and the function and the argument behind each.
TOOLS = [
    Tool(
        "search",
        description="Find the notes that contain a word",
        input_schema=taking("word"),
    ),
    Tool("read", description="Read a note", input_schema=taking("name")),
]
FUNCTIONS = {"search": (search, "word"), "read": (read, "name")}


@server.middleware
async def audit(call: MiddlewareCall, proceed: Proceed) -> object:
    """Log who called what, and how long it took."""
    principal = call.context.principal
    began = time.perf_counter()
    try:
        return await proceed(call)
    finally:
        seconds = time.perf_counter() - began
        name = principal.name if principal else "anybody"
        log.info("%s: %s took %.3f s", name, call.name, seconds)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def research(question: str, ctx: Context) -> str:
    """Answer a question from the notes, with the client's own model.

    Args:
        question: What to find out
    """
    messages: list[Any] = [question]
    for number in range(MOST_ROUNDS):
        try:
            answer = await ctx.sample(
                messages, max_tokens=1000, system_prompt=PROMPT, tools=TOOLS
            )
        except MissingClientCapability:
            raise ToolError(
                "This client has no model for tools; use search_notes instead"
            ) from None
        if not answer.tool_uses:
            return answer.text
        names = ", ".join(use.name for use in answer.tool_uses)
        await ctx.progress(number + 1, MOST_ROUNDS, f"The model uses {names}")
        messages += [answer, [result_of(use) for use in answer.tool_uses]]
    raise ToolError(f"There is no answer after {MOST_ROUNDS} rounds")


def result_of(use: ToolUse) -> ToolUseResult:
    """Return the result of a tool that the model wants to use."""
    if use.name not in FUNCTIONS:
        return use.result(f"There is no tool {use.name!r}", is_error=True)
    function, argument = FUNCTIONS[use.name]
    value = use.input.get(argument)
    if not isinstance(value, str):
        return use.result(f"{argument}: expected a string", is_error=True)
    try:
        return use.result(function(value))
    except ToolError as problem:
        return use.result(str(problem), is_error=True)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def search_notes(word: str) -> str:
    """Find the notes that contain a word.

    Args:
        word: The word to look for
    """
    return search(word)


if __name__ == "__main__":
    server.run()
