"""Print the results of commands, and let the user fill in forms."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ..client.errors import RemoteError
from ..load_spec import UsageError
from ..protocol.errors import MethodNotFound
from ..protocol.types import Json
from .arguments import read_value
from .input_schema import InputSchema

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Shows the progress, the total and the status message. The numbers are None if they are
# not known.
ShowProgress = Callable[[float | None, float | None, str], None]


def as_json(value: Any) -> str:
    """Return JSON that is easy to read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def in_color() -> bool:
    """Return whether to print in color.

    This is true at a terminal or if FORCE_COLOR is set, unless NO_COLOR is set.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def _fraction(done: float | None, total: float | None) -> str:
    if done is None:
        return ""
    return f"{done:.4g}" if total is None else f"{done:.4g}/{total:.4g}"


@contextmanager
def progress_bar() -> Iterator[ShowProgress]:
    """Show a progress bar, and remove it at the end.

    It is only shown if standard error is a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    progress = Progress(
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True, force_terminal=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with progress:
        task = progress.add_task("", total=None)

        def show(done: float | None, total: float | None, what: str) -> None:
            text = f"{_fraction(done, total)} {_printable(what)}".strip()
            # The first state is drawn immediately, later ones ten times a second.
            is_first = not progress.tasks[task].description
            progress.update(
                task, completed=done, total=total, description=text, refresh=is_first
            )

        yield show


# The features of a server

_KINDS = {
    "Tools": "tools",
    "Resources": "resources",
    "Templates": "resourceTemplates",
    "Prompts": "prompts",
}
# The widest column of names, in characters.
_MAX_NAME_WIDTH = 40
# The width of a line if the output is not a terminal.
_UNLIMITED = 100_000


def table(features: Json) -> str:
    """Return a table of the features of a server, with their arguments.

    It is as wide as the terminal. Without a terminal, each entry is one line.
    """
    from rich.text import Text

    console = _console()
    with console.capture() as printed:
        for title, kind in _KINDS.items():
            items = features[kind]
            if items:
                heading = Text(f"{title} ({len(items)})", "bold")
                console.print(heading, _grid(items), "", sep="\n")
    lines = [line.rstrip() for line in printed.get().splitlines()]
    text = "\n".join(lines).rstrip()
    return text or "The server has no tools, resources or prompts."


def _console() -> Console:
    from rich.console import Console

    width = _UNLIMITED
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    if in_color():
        return Console(width=width, force_terminal=True, color_system="standard")
    return Console(width=width, force_terminal=False, color_system=None)


def _grid(items: list[Json]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(max_width=_MAX_NAME_WIDTH, overflow="fold")
    for item in items:
        grid.add_row(Text(f"  {_name(item)}", "cyan"), Text(_description(item)))
        for name, type_, description in _arguments(item):
            about = f": {description}" if description else ""
            grid.add_row(Text(f"    {name}"), Text.assemble((type_, "dim"), about))
    return grid


def _name(item: Json) -> str:
    """Return the name or URI that clients use in a request."""
    return _printable(item.get("uri") or item.get("uriTemplate") or item["name"])


def _description(item: Json) -> str:
    """Return the first paragraph of an item's description."""
    text = item.get("description") or item.get("title") or item.get("name") or ""
    paragraph, _, _ = str(text).strip().partition("\n\n")
    return _printable(paragraph)


def _printable(text: str) -> str:
    """Return a server's text on one line, without control codes for a terminal."""
    line = " ".join(text.split())
    return "".join(letter for letter in line if letter.isprintable())


def _arguments(item: Json) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the type and the description of each argument."""
    schema = InputSchema(item.get("inputSchema", {}))
    for name, about in schema.properties.items():
        details = about if isinstance(about, dict) else {}
        presence = "optional"
        if name in schema.required:
            presence = "required"
        elif "default" in details:
            presence = f"default {msgspec.json.encode(details['default']).decode()}"
        type_ = f"{schema.property(name).describe()}, {presence}"
        description = str(details.get("description", ""))
        yield _printable(name), _printable(type_), _printable(description)
    # Prompts list their arguments without a schema. They are strings.
    for argument in item.get("arguments") or []:
        presence = "required" if argument.get("required") else "optional"
        description = argument.get("description") or ""
        yield _printable(argument["name"]), presence, _printable(description)


# Results


def format_result(result: Json) -> str:
    """Return a tool's result as text.

    Text blocks are unchanged, and other blocks are described. Structured content is
    included if there is no text.
    """
    if "toolResult" in result:
        plain = result["toolResult"]
        return plain if isinstance(plain, str) else as_json(plain)
    content = result.get("content", [])
    lines = [_describe(item) for item in content]
    has_text = any(item.get("type") == "text" for item in content)
    if "structuredContent" in result and not has_text:
        lines.append(as_json(result["structuredContent"]))
    return "\n".join(lines)


def _describe(item: Json) -> str:
    """Return the text of a content block, or a description of it."""
    inner = item.get("resource", item)
    if "text" in inner:
        return str(inner["text"])
    words = [item.get("type", "content"), inner.get("mimeType"), inner.get("uri")]
    encoded = inner.get("data", inner.get("blob"))
    if encoded is not None:
        size = len(encoded.rstrip("=")) * 3 // 4
        words.append(f"{size} bytes")
    return f"[{' '.join(word for word in words if word)}]"


# Forms


async def answer(method: str, params: Json) -> Json:
    """Answer a server's request by asking the user to fill in a form."""
    if method != "elicitation/create":
        code = MethodNotFound.code
        raise RemoteError({"code": code, "message": f"Method not found: {method}"})
    print(params["message"], file=sys.stderr)
    schema = params["requestedSchema"]
    required = schema.get("required", [])
    content: Json = {}
    for name, field in schema.get("properties", {}).items():
        try:
            value = await _ask(name, field, optional=name not in required)
        except EOFError:
            return {"action": "cancel"}
        if value is not None:
            content[name] = value
    return {"action": "accept", "content": content}


async def _ask(name: str, field: Json, *, optional: bool) -> Any:
    """Ask for one field until the answer is valid, and return it.

    Returns None if an optional field is left empty. Raises EOFError at the end of the
    input.
    """
    prompt = _prompt(name, field)
    while True:
        print(prompt, end="", file=sys.stderr, flush=True)
        line = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        if not line:
            raise EOFError
        text = line.strip()
        if text:
            try:
                return read_value(name, text, InputSchema(field))
            except UsageError as problem:
                print(problem, file=sys.stderr)
        elif optional:
            return None


def _prompt(name: str, field: Json) -> str:
    label = field.get("title") or field.get("description") or name
    choices = field.get("enum") or field.get("items", {}).get("enum")
    if choices:
        label = f"{label} ({', '.join(choices)})"
    return f"{label}: "
