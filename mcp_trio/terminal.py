"""What people read and type on a command line: lists, results, arguments, forms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from .client import RemoteError
from .loading import Problem
from .protocol.model import Json


def as_json(value: Any) -> str:
    """JSON for people."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# What a server offers

# A longer name does not widen the column: what is said of it just begins later.
WIDEST = 48


def table(offered: Json) -> str:
    """The lists that a server offers, side by side with what they say of themselves."""
    kinds: list[tuple[str, list[tuple[str, str]]]] = [
        ("Tools", [(_signature(tool["name"], _parameters(tool)), _about(tool)) for tool in offered["tools"]]),
        ("Resources", [(resource["uri"], _about(resource)) for resource in offered["resources"]]),
        ("Templates", [(template["uriTemplate"], _about(template)) for template in offered["resourceTemplates"]]),
        ("Prompts", [(_signature(prompt["name"], _fields(prompt)), _about(prompt)) for prompt in offered["prompts"]]),
    ]
    if all(not rows for _, rows in kinds):
        return "The server offers nothing: no tools, resources or prompts."
    width = max((len(name) for _, rows in kinds for name, _ in rows if len(name) <= WIDEST), default=0)
    blocks = ["\n".join([title, *(_row(name, about, width) for name, about in rows)]) for title, rows in kinds if rows]
    return "\n\n".join(blocks)


def _row(name: str, about: str, width: int) -> str:
    return f"  {name:<{width}}  {about}".rstrip()


def _about(item: Json) -> str:
    """Its description's first line, else what says most."""
    text = item.get("description") or item.get("title") or item.get("name") or ""
    return str(text).strip().partition("\n")[0]


def _parameters(tool: Json) -> list[str]:
    schema = tool["inputSchema"]
    return [name if name in schema.get("required", []) else f"{name}?" for name in schema.get("properties", {})]


def _fields(prompt: Json) -> list[str]:
    return [field["name"] if field.get("required") else f"{field['name']}?" for field in prompt.get("arguments", [])]


def _signature(name: str, parameters: list[str]) -> str:
    return f"{name}({', '.join(parameters)})"


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
    size = f"{len(encoded) * 3 // 4 - encoded[-2:].count('=')} bytes" if encoded is not None else ""
    return f"[{' '.join(filter(None, [kind, inner.get('mimeType'), inner.get('uri'), size]))}]"


# Values, typed by a JSON Schema

KINDS: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: not isinstance(value, bool) and isinstance(value, int | float) and value % 1 == 0,
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def arguments(tool: Json, pairs: list[str]) -> Json:
    """A tool's arguments out of KEY=VALUE, each read as the tool's schema has it."""
    schema = tool["inputSchema"]
    properties = schema.get("properties", {})
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    typed: Json = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise Problem(f"{pair!r} is not KEY=VALUE; the arguments of {tool['name']} are {_known(properties)}")
        if key not in properties and schema.get("additionalProperties") is False:
            raise Problem(f"{tool['name']} has no argument {key!r}; its arguments are {_known(properties)}")
        typed[key] = _typed(key, text, _kinds(properties.get(key, {}), definitions))
    return typed


def _known(properties: Json) -> str:
    return ", ".join(properties) or "none"


def _kinds(schema: Any, definitions: Json) -> set[str]:
    """The JSON types that a schema names; none where it leaves them open."""
    if not isinstance(schema, dict):
        return set()
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        others = {other: definitions[other] for other in definitions if other != name}  # so that no circle is endless
        return _kinds(definitions.get(name), others)
    if options := schema.get("anyOf", []) + schema.get("oneOf", []):
        return set().union(*(_kinds(option, definitions) for option in options))
    if "type" not in schema and all(isinstance(value, str) for value in schema.get("enum", [0])):
        return {"string"}
    kinds = schema.get("type", [])
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _typed(key: str, text: str, kinds: set[str]) -> Any:
    """A value: as it stands where a string may stand, else JSON."""
    if "string" in kinds:
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        if not kinds:
            return text
        raise Problem(f"{key}={text}: {' or '.join(sorted(kinds))} is wanted, as JSON") from None
    if kinds and not any(KINDS[kind](value) for kind in kinds if kind in KINDS):
        raise Problem(f"{key}={text}: {' or '.join(sorted(kinds))} is wanted, as JSON")
    return value


# What a server asks


async def answer(method: str, params: Json) -> Json:
    """Put a form to the user, field by field, on the terminal."""
    if method != "elicitation/create":
        raise RemoteError({"code": -32601, "message": f"Method not found: {method}"})
    print(params["message"], file=sys.stderr)
    schema = params["requestedSchema"]
    content: Json = {}
    for name, field in schema.get("properties", {}).items():
        required = name in schema.get("required", [])
        value = await trio.to_thread.run_sync(_ask, name, field, required, abandon_on_cancel=True)
        if value is None:
            return {"action": "cancel"}
        content |= value
    return {"action": "accept", "content": content}


def _ask(name: str, field: Json, required: bool) -> Json | None:
    """One field's value by its name, nothing if it was left out; None at the end of the input."""
    about = field.get("title") or field.get("description") or name
    choices = field.get("enum") or field.get("items", {}).get("enum")
    prompt = f"{about} ({', '.join(choices)}): " if choices else f"{about}: "
    while True:
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return None
        if line.strip() or not required:
            try:
                return {name: _typed(name, line.strip(), _kinds(field, {}))} if line.strip() else {}
            except Problem as problem:
                print(problem, file=sys.stderr)
