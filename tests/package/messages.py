"""Lists the messages that users can see: `python -m tests.package.messages`.

They are the texts of exceptions, refusals, log lines and help. Values in a message are
shown as {...}. Read the list after you have added messages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import PROJECT

PACKAGE = PROJECT / "mcp_trio"
# Functions and classes whose texts reach users, in addition to exceptions.
SHOWN = {"refusal", "problem", "fail", "error", "warning", "info", "print"}
# Keyword arguments with a text for users.
KEYWORDS = {"help", "description", "epilog", "metavar", "reason"}


def text_of(node: ast.expr) -> str:
    """Return the text of a literal or of an f-string, or an empty one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                parts.append(f"{{{ast.unparse(part.value)}}}")
            else:
                parts.append(text_of(part))
        return "".join(parts)
    return ""


def messages_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each message with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            arguments = [*node.exc.args]
        elif isinstance(node, ast.Call):
            named = node.func
            name = getattr(named, "attr", None) or getattr(named, "id", "")
            arguments = [*node.args] if name in SHOWN else []
            arguments += [
                keyword.value for keyword in node.keywords if keyword.arg in KEYWORDS
            ]
        else:
            continue
        for argument in arguments:
            text = text_of(argument)
            if " " in text:
                yield argument.lineno, " ".join(text.split())


def messages(package: Path = PACKAGE) -> list[str]:
    """Return a line for each message, with the file it is in."""
    found = set()
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(package).as_posix()
        for line, text in messages_in(tree):
            found.add((name, line, text))
    return [f"{name}:{line}: {text}" for name, line, text in sorted(found)]


if __name__ == "__main__":
    print("\n".join(messages()))
