"""The mutants of a module: its source with one guard removed, inverted or moved."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
MOVED_BY_ONE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
}
REFUSALS = (ast.Raise, ast.Return, ast.Continue, ast.Break)


class Mutant(NamedTuple):
    """The source with one change, and the line and the text that changed."""

    line: int
    before: str
    after: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of their lines."""
    found: dict[str, Mutant] = {}
    for node, after in _changes(ast.parse(source)):
        mutant = _changed(source, node, after)
        found.setdefault(mutant.source, mutant)
    return sorted(found.values())


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield each node that can be changed, with its replacement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from _changed_comparisons(node)
        elif isinstance(node, ast.Raise):
            yield node, "pass"
        elif isinstance(node, ast.If) and _is_guard(node):
            yield node.test, "False"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, f"bool({ast.unparse(node.operand)})"


def _changed_comparisons(node: ast.Compare) -> Iterator[tuple[ast.expr, str]]:
    left = ast.unparse(node.left)
    right = ast.unparse(node.comparators[0])
    operator = type(node.ops[0])
    for table in (OPPOSITES, MOVED_BY_ONE):
        if operator in table:
            yield node, f"({left} {table[operator]} {right})"


def _is_guard(node: ast.If) -> bool:
    """Return whether all that a condition does is to leave."""
    is_for_types = ast.unparse(node.test) == "TYPE_CHECKING"
    return not is_for_types and isinstance(node.body[-1], REFUSALS)


def _changed(source: str, node: ast.expr | ast.stmt, after: str) -> Mutant:
    """Return the source with one node replaced."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    data = source.encode()
    before = data[begin:end].decode()
    # Later lines keep their numbers: tests are chosen by line.
    padding = "" if isinstance(node, ast.stmt) else "\\\n" * before.count("\n")
    changed = data[:begin] + padding.encode() + after.encode() + data[end:]
    return Mutant(node.lineno, " ".join(before.split()), after, changed.decode())
