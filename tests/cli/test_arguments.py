"""KEY=VALUE becomes the arguments of a tool, as its schema has them."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Optional

import pytest
from msgspec import to_builtins

from mcp_trio import Server
from mcp_trio.cli.arguments import find_tool, read_arguments
from mcp_trio.load_spec import UsageError

server = Server("a")


@dataclass
class Point:
    x: float
    y: float = 0.0
    name: str = ""
    tags: list[str] = field(default_factory=list)
    inner: Optional["Point"] = None


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@server.tool
async def everything(
    text: str = "",
    whole: int = 0,
    number: float = 0,
    flag: bool = False,
    maybe: int | None = None,
    maybe_text: str | None = None,
    units: Literal["metric", "imperial"] = "metric",
    size: Literal[1, 2, 3] = 1,
    colour: Colour | None = None,
    tags: list[str] = (),  # type: ignore[assignment]
    counts: list[int] = (),  # type: ignore[assignment]
    colours: list[Colour] = (),  # type: ignore[assignment]
    some: list[str] | None = None,
    text_or_number: str | int = "",
    at: Point | None = None,
    points: list[Point] = (),  # type: ignore[assignment]
    by_name: dict[str, int] | None = None,
    anything: object = None,
) -> None: ...


@server.tool
async def wants(
    first: int, second: str, third: Literal["a", "b"], fourth: str = ""
) -> None: ...


TOOLS = {
    name: {"name": name, "inputSchema": to_builtins(tool.listed.input_schema)}
    for name, tool in server.tools.items()
}
INNER = {"properties": {"x": {}, "y": {}}, "additionalProperties": False}
TOOLS["closed"] = {"name": "closed", "inputSchema": {"properties": {"at": INNER}}}
READ = {
    "text=hello": {"text": "hello"},
    "text=": {"text": ""},
    "text=12": {"text": "12"},
    "text=true": {"text": "true"},
    "text=null": {"text": "null"},
    'text={"a": 1}': {"text": '{"a": 1}'},
    "text=a=b": {"text": "a=b"},
    'text:="a"': {"text": "a"},
    "whole=12": {"whole": 12},
    "whole=-1": {"whole": -1},
    "whole=1.0": {"whole": 1.0},
    "number=1": {"number": 1},
    "number=1e3": {"number": 1000.0},
    "flag=true": {"flag": True},
    "flag=False": {"flag": False},
    "maybe=5": {"maybe": 5},
    "maybe=null": {"maybe": None},
    "maybe_text=null": {"maybe_text": "null"},
    "maybe_text:=null": {"maybe_text": None},
    "units=imperial": {"units": "imperial"},
    "size=2": {"size": 2},
    "colour=red": {"colour": "red"},
    "tags=a tags=b": {"tags": ["a", "b"]},
    "tags=1 tags=2": {"tags": ["1", "2"]},
    "tags=a": {"tags": ["a"]},
    "tags=5": {"tags": ["5"]},
    'tags=["a","b"]': {"tags": ["a", "b"]},
    "tags=[]": {"tags": []},
    "counts=1 counts=2": {"counts": [1, 2]},
    "counts=1": {"counts": [1]},
    "colours=red colours=green": {"colours": ["red", "green"]},
    "some=a some=b": {"some": ["a", "b"]},
    "some=null": {"some": None},
    "text_or_number=5": {"text_or_number": "5"},
    "text_or_number:=5": {"text_or_number": 5},
    "at.x=1": {"at": {"x": 1}},
    "at.x=1 at.name=2": {"at": {"x": 1, "name": "2"}},
    "at.x=1 at.tags=a at.tags=b": {"at": {"x": 1, "tags": ["a", "b"]}},
    "at.x=1 at.inner.x=2": {"at": {"x": 1, "inner": {"x": 2}}},
    'at={"x":1} at.y=2': {"at": {"x": 1, "y": 2}},
    "at=null": {"at": None},
    'points={"x":1} points={"x":2}': {"points": [{"x": 1}, {"x": 2}]},
    "by_name.one=1": {"by_name": {"one": 1}},
    "anything=5": {"anything": 5},
    "anything=word": {"anything": "word"},
    "anything=1 anything=b": {"anything": [1, "b"]},
}


@pytest.mark.parametrize(("line", "read"), READ.items(), ids=READ)
def test_values_are_read_as_the_schema_has_them(line, read):
    pairs = (
        [line] if "{" in line and " " in line and line.count("=") == 1 else line.split()
    )
    found = read_arguments(TOOLS["everything"], pairs)
    assert found == read
    assert repr(found) == repr(read)  # 1 is not True


WRONG = {
    "no pair": (
        "everything",
        "hello",
        "expected KEY=VALUE, got 'hello'; the arguments of everything are: text, whole,",
    ),
    "unknown": (
        "wants",
        "frist=1",
        "wants has no argument 'frist' (did you mean first?); its arguments are: first, sec",
    ),
    "unknown within": (
        "closed",
        "at.z=1",
        "has no argument 'at.z'; its arguments are: x, y",
    ),
    "missing": (
        "wants",
        "second=a",
        "wants: missing required arguments: first=INTEGER third=A|B",
    ),
    "no integer": ("everything", "whole=many", "whole: expected integer, got 'many'"),
    "a part": ("everything", "whole=1.5", "whole: expected integer, got '1.5'"),
    "no number": ("everything", "number=many", "number: expected number, got 'many'"),
    "no boolean": ("everything", "flag=1", "flag: expected boolean, got '1'"),
    "neither": (
        "everything",
        "maybe=many",
        "maybe: expected integer or null, got 'many'",
    ),
    "no choice": (
        "everything",
        "units=metrik",
        "units: expected metric or imperial, got 'metrik' (did you mean metric?)",
    ),
    "no such number": ("everything", "size=4", "size: expected 1 or 2 or 3, got '4'"),
    "no item": ("everything", "counts=1 counts=b", "counts: expected integer, got 'b'"),
    "one bad item": ("everything", "counts=b", "counts: expected integer, got 'b'"),
    "twice": (
        "everything",
        "whole=1 whole=2",
        "whole: expected one integer, got 2 values",
    ),
    "no object": ("everything", "at=here", "at: expected null or object, got 'here'"),
    "no object, and within": (
        "everything",
        "at:=1 at.x=2",
        "at.x: expected at to be an object, got a value too",
    ),
    "bad JSON": ("everything", "text:={", "text:={: expected JSON: "),
    "no file": (
        "everything",
        "text=@nobody",
        "text=@nobody: cannot read the file nobody: No such file",
    ),
    "a folder": ("everything", "text=@.", "cannot read the file .: Is a directory"),
}


@pytest.mark.parametrize(("tool", "line", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_reported_in_one_line(tool, line, says):
    with pytest.raises(UsageError) as caught:
        read_arguments(TOOLS[tool], line.split())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_may_be_what_a_file_holds(tmp_path):
    (tmp_path / "a.txt").write_text("line 1\nliné 2\n", encoding="utf-8")
    (tmp_path / "a.json").write_text('{"x": 1}', encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\0")
    tool = TOOLS["everything"]
    assert read_arguments(tool, [f"text=@{tmp_path}/a.txt"]) == {
        "text": "line 1\nliné 2\n"
    }
    assert read_arguments(tool, [f"at=@{tmp_path}/a.json"]) == {"at": {"x": 1}}
    assert read_arguments(tool, [f"text:=@{tmp_path}/a.json"]) == {"text": {"x": 1}}
    assert read_arguments(tool, ['text:="@nobody"']) == {"text": "@nobody"}
    with pytest.raises(UsageError, match="expected a text file in UTF-8"):
        read_arguments(tool, [f"text=@{tmp_path}/binary"])


def test_what_is_given_as_it_is_counts_and_pairs_win():
    assert read_arguments(
        TOOLS["wants"], ["second=b"], {"first": 1, "second": "a", "third": "a"}
    ) == {
        "first": 1,
        "second": "b",
        "third": "a",
    }


SCHEMAS = {
    "nothing said": ({}, "a=1", {"a": 1}),
    "no such property": ({"properties": {}}, "a.b=x", {"a.b": "x"}),
    "a dot in the name": (
        {"properties": {"a.b": {"type": "string"}}},
        "a.b=1",
        {"a.b": "1"},
    ),
    "several types": (
        {"properties": {"a": {"type": ["integer", "null"]}}},
        "a=null",
        {"a": None},
    ),
    "definitions of old": (
        {
            "properties": {"a": {"$ref": "#/definitions/A"}},
            "definitions": {"A": {"type": "string"}},
        },
        "a=1",
        {"a": "1"},
    ),
    "a circle": (
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"$ref": "#/$defs/A"}},
        },
        "a=1",
        {"a": 1},
    ),
    "a list of itself": (
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        },
        "a=[[]]",
        {"a": [[]]},
    ),
    "a reference elsewhere": (
        {"properties": {"a": {"$ref": "https://example.org/a"}}},
        "a=1",
        {"a": 1},
    ),
    "a constant": ({"properties": {"a": {"const": "x"}}}, "a=x", {"a": "x"}),
    "true": ({"properties": {"a": True}}, "a=1", {"a": 1}),
    "mixed choices": (
        {"properties": {"a": {"enum": ["auto", 1]}}},
        "a=auto",
        {"a": "auto"},
    ),
}


@pytest.mark.parametrize(("schema", "line", "read"), SCHEMAS.values(), ids=SCHEMAS)
def test_schemas_of_other_servers_are_understood(schema, line, read):
    assert read_arguments({"name": "other", "inputSchema": schema}, [line]) == read


def test_a_tool_without_arguments_refuses_any_name():
    nothing = {
        "name": "nothing",
        "inputSchema": {"type": "object", "additionalProperties": False},
    }
    with pytest.raises(
        UsageError, match=r"^nothing has no argument 'nome'; its arguments are: none$"
    ):
        read_arguments(nothing, ["nome=1"])


def test_a_tool_is_found_by_its_name_or_the_nearest_is_named():
    assert find_tool([*TOOLS.values()], "wants") is TOOLS["wants"]
    with pytest.raises(
        UsageError,
        match=r"no tool 'want' \(did you mean wants\?\); the tools are: everything, wants, closed",
    ):
        find_tool([*TOOLS.values()], "want")
    many = [{"name": f"tool_{number}"} for number in range(1000)]
    with pytest.raises(UsageError, match=r"tool_19, \.\.\.$"):
        find_tool(many, "else")
    with pytest.raises(UsageError, match="the tools are: none"):
        find_tool([], "else")
