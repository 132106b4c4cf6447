# ruff: noqa: UP007, UP045 (long tables; the older spellings of unions are tested too)
from __future__ import annotations

import datetime
import enum
import functools
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Optional,
    TypedDict,
    Union,
)

import attrs
import jsonschema
import msgspec
import pytest

from mcp_trio.protocol.errors import InvalidArguments, InvalidParams
from mcp_trio.server.schema.signature import Parameters, Returned

if TYPE_CHECKING:
    import elsewhere  # type: ignore[import-not-found]
    from elsewhere import Missing


class Context:
    pass


class SpecialContext(Context):
    pass


@dataclass
class Point:
    """A place on the map.

    Attributes:
        x: To the right.
    """

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


class Tree(msgspec.Struct):
    children: list[Tree] = []


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


class Row(msgspec.Struct, array_like=True):
    key: str
    count: int = 0


class Movie(TypedDict, total=False):
    title: str
    genre: Literal["western", "drama"]


class Pair(NamedTuple):
    left: int
    right: str = ""


@attrs.define
class Size:
    width: float
    height: float


class Units(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


class Level(enum.IntEnum):
    HIGH = 3
    LOW = 1


class Text(msgspec.Struct):
    text: str


class Image(msgspec.Struct):
    data: bytes


def schema_of(annotation: Any) -> Any:
    """Return the schema of one parameter."""

    def function(x): ...

    function.__annotations__ = {"x": annotation}
    schema = Parameters(function).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema["properties"]["x"]


def decoded(annotation: Any, raw: str) -> Any:
    def function(x): ...

    function.__annotations__ = {"x": annotation}
    return Parameters(function).decode(b'{"x":' + raw.encode() + b"}")["x"]


def output_of(function: Any, value: Any) -> Any:
    return msgspec.json.decode(Returned(function).encode(value))


def refusal(function: Callable[..., Any], raw: bytes, **options: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        Parameters(function, **options).decode(raw)
    return caught.value.reason


async def get_weather(
    location: str, units: Literal["metric", "imperial"] = "metric"
) -> str:
    """Get current weather information for a location.

    Args:
        location: City name or zip code.
    """


def add(a: int, b: int) -> int:
    return a + b


def test_a_signature_becomes_a_schema():
    assert Parameters(get_weather).schema == {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "City name or zip code."},
            "units": {
                "type": "string",
                "enum": ["metric", "imperial"],
                "default": "metric",
            },
        },
        "required": ["location"],
        "additionalProperties": False,
    }


def test_keywords_and_properties_stand_in_their_natural_order():
    def function(z: int, a: int, m: int = 0): ...

    schema = Parameters(function).schema
    assert list(schema) == ["type", "properties", "required", "additionalProperties"]
    assert list(schema["properties"]) == ["z", "a", "m"]


def test_a_function_without_parameters_takes_the_empty_object():
    def function(): ...

    parameters = Parameters(function)
    assert parameters.schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert parameters.decode(b"{}") == {}


def test_required_is_absent_when_nothing_is():
    def function(a: int = 1): ...

    assert "required" not in Parameters(function).schema


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.time, {"type": "string", "format": "time"}),
        (datetime.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (None | int, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Literal[3, 1], {"type": "integer", "enum": [3, 1]}),
        (Literal["x", None], {"enum": ["x", None]}),
        (list[Literal["b", "a"]], {"type": "array", "items": {"type": "string", "enum": ["b", "a"]}}),
        (Units, {"type": "string", "enum": ["metric", "imperial"]}),
        (Level, {"type": "integer", "enum": [3, 1]}),
        (Annotated[int, msgspec.Meta(ge=0, lt=9)], {"type": "integer", "minimum": 0, "exclusiveMaximum": 9}),
        (Annotated[str, msgspec.Meta(min_length=1, pattern="^a")], {"type": "string", "minLength": 1, "pattern": "^a"}),
        (Annotated[list[int], msgspec.Meta(max_length=2)], {"type": "array", "items": {"type": "integer"}, "maxItems": 2}),
        (Annotated[int, msgspec.Meta(description="How many", title="N")], {"type": "integer", "description": "How many", "title": "N"}),
        (tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (dict[int, str], {"type": "object", "propertyNames": {"pattern": r"^-?(?:0|[1-9]\d*)$"}, "additionalProperties": {"type": "string"}}),
        (dict[Units, Any], {"type": "object", "propertyNames": {"enum": ["metric", "imperial"]}}),
    ],
)  # fmt: skip
def test_each_type_has_its_schema(annotation: Any, schema: Any):
    assert schema_of(annotation) == schema


