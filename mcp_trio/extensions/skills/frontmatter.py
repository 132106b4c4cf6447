"""Converts the YAML at the start of a SKILL.md to JSON.

Versions of YAML interpret plain words differently. Hosts parse the file again and
compare it with the server's JSON, and most of them follow the core schema of YAML 1.2,
where `on` and dates are strings. This module follows it too.
"""

import math
import re
from pathlib import Path
from typing import Any

import yaml

from ...protocol.types import Json

# The maximum number of values. With aliases, a short document can have very many.
MOST_VALUES = 10_000

_START = re.compile(r"\ufeff?---[ \t]*\r?\n")
_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)

_STR = "tag:yaml.org,2002:str"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_BOOL = "tag:yaml.org,2002:bool"
_NULL = "tag:yaml.org,2002:null"
_MAP = "tag:yaml.org,2002:map"
_SEQ = "tag:yaml.org,2002:seq"


class _Loader(yaml.SafeLoader):
    """Interprets plain words as YAML 1.2 does."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012


_RESOLVERS = {
    _NULL: r"(?:null|Null|NULL|~|)\Z",
    _BOOL: r"(?:true|True|TRUE|false|False|FALSE)\Z",
    _INT: r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z",
    _FLOAT: (
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}
for _tag, _pattern in _RESOLVERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), None)


class SkillError(ValueError):
    """A skill is invalid. The message says where and why."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")


def parse_frontmatter(text: str, path: Path) -> tuple[Json, dict[str, int]]:
    """Return the frontmatter of a file, and the line of each of its keys.

    Raises SkillError.
    """
    start = _START.match(text)
    if start is None:
        raise SkillError(path, "expected frontmatter, beginning with ---", 1)
    end = _END.search(text, start.end())
    if end is None:
        raise SkillError(path, "expected --- at the end of the frontmatter", 1)
    try:
        root = yaml.compose(text[start.end() : end.start()], _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 2 if mark is None else mark.line + 2
        raise SkillError(path, f"expected valid YAML: {error.problem}", line) from None
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise SkillError(path, f"expected valid YAML: {problem}", 2) from None
    if not isinstance(root, yaml.MappingNode):
        raise SkillError(path, "expected keys and values, such as name: my-skill", 2)
    frontmatter = _Converter(path).convert(root)
    assert isinstance(frontmatter, dict)
    lines = {key.value: key.start_mark.line + 2 for key, _ in root.value}
    return frontmatter, lines


class _Converter:
    """Converts the nodes of a document to JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        # The nodes that contain the current one, to detect recursion.
        self._outer: list[yaml.Node] = []

    def convert(self, node: yaml.Node) -> Any:  # noqa: ANN401 (any JSON)
        """Return the value of a node. Raises SkillError."""
        self._count += 1
        if self._count > MOST_VALUES:
            raise self._error(node, f"expected at most {MOST_VALUES:,} values")
        if any(node is outer for outer in self._outer):
            raise self._error(node, "expected JSON, got a value that contains itself")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        self._outer.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node)
            return self._sequence(node)
        finally:
            self._outer.pop()

    def _mapping(self, node: yaml.MappingNode) -> Json:
        self._check_tag(node, _MAP)
        found: Json = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "expected a string as the key")
            if key.value in found:
                raise self._error(
                    key, f"expected each key once, got {key.value!r} twice"
                )
            found[key.value] = self.convert(value)
        return found

    def _sequence(self, node: yaml.Node) -> list[Any]:
        self._check_tag(node, _SEQ)
        return [self.convert(item) for item in node.value]

    def _check_tag(self, node: yaml.Node, expected: str) -> None:
        if node.tag != expected:
            raise self._error(node, f"expected a JSON type, got {node.tag}")

    def _scalar(self, node: yaml.ScalarNode) -> str | int | float | bool | None:
        text: str = node.value
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag in (_INT, _FLOAT):
            return self._number(node)
        self._check_tag(node, _STR)
        return text

    def _number(self, node: yaml.ScalarNode) -> int | float:
        text: str = node.value
        number: int | float
        try:
            if node.tag == _INT:
                # Octal and hexadecimal numbers have a prefix; 010 is ten.
                number = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            else:
                number = float(
                    text.lower().replace(".inf", "inf").replace(".nan", "nan")
                )
        except ValueError:
            raise self._error(
                node, f"expected a number with fewer digits, got {text:.100}; quote it"
            ) from None
        if not abs(number) < math.inf:
            raise self._error(
                node, f"expected a JSON number, got {text:.100}; quote it"
            )
        return number

    def _error(self, node: yaml.Node, problem: str) -> SkillError:
        return SkillError(self._path, problem, node.start_mark.line + 2)
