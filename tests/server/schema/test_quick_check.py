"""Values are checked quickly by simple schemas, with the same outcome as otherwise."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.server.schema.check import SchemaCheck
from mcp_trio.server.schema.decode import DECODE_ERRORS
from mcp_trio.server.schema.jsonschema import Validator
from mcp_trio.server.schema.quick_check import quick_check

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10},
        "height": {"type": ["number", "null"], "minimum": 0, "maximum": 3},
        "kind": {"enum": ["a", "b"]},
        "const": {"const": "c"},
        "is-here": {"type": "boolean", "default": True},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "home": {
            "type": "object",
            "properties": {"street": {"type": "string"}},
            "required": ["street", "number"],
            "additionalProperties": False,
        },
        "scores": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {},
    },
    "required": ["name"],
}


QUICK = quick_check(PERSON)
VALIDATOR = Validator(PERSON, what="the schema")


def fits_quickly(value: Any) -> bool:
    assert QUICK is not None
    try:
        QUICK(msgspec.json.encode(value))
    except DECODE_ERRORS:
        return False
    return True


def fits(value: Any) -> bool:
    try:
        VALIDATOR.check(value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"name": "12345", "more": [1]},
        {"code": "AB", "age": 9, "height": 2.5, "kind": "b", "const": "c"},
        {"height": None, "is-here": False, "tags": ["x", "y"]},
        {"height": 3, "anything": {"a": [None]}, "scores": {"a": 1}},
        {"home": {"street": "Way", "number": [1]}},
    ],
)
def test_a_value_that_fits_is_accepted_at_once(changes: dict[str, Any]) -> None:
    assert fits_quickly({"name": "Ada", **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "123456"},
        {"name": None},
        {"code": "ab"},
        {"age": -1},
        {"age": 10},
        {"age": True},
        {"age": "1"},
        {"height": -0.5},
        {"height": 4},
        {"kind": "c"},
        {"const": "d"},
        {"is-here": 1},
        {"tags": [1]},
        {"tags": ["a", "b", "c"]},
        {"home": {"street": "Way"}},
        {"home": {"street": "Way", "number": 1, "floor": 2}},
        {"scores": {"a": "1"}},
    ],
)
def test_a_value_that_does_not_fit_is_never_accepted(changes: dict[str, Any]) -> None:
    value = {"name": "Ada", **changes}
    assert not fits_quickly(value)
    assert not fits(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {}},
        {"type": "object", "anyOf": [{"required": ["a"]}]},
        {"type": "array", "uniqueItems": True},
        {"type": "array", "items": [{"type": "string"}]},
        {"type": "number", "multipleOf": 0.1},
        {"type": "number", "minimum": 0.5},
        {"type": "number", "exclusiveMinimum": True},
        {"type": "integer", "maximum": 2**60},
        {"type": "object", "minProperties": 1},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {}},
        {"type": "string", "enum": [1]},
        {"type": "integer", "enum": ["a"]},
        {"enum": [1, 2]},
        {"enum": [True]},
        {"minLength": 1},
        {"type": []},
        {"type": "other"},
    ],
)
def test_a_schema_that_is_not_simple_has_no_quick_check(schema: dict[str, Any]) -> None:
    assert quick_check(schema) is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.sampled_from([0.5, 1.0, -0.0, 3.5, 1e300])
    | st.text("abAB", max_size=7),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["street", "number", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)
VALUES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys([*PERSON["properties"], "more"], JSON)
)


@given(VALUES)
def test_whatever_is_accepted_at_once_fits_the_schema(value: Any) -> None:
    if fits_quickly(value):
        assert fits(value)


@given(JSON)
def test_whatever_is_no_object_is_not_accepted_at_once(value: Any) -> None:
    if not isinstance(value, dict):
        assert not fits_quickly(value)


KEYWORDS = [
    *("type", "properties", "required", "additionalProperties", "items", "enum"),
    *("const", "minLength", "maximum", "exclusiveMinimum", "maxItems", "pattern"),
    *("title", "$schema", "default", "examples", "deprecated", "format"),
]
PARTS = st.recursive(
    st.sampled_from(
        ["object", "string", "integer", "array", "number", "a", "(", 1, -1, 0.5]
    )
    | st.booleans()
    | st.none(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYWORDS), PARTS, max_size=4))
def test_a_schema_with_a_quick_check_is_valid(schema: dict[str, Any]) -> None:
    if quick_check(schema) is not None:
        Validator(schema, what="the schema")


def test_a_value_that_does_not_fit_is_explained() -> None:
    check = SchemaCheck(PERSON, what="the schema")
    check(b'{"name":"Ada"}')
    with pytest.raises(ValueError, match=r"\$\.name: '' should be non-empty"):
        check(b'{"name":""}')
    # It is an integer in JSON Schema.
    check(b'{"name":"Ada","age":1.0}')


def test_a_simple_schema_is_checked_without_jsonschema() -> None:
    program = """
import sys
from mcp_trio import Server
server = Server("a")
@server.tool(input_schema={"type": "object", "properties": {"a": {"type": "string"}}})
async def look(**given: str) -> str:
    return ""
print("jsonschema" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