def test_bytes_are_base64_and_the_schema_says_which_text_is():
    schema = schema_of(bytes)
    assert schema["contentEncoding"] == "base64"
    jsonschema.validate("aGk=", schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate("aGk", schema)
    assert decoded(bytes, '"aGk="') == b"hi"


def test_classes_go_under_defs_with_their_descriptions():
    def function(at: Point, then: Optional[Point] = None): ...

    schema = Parameters(function).schema
    assert schema["properties"]["at"] == {"$ref": "#/$defs/Point"}
    assert schema["properties"]["then"] == {
        "anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}],
        "default": None,
    }
    assert schema["$defs"] == {
        "Point": {
            "description": "A place on the map.",
            "type": "object",
            "properties": {
                "x": {"type": "integer", "description": "To the right."},
                "y": {"type": "integer", "default": 0},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "required": ["x"],
        }
    }


def test_a_recursive_class_refers_to_itself():
    def function(tree: Tree): ...

    parameters = Parameters(function)
    assert parameters.schema["$defs"]["Tree"]["properties"]["children"]["items"] == {
        "$ref": "#/$defs/Tree"
    }
    assert parameters.decode(b'{"tree":{"children":[{}]}}') == {"tree": Tree([Tree()])}


def test_two_classes_of_one_name_are_kept_apart():
    def another() -> type:
        @dataclass
        class Point:
            z: float

        return Point

    def function(a, b): ...

    function.__annotations__ = {"a": Point, "b": another()}
    schema = Parameters(function).schema
    assert schema["properties"] == {
        "a": {"$ref": "#/$defs/Point"},
        "b": {"$ref": "#/$defs/Point_"},
    }
    assert list(schema["$defs"]["Point_"]["properties"]) == ["z"]


def test_literals_within_classes_keep_their_order():
    def function(movie: Movie): ...

    assert Parameters(function).schema["$defs"]["Movie"]["properties"]["genre"][
        "enum"
    ] == ["western", "drama"]


def test_tagged_structs_are_distinguished_by_their_tags():
    def function(pet: Union[Cat, Dog]): ...

    parameters = Parameters(function)
    assert parameters.schema["properties"]["pet"] == {
        "anyOf": [
            {"$ref": "#/$defs/Cat", "required": ["type"]},
            {"$ref": "#/$defs/Dog", "required": ["type"]},
        ]
    }
    assert parameters.schema["$defs"]["Cat"]["properties"]["type"] == {
        "type": "string",
        "enum": ["cat"],
    }
    assert parameters.decode(b'{"pet":{"type":"dog","tricks":[]}}') == {"pet": Dog([])}


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (Point, '{"x":1}', Point(1)),
        (Movie, '{"title":"High Noon"}', {"title": "High Noon"}),
        (Pair, '[1,"a"]', Pair(1, "a")),
        (Pair, "[1]", Pair(1)),
        (Row, '["a"]', Row("a")),
        (Size, '{"width":1,"height":2.5}', Size(1, 2.5)),
        (Units, '"metric"', Units.METRIC),
        (datetime.date, '"2025-02-03"', datetime.date(2025, 2, 3)),
        (Decimal, '"1.50"', Decimal("1.50")),
        (set[int], "[1,2,1]", {1, 2}),
        (dict[int, str], '{"1":"a"}', {1: "a"}),
        (int, "1.0", 1),
        (int, "-2e2", -200),
        (list[int], "[1,2.0]", [1, 2]),
        (Literal[1, 2], "2.0", 2),
        (Level, "3.0", Level.HIGH),
        (str, '"123"', "123"),
        (str, '"{\\"a\\":1}"', '{"a":1}'),
        (int, str(2**70), 2**70),
        (Decimal, "1.10", Decimal("1.10")),
    ],
)
def test_arguments_become_typed_values(annotation: Any, raw: str, value: Any):
    result = decoded(annotation, raw)
    assert result == value
    assert type(result) is type(value)


