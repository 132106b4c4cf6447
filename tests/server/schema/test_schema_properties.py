# ruff: noqa: PT017, UP045 (a table of texts; functions that tell whether something was
# refused)
"""The typed decoder and jsonschema agree about values that fit or almost fit."""

from __future__ import annotations

import copy
import datetime
import enum
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_trio.protocol.errors import InvalidArguments, InvalidParams
from mcp_trio.server.schema.signature import Parameters, Returned


@dataclass
class Point:
    x: int
    y: float = 0.5


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    at: Point
    name: Annotated[str, msgspec.Meta(max_length=3)] = ""


class Tree(msgspec.Struct):
    children: list[Tree] = []
    leaf: int | None = None


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


class Row(msgspec.Struct, array_like=True):
    key: str
    count: int = 0


class ClosedRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    count: int
    at: Point | None = None


class Pair(NamedTuple):
    left: int
    right: str = ""


class Movie(TypedDict, total=False):
    title: str
    year: int


class Units(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


class Level(enum.IntEnum):
    HIGH = 3
    LOW = 1


def formats() -> jsonschema.FormatChecker:
    """Check the formats that JSON Schema leaves open as msgspec reads them."""
    checker = jsonschema.FormatChecker(formats=())
    types = {
        "date": datetime.date,
        "date-time": datetime.datetime,
        "time": datetime.time,
        "duration": datetime.timedelta,
        "uuid": uuid.UUID,
        "decimal": Decimal,
        "date-time-local": Annotated[datetime.datetime, msgspec.Meta(tz=False)],
        "time-local": Annotated[datetime.time, msgspec.Meta(tz=False)],
    }
    for name, kind in types.items():
        checker.checks(name, raises=ValueError)(
            lambda value, kind=kind: (
                not isinstance(value, str) or msgspec.convert(value, kind) is not None
            )
        )
    return checker


FORMATS = formats()

SCALARS: list[Any] = [
    str,
    int,
    float,
    bool,
    None,
    Any,
    bytes,
    Decimal,
    uuid.UUID,
    datetime.date,
    datetime.time,
    datetime.datetime,
    datetime.timedelta,
    Annotated[datetime.datetime, msgspec.Meta(tz=True)],
    Annotated[datetime.datetime, msgspec.Meta(tz=False)],
    Annotated[datetime.time, msgspec.Meta(tz=True)],
    Annotated[datetime.time, msgspec.Meta(tz=False)],
    Literal["b", "a"],
    Literal[2, 1],
    Literal["a", None],
    Literal["a", 1],
    Units,
    Level,
    Annotated[int, msgspec.Meta(ge=0, lt=3)],
    Annotated[int, msgspec.Meta(multiple_of=2)],
    Annotated[float, msgspec.Meta(gt=0, le=1.5)],
    Annotated[str, msgspec.Meta(min_length=1, max_length=2)],
    Annotated[str, msgspec.Meta(pattern="^a+b")],
]
CLASSES: list[Any] = [
    Point,
    Closed,
    Tree,
    Row,
    ClosedRow,
    Pair,
    Movie,
    Cat,
    Cat | Dog,
    Cat | Dog | None,
]
KEYS: list[Any] = [
    str,
    int,
    uuid.UUID,
    Units,
    Level,
    datetime.date,
    Annotated[str, msgspec.Meta(min_length=2)],
]


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = msgspec.Meta(min_length=1, max_length=2)
    return st.one_of(
        inner.map(lambda item: list[item]),
        inner.map(lambda item: Annotated[list[item], few]),
        inner.map(lambda item: tuple[item, ...]),
        inner.map(lambda item: Optional[item]),
        st.tuples(inner, inner).map(lambda items: tuple[items]),
        st.tuples(st.sampled_from(KEYS), inner).map(lambda items: dict[items]),
        inner.map(lambda item: Annotated[dict[str, item], few]),
    )


LEAVES = st.sampled_from(
    SCALARS
    + CLASSES
    + [set[int], frozenset[str], int | str, int | float | str, list[int] | int]
)
TYPES = st.recursive(LEAVES, containers, max_leaves=4)

TEXTS = [
    "", "a", "b", "ab", "aab", "c", "metric", "imperial", "cat", "dog", "1", "01", "-0", "1.0", "1e2", " 1", "true",
    "YQ==", "YQ", "YWI=", "Y-==", "YWJj", "2025-01-02", "2025-13-01", "2025-01-02T03:04:05", "2025-01-02T03:04:05Z",
    "2025-01-02 03:04:05+01:00", "2025-01-02T03:04:05.123456789-0100", "03:04:05", "03:04:05Z", "24:00:00", "P1D", "PT1.5S", "P1Y",
    "-P1D", "P", "12345678123456781234567812345678", "12345678-1234-5678-1234-567812345678", "1_0", "NaN", "Infinity",
    "\U0001f600", "\x00", "é",
]  # fmt: skip
NUMBERS = [
    0,
    1,
    2,
    3,
    -1,
    1.0,
    2.0,
    3.0,
    -0.0,
    0.5,
    1.5,
    1e2,
    1e20,
    1e300,
    2**63,
    -(2**63) - 1,
    2**70,
]
NAMES = [
    "x",
    "y",
    "at",
    "name",
    "children",
    "leaf",
    "type",
    "lives",
    "tricks",
    "left",
    "title",
    "year",
    "1",
    "ab",
]

VALUES = st.recursive(
    st.sampled_from([None, True, False, *NUMBERS, *TEXTS]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)


def fitting(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    """Return values for a schema, most of them right, and some wrong in one place."""
    if "$ref" in schema:
        return st.deferred(
            lambda: fitting(
                root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root
            )
        )
    if "anyOf" in schema:
        return st.one_of([fitting(member, root) for member in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        return fitting_object(schema, root)
    if kind == "array":
        first = [fitting(item, root) for item in schema.get("prefixItems", ())]
        further = st.lists(fitting(schema.get("items", {}), root), max_size=2)
        lengths = st.integers(schema.get("minItems", 0), len(first))
        return (
            st.tuples(st.tuples(*first), lengths).map(
                lambda found: list(found[0][: found[1]])
            )
            if first
            else further
        )
    numbers = st.sampled_from(NUMBERS)
    simple = {
        "string": st.sampled_from(TEXTS),
        "integer": numbers,
        "number": numbers,
        "boolean": st.booleans(),
    }
    return st.none() if kind == "null" else simple.get(kind, VALUES)


def fitting_object(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    required = schema.get("required", [])
    properties = {
        name: fitting(part, root) for name, part in schema.get("properties", {}).items()
    }
    known = st.fixed_dictionaries(
        {name: properties[name] for name in required if name in properties},
        optional={
            name: part for name, part in properties.items() if name not in required
        },
    )
    values = schema.get("additionalProperties")
    if not isinstance(values, dict):
        return known
    further = st.dictionaries(
        st.sampled_from([*NAMES, *TEXTS]), fitting(values, root), max_size=2
    )
    return st.tuples(further, known).map(lambda both: {**both[0], **both[1]})


@st.composite
def nearly_fitting(draw: st.DrawFn, schema: Any) -> Any:
    """Return a value that fits, half of the time with a part replaced, removed or
    added.
    """
    value = copy.deepcopy(draw(fitting(schema, schema)))
    place = value
    for _ in range(draw(st.integers(0, 4))):
        if not place or not isinstance(place, (dict, list)):
            break
        key = draw(
            st.sampled_from(
                list(place) if isinstance(place, dict) else list(range(len(place)))
            )
        )
        if not isinstance(place[key], (dict, list)) or draw(st.booleans()):
            change = draw(st.sampled_from(["replace", "remove", "nothing"]))
            if change == "replace":
                place[key] = draw(VALUES)
            elif change == "remove":
                del place[key]
            break
        place = place[key]
    if isinstance(place, dict) and draw(st.integers(0, 5)) == 0:
        place[draw(st.sampled_from(NAMES))] = draw(VALUES)
    return value


def function_of(types: dict[str, Any], optional: set[str]) -> Callable[..., Any]:
    """Return a function with these parameters. Optional ones have the default None."""
    namespace: dict[str, Any] = {}
    parameters = ", ".join(
        f"{name}=None" if name in optional else name for name in types
    )
    exec(f"def function(*, {parameters}): ...", namespace)
    function: Callable[..., Any] = namespace["function"]
    function.__annotations__ = {
        name: Optional[kind] if name in optional else kind
        for name, kind in types.items()
    }
    return function


@st.composite
def signatures(draw: st.DrawFn) -> Parameters:
    types = draw(
        st.dictionaries(
            st.sampled_from(["x", "y", "_z", "__w", "class_"]),
            TYPES,
            min_size=1,
            max_size=3,
        )
    )
    return Parameters(function_of(types, draw(st.sets(st.sampled_from(list(types))))))


def accepts(parameters: Parameters, value: Any) -> bool:
    try:
        arguments = parameters.decode(json.dumps(value).encode())
    except InvalidArguments as error:
        assert error.reason.startswith(
            ("$", "Missing required argument: ", "Unknown argument: ")
        )
        return False
    except InvalidParams as error:
        assert error.reason.startswith("$: expected object, got ")
        return False
    assert set(arguments) == set(parameters.schema["properties"])
    return True


def agree(parameters: Parameters, value: Any) -> None:
    validator = jsonschema.Draft202012Validator(
        parameters.schema, format_checker=FORMATS
    )
    error = next(iter(validator.iter_errors(value)), None)
    assert accepts(parameters, value) is (error is None), error and error.message


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(parameters=signatures(), data=st.data())
def test_the_decoder_and_the_schema_agree(parameters: Parameters, data: st.DataObject):
    jsonschema.Draft202012Validator.check_schema(parameters.schema)
    for _ in range(3):
        agree(parameters, data.draw(nearly_fitting(parameters.schema)))


@settings(max_examples=100)
@given(parameters=signatures(), value=VALUES)
def test_they_agree_on_any_value(parameters: Parameters, value: Any):
    agree(parameters, value)
    agree(parameters, dict.fromkeys(parameters.schema["properties"], value))


@pytest.mark.parametrize("kind", SCALARS + CLASSES, ids=str)
def test_they_agree_on_every_type_and_every_sample(kind: Any):
    parameters = Parameters(function_of({"x": kind}, set()))
    for sample in [
        None,
        True,
        [],
        {},
        [1],
        ["a"],
        [None, 1],
        {"x": 1.0},
        {"type": "cat"},
        *NUMBERS,
        *TEXTS,
    ]:
        agree(parameters, {"x": sample})


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_they_agree_on_the_names_of_objects(key: Any):
    parameters = Parameters(function_of({"x": dict[key, int]}, set()))
    for text in TEXTS:
        agree(parameters, {"x": {text: 1}})


@settings(max_examples=100)
@given(kind=TYPES, data=st.data())
def test_output_passes_exactly_when_it_fits_its_schema(kind: Any, data: st.DataObject):
    def function(): ...

    function.__annotations__ = {"return": kind}
    returned = Returned(function)
    if returned.schema is None:
        return
    value = data.draw(nearly_fitting(returned.schema))
    fits = jsonschema.Draft202012Validator(
        returned.schema, format_checker=FORMATS
    ).is_valid(value)
    try:
        assert msgspec.json.decode(returned.encode(value)) == value
        assert fits
    except ValueError as error:
        assert not fits, error


@pytest.mark.load
@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=1500)
@given(parameters=signatures(), data=st.data())
def test_the_decoder_and_the_schema_agree_on_many(
    parameters: Parameters, data: st.DataObject
):
    for _ in range(3):
        agree(parameters, data.draw(nearly_fitting(parameters.schema)))
