from __future__ import annotations

from typing import Any

import pytest

from mcp_trio.server.schema.jsonschema import Validator
from tests.support.growth import assert_linear
from tests.support.samples import DRAFTS


def refusal(schema: Any, value: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Validator(schema, what="the schema").check(value)
    return str(caught.value)


def refused_at_once(schema: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Validator(schema, what="input_schema of t()")
    return str(caught.value)


def nested(levels: int, innermost: Any) -> Any:
    for _ in range(levels):
        innermost = {"not": innermost}
    return innermost


@pytest.mark.parametrize("draft", DRAFTS)
def test_each_dialect_is_taken_as_declared(draft: str):
    schema = {
        "$schema": draft,
        "definitions": {"count": {"type": "integer"}},
        "properties": {"a": {"$ref": "#/definitions/count"}},
    }
    Validator(schema, what="the schema").check({"a": 1})
    assert refusal(schema, {"a": "x"}) == "$.a: 'x' is not of type 'integer'"


def test_the_default_dialect_is_2020_12():
    schema = {"prefixItems": [{"type": "integer"}]}
    assert refusal(schema, ["x"]) == "$[0]: 'x' is not of type 'integer'"
    Validator({**schema, "$schema": DRAFTS[2]}, what="the schema").check(["x"])


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-03/schema#", "urn:mine", 7, None]
)
def test_another_dialect_is_refused_and_the_supported_ones_are_listed(draft: Any):
    message = refused_at_once({"$schema": draft})
    assert message.startswith(
        f"input_schema of t() declares $schema {draft!r}; supported are "
    )
    assert all(supported.rstrip("#") in message for supported in DRAFTS)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"properties": {"a": {"type": "int"}}}, "$.properties.a.type"),
        ({"properties": []}, "$.properties"),
        ({"properties": {"a": {"pattern": "("}}}, "$.properties.a.pattern"),
        ({"required": "a"}, "$.required"),
    ],
)
def test_an_invalid_schema_is_refused_with_its_path(schema: Any, where: str):
    assert f"2020-12/schema): {where}: " in refused_at_once(schema)


@pytest.mark.parametrize(
    ("schema", "reference"),
    [
        (
            {"properties": {"a": {"$ref": "http://example.invalid/a.json"}}},
            "http://example.invalid/a.json",
        ),
        ({"$ref": "file:///etc/hostname"}, "file:///etc/hostname"),
        ({"$ref": "other.json"}, "other.json"),
        ({"$ref": "#/$defs/a"}, "#/$defs/a"),
        ({"$ref": "#a"}, "#a"),
        ({"$dynamicRef": "#a"}, "#a"),
        ({"$id": "http://example.invalid/a.json", "$ref": "b.json"}, "b.json"),
        ({"$ref": "#/x-mine", "x-mine": {"$ref": "urn:other"}}, "urn:other"),
        ({"$schema": DRAFTS[2], "items": {"$ref": "urn:other"}}, "urn:other"),
        ({"$ref": DRAFTS[0]}, DRAFTS[0]),
    ],
)
def test_a_reference_out_of_the_schema_is_refused_at_once(schema: Any, reference: str):
    assert (
        f"has a $ref to {reference!r}, which is not within the schema"
        in refused_at_once(schema)
    )


def test_references_within_the_schema_are_followed():
    schema = {
        "$id": "http://example.invalid/a.json",
        "$defs": {"b": {"$id": "b.json", "$anchor": "here", "type": "string"}},
        "properties": {"a": {"$ref": "b.json#here"}, "c": {"$ref": "#/properties/a"}},
    }
    assert refusal(schema, {"c": 1}) == "$.c: 1 is not of type 'string'"


def test_a_ref_within_an_enum_is_only_data():
    Validator({"enum": [{"$ref": "http://example.invalid/"}]}, what="the schema").check(
        {"$ref": "http://example.invalid/"}
    )


def test_a_reference_to_itself_is_a_value_error():
    assert refusal({"$ref": "#"}, 1).startswith("$: nested too deep")
    loop = {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    }
    assert refusal(loop, 1).startswith("$: nested too deep")


def test_a_recursive_schema_takes_what_is_not_too_deep():
    schema = {"type": "object", "additionalProperties": {"$ref": "#"}}
    value: Any = {}
    for _ in range(20):
        value = {"a": value}
    Validator(schema, what="the schema").check(value)
    for _ in range(900):
        value = {"a": value}
    assert refusal(schema, value).startswith("$: nested too deep")


def test_a_deep_schema_is_refused():
    assert (
        refused_at_once(nested(101, {}))
        == "input_schema of t() is nested more than 100 levels deep"
    )
    assert "deep" in refused_at_once(nested(100_000, {}))
    Validator(nested(60, {}), what="the schema")


def test_a_long_value_is_cut_in_the_message():
    assert len(refusal({"type": "integer"}, "x" * 10_000)) < 400


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_schema_may_be_empty(draft: str):
    Validator({"$schema": draft}, what="the schema").check([1, {"a": None}])


UNIQUE = {"type": "array", "uniqueItems": True}


@pytest.mark.parametrize(
    ("value", "is_unique"),
    [
        ([1, "1", True, None, [1], [True], {"a": 1}, {"b": 1}, 1.5], True),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}], False),
        ([[1], [1.0]], False),
        ([0, False], True),
        (["a", "a"], False),
        ("aa", True),
    ],
)
@pytest.mark.parametrize("draft", DRAFTS)
def test_unique_items_are_compared_as_json(draft: str, value: Any, is_unique: bool):
    schema = {"$schema": draft, "uniqueItems": True}
    if is_unique:
        Validator(schema, what="the schema").check(value)
    else:
        assert refusal(schema, value).endswith("has non-unique elements")


@pytest.mark.parametrize(
    "item",
    [lambda number: {"a": number}, lambda number: number * (2**61 - 1)],
    ids=["objects", "numbers with the same hash"],
)
def test_many_unique_items_are_checked_in_linear_time(item: Any):
    def make(size: int) -> list[Any]:
        return [item(number) for number in range(size)]

    assert_linear(Validator(UNIQUE, what="the schema").check, make, 4000)