def test_numbers_keep_their_digits_where_another_argument_is_written_as_1_0():
    def function(a: int, b: Decimal): ...

    assert Parameters(function).decode(b'{"a":1.0,"b":0.12345678901234567890}')[
        "b"
    ] == Decimal("0.12345678901234567890")


@pytest.mark.parametrize(
    ("annotation", "raw", "reason"),
    [
        (str, "1", "$.x: expected string, got integer"),
        (int, '"123"', "$.x: expected integer, got string"),
        (int, "true", "$.x: expected integer, got boolean"),
        (int, "1.5", "$.x: expected integer, got number"),
        (Optional[int], '"a"', "$.x: expected integer or null, got string"),
        (list[int], '[1,"a"]', "$.x[1]: expected integer, got string"),
        (Point, '{"x":"a"}', "$.x.x: expected integer, got string"),
        (Point, "{}", "$.x.x: missing"),
        (dict[int, int], '{"a":1}', "$.x: a key: expected integer, got string"),
        (Literal["b", "a"], '"c"', "$.x: expected one of 'b', 'a', got 'c'"),
        (Annotated[int, msgspec.Meta(ge=3)], "1", "$.x: expected integer >= 3"),
        (datetime.date, '"soon"', "$.x: invalid RFC3339 encoded date"),
        (set, "[[]]", "$: unhashable type: 'list'"),
        (int, "1e999999999", "$.x: number out of range"),
        (int, f"1e{10**30}", "$.x: number out of range"),
        (str, f"-1e-{10**30}", "$.x: expected string, got number"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(
    annotation: Any, raw: str, reason: str
):
    with pytest.raises(InvalidArguments) as caught:
        decoded(annotation, raw)
    assert caught.value.reason == reason


def test_the_first_missing_argument_is_named():
    assert refusal(get_weather, b"{}") == "Missing required argument: location"
    assert refusal(add, b"{}") == "Missing required argument: a"


def test_an_unknown_argument_is_named_and_so_are_the_known():
    assert (
        refusal(get_weather, b'{"location":"x","foo":1}')
        == "Unknown argument: foo; known arguments: location, units"
    )
    assert (
        refusal(lambda: None, b'{"foo":1}')
        == "Unknown argument: foo; there are no arguments"
    )


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"[1]", "$: expected object, got array"),
        (b'"x"', "$: expected object, got string"),
        (b"1", "$: expected object, got integer"),
        (b"true", "$: expected object, got boolean"),
        (b"null", "$: expected object, got null"),
    ],
)
def test_a_value_that_is_not_an_object_is_not_a_matter_of_the_schema(
    raw: bytes, reason: str
):
    def by_hand(a, b): ...

    for parameters in (Parameters(add), Parameters(by_hand, input_schema=BY_HAND)):
        with pytest.raises(InvalidParams) as caught:
            parameters.decode(raw)
        assert not isinstance(caught.value, InvalidArguments)
        assert caught.value.reason == reason


def test_arguments_that_are_nested_too_deep_are_refused():
    raw = b'{"a":[' + b"[" * 100_000 + b"]" * 100_000 + b'],"b":1}'
    assert refusal(add, raw) == "$: nested too deep"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"a":\xff}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":NaN}',
        b'{"a":1}{}',
    ],
)
def test_invalid_json_is_refused(raw: bytes):
    def function(a): ...

    assert refusal(function, raw).startswith("$: ")


def test_deep_nesting_is_refused():
    def function(a, b: int): ...

    deep = b"[" * 100_000 + b"]" * 100_000
    assert refusal(function, b'{"a":' + deep + b',"b":1}') == "$: nested too deep"
    assert refusal(function, b'{"b":1.5,"a":' + deep + b"}").startswith("$")


