"""What people read and type on a command line: lists, results, arguments, forms."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import trio

from .client import RemoteError
from .loading import Problem
from .protocol.model import Json
from .values import value_of


def as_json(value: Any) -> str:
    """JSON for people."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# What a server offers

KINDS = {"Tools": "tools", "Resources": "resources", "Templates": "resourceTemplates", "Prompts": "prompts"}
# A longer name does not widen the column: what is said of it just begins later.
WIDEST = 48


def table(offered: Json) -> str:
    """The lists that a server offers, side by side with what they say of themselves."""
    names = [_name(item) for kind in KINDS.values() for item in offered[kind]]
    if not names:
        return "The server offers nothing: no tools, resources or prompts."
    width = max((len(name) for name in names if len(name) <= WIDEST), default=0)
    blocks = [[title, *(_row(item, width) for item in offered[kind])] for title, kind in KINDS.items() if offered[kind]]
    return "\n\n".join("\n".join(block) for block in blocks)


def _row(item: Json, width: int) -> str:
    """What it is called, and its description's first line, else what says most."""
    text = item.get("description") or item.get("title") or item.get("name") or ""
    first = str(text).strip().partition("\n")[0]
    return f"  {_name(item):<{width}}  {first}".rstrip()


def _name(item: Json) -> str:
    """How it is asked for: by its address, or by its name with what it takes."""
    schema = item.get("inputSchema", {})
    taken = {name: name in schema.get("required", []) for name in schema.get("properties", {})}
    taken |= {field["name"]: field.get("required") for field in item.get("arguments", [])}
    signature = ", ".join(name if required else f"{name}?" for name, required in taken.items())
    return item.get("uri") or item.get("uriTemplate") or f"{item['name']}({signature})"


# What a tool answers


def printed(result: Json) -> str:
    """A result for people: text as it is, structured content where there is no text, the rest described."""
    if "toolResult" in result:
        plain = result["toolResult"]
        return plain if isinstance(plain, str) else as_json(plain)
    content = result.get("content", [])
    lines = [_described(item) for item in content]
    if "structuredContent" in result and not any(item.get("type") == "text" for item in content):
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
            line = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            if not line:
                return {"action": "cancel"}
            if not line.strip() and name not in schema.get("required", []):
                break
            try:
                content |= {name: value_of(name, line.strip(), field)} if line.strip() else {}
            except Problem as problem:
                print(problem, file=sys.stderr)
    return {"action": "accept", "content": content}
