"""The headers that a tool's input schema requires, and schemas that are invalid."""

from typing import Any

import pytest

from mcp_trio.protocol.mirrored_headers import invalid_mirror, mirrors

REGION = {"type": "string", "x-mcp-header": "Region"}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        (schema(), []),
        (schema(region=REGION), [(b"Mcp-Param-Region", ("region",))]),
        (schema(a=schema(b=REGION)), [(b"Mcp-Param-Region", ("a", "b"))]),
        (schema(a=True, b=REGION), [(b"Mcp-Param-Region", ("b",))]),
        (schema(a={"x-mcp-header": 5}), []),
        (schema(a={"x-mcp-header": "é"}), []),
        (True, []),
    ],
)
def test_each_property_with_the_keyword_has_a_header(
    given: Any, headers: list[Any]
) -> None:
    assert list(mirrors(given)) == headers


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "string",
        "integer",
        "boolean",
        ["string", "null"],
        ["string", "integer", "boolean"],
    ],
)
def test_a_header_repeats_a_primitive_value(kind: Any) -> None:
    assert invalid_mirror(schema(a={"type": kind, "x-mcp-header": "A"})) is None


@pytest.mark.parametrize(
    "kind", ["number", "object", "array", "null", ["null"], ["string", "object"], []]
)
def test_a_header_cannot_repeat_another_value(kind: Any) -> None:
    problem = invalid_mirror(schema(a={"type": kind, "x-mcp-header": "A"}))
    assert problem == f"a: x-mcp-header on the type {kind!r}"


@pytest.mark.parametrize("keyword", ["", "a b", "a\r\nb", "a:", "é", 5, None])
def test_the_name_of_a_header_is_a_token(keyword: Any) -> None:
    problem = invalid_mirror(schema(a=schema(b={"x-mcp-header": keyword})))
    assert problem == f"a.b: x-mcp-header {keyword!r} is not the name of a header"


def test_a_header_cannot_be_used_twice_in_any_case() -> None:
    twice = schema(a=REGION, b={"type": "string", "x-mcp-header": "region"})
    assert invalid_mirror(twice) == "b: x-mcp-header 'region' is used twice"


@pytest.mark.parametrize(
    "given", [True, {}, schema(), {"properties": []}, schema(a=True), schema(a={})]
)
def test_a_schema_without_the_keyword_is_valid(given: Any) -> None:
    assert invalid_mirror(given) is None
    assert list(mirrors(given)) == []