def test_defaults_are_filled_in_and_never_shared():
    def function(
        a: list[int] = [1], b: dict[str, int] = {}, c: Point = Point(1), d: str = "d"
    ): ...

    parameters = Parameters(function)
    first, second = parameters.decode(b"{}"), parameters.decode(b"{}")
    assert first == second == {"a": [1], "b": {}, "c": Point(1), "d": "d"}
    assert all(first[name] is not second[name] for name in "abc")
    assert parameters.schema["properties"]["c"]["default"] == {
        "x": 1,
        "y": 0,
        "tags": [],
    }


@pytest.mark.parametrize(
    "name",
    [
        "__x",
        "_y",
        "self_",
        "class_",
        "in_",
        "cls",
        "__init__",
        "__post_init__",
        "__dict__",
        "_",
    ],
)
def test_a_parameter_may_have_any_name(name: str):
    namespace: dict[str, Any] = {}
    exec(f"def function({name}: int, z: int = 2): ...", namespace)
    parameters = Parameters(namespace["function"])
    assert parameters.decode(f'{{"{name}":1}}'.encode()) == {name: 1, "z": 2}
    assert list(parameters.schema["properties"]) == [name, "z"]


def test_no_annotation_takes_any_json():
    def function(a, b=None): ...

    parameters = Parameters(function)
    assert parameters.schema["properties"] == {"a": {}, "b": {"default": None}}
    assert parameters.decode(b'{"a":[1,{"b":null}]}') == {
        "a": [1, {"b": None}],
        "b": None,
    }


def test_further_arguments_go_into_kwargs():
    def function(a: int, ctx: Context, **rest): ...

    parameters = Parameters(function, injected=Context)
    assert "additionalProperties" not in parameters.schema
    assert parameters.decode(b'{"a":1.0,"b":"x"}') == {"a": 1, "b": "x"}
    assert (
        refusal(function, b'{"a":1,"ctx":2}', injected=Context)
        == "Unknown argument: ctx"
    )


def test_kwargs_may_have_a_type():
    def function(**counts: int): ...

    parameters = Parameters(function)
    assert parameters.schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": {"type": "integer"},
    }
    assert parameters.decode(b'{"a":1}') == {"a": 1}
    assert refusal(function, b'{"a":"x"}') == "$[...]: expected integer, got string"


def test_keyword_only_and_positional_only_parameters():
    def function(a: int, /, b: int, *, c: int = 3, d: int):
        return a, b, c, d

    parameters = Parameters(function)
    assert parameters.schema["required"] == ["a", "b", "d"]
    assert parameters.call(**parameters.decode(b'{"a":1,"b":2,"d":4}')) == (1, 2, 3, 4)
    assert Parameters(add).call is add


class Calculator:
    """Calculates."""

    def add(self, a: int, b: int) -> int:
        """Add.

        Args:
            a: The first.
        """
        return a + b

    def __call__(self, a: int) -> int:
        """:param a: The only."""
        return a


def test_methods_partials_wrapped_functions_and_callable_objects():
    @functools.wraps(get_weather)
    def wrapped(*args: Any, **kwargs: Any) -> Any: ...

    assert Parameters(wrapped).schema == Parameters(get_weather).schema
    assert Parameters(Calculator().add).schema["properties"] == {
        "a": {"type": "integer", "description": "The first."},
        "b": {"type": "integer"},
    }
    assert list(Parameters(functools.partial(add, 1)).schema["properties"]) == ["b"]
    assert Parameters(functools.partial(add, b=1)).schema["properties"]["b"] == {
        "type": "integer",
        "default": 1,
    }
    assert Parameters(Calculator()).schema["properties"] == {
        "a": {"type": "integer", "description": "The only."}
    }


def test_meta_wins_over_the_docstring():
    def function(a: Annotated[int, msgspec.Meta(description="Of Meta")]):
        """:param a: Of the docstring"""

    assert Parameters(function).schema["properties"]["a"]["description"] == "Of Meta"


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        SpecialContext,
        Optional[Context],
        Context | None,
        "Context",
        "Context | None",
        Annotated[Context, "x"],
    ],
)
def test_the_context_is_found_by_annotation_and_stays_out_of_the_schema(
    annotation: Any,
):
    def function(c, a: int): ...

    function.__annotations__["c"] = annotation
    parameters = Parameters(function, injected=Context)
    assert parameters.injected_name == "c"
    assert list(parameters.schema["properties"]) == ["a"]
    assert parameters.decode(b'{"a":1}') == {"a": 1}


