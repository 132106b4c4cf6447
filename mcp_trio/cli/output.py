"""What people read and type on a command line: lists, results, arguments, forms."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import trio

from ..client.errors import RemoteError
from ..load_spec import UsageError
from ..protocol.types import Json
from .arguments import Schema, typed

# Says how much is done, of how much, and what.
Tell = Callable[[float, float | None, str], None]


def as_json(value: Any) -> str:
    """JSON for people."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def in_colour() -> bool:
    """Whether what is printed may be coloured: at a terminal, and by FORCE_COLOR, but never against NO_COLOR."""
    return not os.environ.get("NO_COLOR") and bool(
        os.environ.get("FORCE_COLOR") or sys.stdout.isatty()
    )


@contextmanager
def bar() -> Iterator[Tell]:
    """A bar on stderr for what takes long, where that is a terminal, which is gone in the end."""
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(), TextColumn("{task.description}", markup=False)
    console = Console(stderr=True, force_terminal=True)
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as drawn:
        task = drawn.add_task("", total=None)

        def tell(done: float, total: float | None, what: str) -> None:
            far = f"{done:.4g}" if total is None else f"{done:.4g}/{total:.4g}"
            drawn.update(
                task, completed=done, total=total, description=f"{far} {_shown(what)}"
            )

        yield tell


# What a server offers

KINDS = {
    "Tools": "tools",
    "Resources": "resources",
    "Templates": "resourceTemplates",
    "Prompts": "prompts",
}
# Letters that a name takes of a line at most, and that a line has where there is no terminal to say it.
WIDEST, UNBOUND = 40, 100_000


def table(offered: Json) -> str:
    """All that a server offers and what it takes: as wide as the terminal, or where there is none, a line each."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colour, width = (
        in_colour(),
        shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUND,
    )
    console = Console(
        width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    with console.capture() as printed:
        for title, kind in KINDS.items():
            if offered[kind]:
                grid = Table.grid(padding=(0, 2, 0, 0))
                grid.add_column(max_width=WIDEST, overflow="fold")
                for item in offered[kind]:
                    grid.add_row(Text(f"  {_name(item)}", "cyan"), Text(_about(item)))
                    for name, needed, about in _taken(item):
                        grid.add_row(
                            Text(f"    {name}"),
                            Text.assemble((needed, "dim"), about and f": {about}"),
                        )
                console.print(
                    Text(f"{title} ({len(offered[kind])})", "bold"), grid, "", sep="\n"
                )
    lines = [line.rstrip() for line in printed.get().splitlines()]
    return (
        "\n".join(lines).rstrip()
        or "The server offers nothing: no tools, resources or prompts."
    )


def _name(item: Json) -> str:
    """How it is asked for."""
    return _shown(item.get("uri") or item.get("uriTemplate") or item["name"])


def _about(item: Json) -> str:
    """What it says of itself first, else what says most."""
    text = str(item.get("description") or item.get("title") or item.get("name") or "")
    return _shown(text.strip().partition("\n\n")[0])


def _shown(text: str) -> str:
    """Text on one line, without what a terminal would obey: it is a stranger's."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _taken(item: Json) -> Iterator[tuple[str, str, str]]:
    """The arguments of a tool or a prompt: name, type and whether it must be there, description."""
    schema = item.get("inputSchema", {})
    whole = Schema(schema)
    for name, about in schema.get("properties", {}).items():
        said = about if isinstance(about, dict) else {}
        default = (
            f"default {msgspec.json.encode(said['default']).decode()}"
            if "default" in said
            else "optional"
        )
        needed = "required" if name in whole.required else default
        yield (
            _shown(name),
            _shown(f"{whole.property(name).wanted()}, {needed}"),
            _shown(str(said.get("description", ""))),
        )
    for field in item.get("arguments") or []:
        needed = "required" if field.get("required") else "optional"
        yield _shown(field["name"]), needed, _shown(field.get("description") or "")


# What a tool answers


def printed(result: Json) -> str:
    """A result for people: text as it is, structured content where there is no text, the rest described."""
    if "toolResult" in result:
        plain = result["toolResult"]
        return plain if isinstance(plain, str) else as_json(plain)
    content = result.get("content", [])
    lines = [_described(item) for item in content]
    if "structuredContent" in result and not any(
        item.get("type") == "text" for item in content
    ):
        lines.append(as_json(result["structuredContent"]))
    return "\n".join(lines)


def _described(item: Json) -> str:
    kind, inner = item.get("type", "content"), item.get("resource", item)
    if "text" in inner:
        return str(inner["text"])
    encoded = inner.get("data", inner.get("blob"))
    size = f"{len(encoded.rstrip('=')) * 3 // 4} bytes" if encoded is not None else ""
    return f"[{' '.join(filter(None, [kind, inner.get('mimeType'), inner.get('uri'), size]))}]"


# What a server asks


async def answer(method: str, params: Json) -> Json:
    """Put a form to the user, field by field, on the terminal."""
    if method != "elicitation/create":
        raise RemoteError({"code": -32601, "message": f"Method not found: {method}"})
    print(params["message"], file=sys.stderr)
    schema = params["requestedSchema"]
    content: Json = {}
    for name, field in schema.get("properties", {}).items():
        about = field.get("title") or field.get("description") or name
        choices = field.get("enum") or field.get("items", {}).get("enum")
        prompt = f"{about} ({', '.join(choices)}): " if choices else f"{about}: "
        while name not in content:
            print(prompt, end="", file=sys.stderr, flush=True)
            line = await trio.to_thread.run_sync(
                sys.stdin.readline, abandon_on_cancel=True
            )
            if not line:
                return {"action": "cancel"}
            if not line.strip() and name not in schema.get("required", []):
                break
            try:
                content |= (
                    {name: typed(name, line.strip(), Schema(field))}
                    if line.strip()
                    else {}
                )
            except UsageError as problem:
                print(problem, file=sys.stderr)
    return {"action": "accept", "content": content}