def test_the_context_may_be_imported_for_type_checkers_only():
    namespace: dict[str, Any] = {}
    exec("def function(ctx: 'Context', a: 'int'): ...", namespace)
    assert Parameters(namespace["function"], injected=Context).injected_name == "ctx"


def of_socket(x: socket.socket): ...
def of_nested_socket(x: list[dict[str, socket.socket]]): ...
def of_unresolvable(x: Missing, y: elsewhere.Thing): ...
def of_bad_default(x: int = "a"): ...  # type: ignore[assignment]
def of_two_contexts(a: Context, b: Context): ...
def of_arguments(*args: int): ...
def of_two_texts(x: Union[str, datetime.date]): ...
def of_booleans(x: Literal[True]): ...
def of_bad_limit(x: Annotated[str, msgspec.Meta(ge=1)]): ...
def of_odd_keys(x: dict[bool, int]): ...
def of_number_keys(x: dict[float, int]): ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            of_socket,
            r"^of_socket\(\): parameter 'x' has type socket.socket, which has no JSON form; use ",
        ),
        (
            of_nested_socket,
            "parameter 'x' has type socket.socket, which has no JSON form",
        ),
        (
            of_unresolvable,
            r"^of_unresolvable\(\): parameter 'x' has the annotation 'Missing', which cannot be resolved",
        ),
        (
            of_bad_default,
            r"^of_bad_default\(\): parameter 'x' has the default 'a', which is not of its type",
        ),
        (
            of_two_contexts,
            r"^of_two_contexts\(\): parameter 'b' is the second parameter of the type Context",
        ),
        (of_arguments, r"^of_arguments\(\): .*\*args has no JSON form"),
        (
            of_two_texts,
            r"^of_two_texts\(\): parameter 'x' has type .*more than one str-like type",
        ),
        (of_booleans, "use bool"),
        (of_bad_limit, "Can only set `ge` on a numeric type"),
        (of_odd_keys, "dict with keys of the type boolean"),
        (of_number_keys, "dict with keys of the type number"),
    ],
)
def test_what_cannot_be_is_refused_at_registration(function: Any, message: str):
    with pytest.raises(TypeError, match=message):
        Parameters(function, injected=Context)


BY_HAND = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 3},
        "b": {"type": "string", "format": "date"},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}


def test_a_schema_written_by_hand_is_shown_to_the_letter_and_the_signature_converts():
    def function(a, b: datetime.date): ...

    parameters = Parameters(function, input_schema=BY_HAND)
    assert parameters.schema == BY_HAND
    assert parameters.decode(b'{"a":3.0,"b":"2025-01-01"}') == {
        "a": 3.0,
        "b": datetime.date(2025, 1, 1),
    }


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"b":"x"}', "Missing required argument: a"),
        (b'{"a":3,"b":"x","c":1}', "Unknown argument: c; known arguments: a, b"),
        (b'{"a":1,"b":"x"}', "$.a: 1 is less than the minimum of 3"),
        (b'{"a":3,"b":"soon"}', "$.b: invalid RFC3339 encoded date"),
    ],
)
def test_a_schema_written_by_hand_is_checked(raw: bytes, reason: str):
    def function(a, b: datetime.date): ...

    assert refusal(function, raw, input_schema=BY_HAND) == reason


def test_only_kwargs_take_everything_that_a_schema_allows():
    def function(**arguments): ...

    parameters = Parameters(function, input_schema=BY_HAND)
    assert parameters.decode(b'{"a":3,"b":"x"}') == {"a": 3, "b": "x"}
    assert (
        refusal(function, b'{"a":3}', input_schema=BY_HAND)
        == "Missing required argument: b"
    )


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": {"a": {}}}, r"of_a\(\): expected 'a' under required"),
        ({"type": "object", "properties": {"a": {}, "z": {}}, "required": ["a"]}, r"of of_a\(\): expected the function's parameters, got 'z'"),
        ({"type": "array"}, "expected \"type\": \"object\""),
        ({"type": "objekt"}, "is not a valid JSON Schema"),
    ],
)  # fmt: skip
def test_a_schema_written_by_hand_has_to_suit_the_function(schema: Any, message: str):
    def of_a(a): ...

    with pytest.raises(ValueError, match=message):
        Parameters(of_a, input_schema=schema)


def returning(annotation: Any) -> Callable[[], Any]:
    def function(): ...

    function.__annotations__ = {"return": annotation}
    return function


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        None,
        Any,
        Text,
        list[Text],
        list[Union[Text, Image]],
        Optional[Text],
        Optional[str],
        list,
        Annotated[str, "text"],
    ],
)
def test_text_and_content_promise_no_structure(annotation: Any):
    returned = Returned(returning(annotation), content=(Text, Image))
    assert returned.schema is None
    assert not returned.is_object


def test_no_annotation_promises_no_structure():
    def function(): ...

    assert Returned(function).schema is None


@pytest.mark.parametrize(
    ("annotation", "is_object"),
    [
        (Point, True),
        (Tree, True),
        (Movie, True),
        (dict[str, int], True),
        (dict[str, Any], True),
        (int, False),
        (list[int], False),
        (list[Point], False),
        (Union[int, Point], False),
        (Pair, False),
        (bytes, False),
    ],
)
def test_a_return_type_becomes_an_output_schema(annotation: Any, is_object: bool):
    returned = Returned(returning(annotation))
    assert returned.schema is not None
    jsonschema.Draft202012Validator.check_schema(returned.schema)
    assert returned.is_object is is_object


def test_the_top_of_an_output_schema_is_written_out():
    returned = Returned(returning(Point))
    assert returned.schema is not None
    assert returned.schema["type"] == "object"
    assert "$defs" not in returned.schema
    assert Returned(returning(dict[str, Any])).schema == {"type": "object"}
    recursive = Returned(returning(Tree)).schema
    assert recursive is not None
    assert recursive["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert "Tree" in recursive["$defs"]


def test_structured_output_is_checked_as_it_will_be_on_the_wire():
    assert output_of(returning(Point), Point(1)) == {"x": 1, "y": 0, "tags": []}
    assert output_of(returning(Point), {"x": 1.0}) == {"x": 1.0}
    assert output_of(returning(dict[int, Decimal]), {1: Decimal("1.5")}) == {"1": "1.5"}
    assert output_of(returning(None), {"any": 1}) == {"any": 1}


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Point, {"x": "a"}, r"\$\.x: expected integer, got string"),
        (Point, {}, r"\$\.x: missing"),
        (float, float("nan"), r"\$: expected number, got null"),
        (int, object(), r"\$: encoding objects of type object is unsupported"),
    ],
)
def test_output_that_does_not_fit_is_a_value_error(
    annotation: Any, value: Any, message: str
):
    with pytest.raises(ValueError, match=message):
        Returned(returning(annotation)).encode(value)


def test_an_output_schema_written_by_hand_is_checked():
    returned = Returned(
        returning(None), output_schema={"type": "object", "required": ["a"]}
    )
    assert returned.is_object
    assert msgspec.json.decode(returned.encode({"a": Point(1)})) == {
        "a": {"x": 1, "y": 0, "tags": []}
    }
    with pytest.raises(ValueError, match=r"\$: 'a' is a required property"):
        returned.encode({})


def test_a_return_type_without_json_form_is_refused():
    with pytest.raises(
        TypeError,
        match=r"^function\(\): the return type has type socket.socket, which has no JSON form",
    ):
        Returned(returning(socket.socket))


def test_only_a_hand_written_schema_needs_jsonschema():
    import subprocess
    import sys

    program = "import mcp_trio.server.schema.signature as s, sys; s.Parameters(lambda a: a); sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


class Report(TypedDict):
    temperature: float
    conditions: str
    humidity: float


def test_a_typed_dict_keeps_the_order_in_which_it_was_written() -> None:
    def report() -> Report: ...

    schema = Returned(report).schema
    assert schema is not None
    assert (
        list(schema["properties"])
        == schema["required"]
        == ["temperature", "conditions", "humidity"]
    )
