"""pydantic's models and fields as arguments, results, forms and prompt arguments."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import annotated_types
import jsonschema
import msgspec
import pydantic
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from typing_extensions import TypedDict  # pydantic accepts no other before Python 3.12

from mcp_trio import Context, Server
from mcp_trio.client.errors import RemoteError
from mcp_trio.protocol.errors import InvalidArguments
from mcp_trio.protocol.types import Json
from mcp_trio.server.schema.forms import form_schema
from mcp_trio.server.schema.signature import Parameters, Returned
from tests.support.checked import connect


class Kind(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    zip_code: int = Field(alias="zip", ge=10_000)


class Person(BaseModel):
    """Somebody."""

    name: str = Field(min_length=1, description="Full name")
    address: Address | None = None
    friends: list["Person"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


@dataclass
class Order:
    count: Annotated[int, Field(ge=1)]
    buyer: Person


class Options(TypedDict, total=False):
    size: Annotated[int, Field(le=10)]
    owner: Person


class Point(msgspec.Struct):
    x: int


class PointOf(msgspec.Struct):
    person: Person


def must_be_even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


Even = Annotated[int, AfterValidator(must_be_even)]


def parameters_of(annotation: Any) -> Parameters:
    """Return the parameters of a function with one parameter, `x`."""

    def function(x): ...  # type: ignore[no-untyped-def]

    function.__annotations__ = {"x": annotation}
    parameters = Parameters(function)
    jsonschema.Draft202012Validator.check_schema(parameters.schema)
    return parameters


def decoded(annotation: Any, raw: str) -> Any:
    return parameters_of(annotation).decode(b'{"x":%b}' % raw.encode())["x"]


def refusal(annotation: Any, raw: str) -> str:
    with pytest.raises(InvalidArguments) as caught:
        decoded(annotation, raw)
    return caught.value.reason


def schema_of(annotation: Any) -> Any:
    return parameters_of(annotation).schema["properties"]["x"]


ADA = Person(name="Ada", address=Address(street="Main St", zip=12345))
ADA_JSON = '{"name":"Ada","address":{"street":"Main St","zip":12345}}'


# Arguments


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (Person, ADA_JSON, ADA),
        (list[Person], f"[{ADA_JSON}]", [ADA]),
        (dict[str, Person], f'{{"a":{ADA_JSON}}}', {"a": ADA}),
        (Person | None, "null", None),
        (Person | None, ADA_JSON, ADA),
        (Order, f'{{"count":1,"buyer":{ADA_JSON}}}', Order(1, ADA)),
        (Options, '{"size":3}', {"size": 3}),
        (Pet, '{"kind":"cat","lives":9}', Cat(kind="cat", lives=9)),
        (list[Pet], '[{"kind":"dog","name":"Rex"}]', [Dog(kind="dog", name="Rex")]),
        (Annotated[int, Field(ge=1)], "1", 1),
        (Annotated[int, Field(ge=1)], "1.0", 1),
        (
            Annotated[datetime, Field()],
            '"2025-01-01T00:00:00Z"',
            datetime(2025, 1, 1, tzinfo=UTC),
        ),
        (Annotated[Decimal, Field(max_digits=3)], '"1.25"', Decimal("1.25")),
        (Annotated[Kind, Field()], '"red"', Kind.RED),
        (Even, "4", 4),
        (Annotated[int, annotated_types.Ge(1)], "1", 1),
        (Annotated[int, annotated_types.Interval(ge=1, le=3)], "2", 2),
        (pydantic.PositiveInt, "1", 1),
        (SecretStr, '"a"', SecretStr("a")),
    ],
)
def test_an_argument_is_decoded_by_pydantic(
    annotation: Any, raw: str, value: Any
) -> None:
    assert decoded(annotation, raw) == value


@pytest.mark.parametrize(
    ("annotation", "raw", "reason"),
    [
        (
            Annotated[int, Field(ge=1)],
            "0",
            "$.x: input should be greater than or equal to 1, got 0",
        ),
        (
            Annotated[int, Field(ge=1)],
            '"1"',
            "$.x: input should be a valid integer, got a string",
        ),
        (
            Person,
            '{"name":"Ada","address":{"street":"Main St","zip":1}}',
            "$.x.address.zip: input should be greater than or equal to 10000, got 1",
        ),
        (
            Person,
            '{"name":"Ada","address":{"street":"Main St","zip_code":12345}}',
            "$.x.address.zip: missing",
        ),
        (
            list[Person],
            f'[{ADA_JSON},{{"name":""}}]',
            "$.x[1].name: string should have at least 1 character, got a string",
        ),
        (Person, '{"name":"a","friends":[{}]}', "$.x.friends[0].name: missing"),
        (
            Pet,
            '{"kind":"cat","lives":"nine"}',
            "$.x.lives: input should be a valid integer, got a string",
        ),
        (
            Pet,
            '{"kind":"cow"}',
            "$.x: input tag 'cow' found using 'kind' does not match any of the expected tags: 'cat', 'dog'",
        ),
        (
            Order,
            f'{{"count":0,"buyer":{ADA_JSON}}}',
            "$.x.count: input should be greater than or equal to 1, got 0",
        ),
        (
            Options,
            '{"size":11}',
            "$.x.size: input should be less than or equal to 10, got 11",
        ),
        (Even, "3", "$.x: must be even"),
        (
            Annotated[int | str, Field()],
            "null",
            "$.x: input should be a valid integer or input should be a valid string, got null",
        ),
        (
            Annotated[Kind, Field()],
            '"green"',
            "$.x: input should be 'red' or 'blue', got \"green\"",
        ),
        (Annotated[datetime, Field()], "5", None),
        (
            Annotated[Decimal, Field()],
            '"x"',
            "$.x: input should be a valid decimal, got a string",
        ),
        (
            Person,
            '{"address":{}}',
            "$.x.name: missing; $.x.address.street: missing; $.x.address.zip: missing",
        ),
        (
            Annotated[SecretStr, Field(min_length=9)],
            '"hunter2"',
            "$.x: value should have at least 9 items after validation, not 7, got a string",
        ),
    ],
)
def test_an_argument_that_does_not_fit_is_one_message_with_its_place(
    annotation: Any, raw: str, reason: str | None
) -> None:
    found = refusal(annotation, raw)
    assert "\n" not in found
    assert found.startswith("$.x") if reason is None else found == reason


def test_a_message_names_at_most_five_problems() -> None:
    reason = refusal(list[int] | list[Person], "[{},{},{},{},{},{},{}]")
    assert reason.endswith("; and 9 more")


def test_a_missing_or_unknown_argument_is_reported_as_for_other_types() -> None:
    parameters = parameters_of(Person)
    with pytest.raises(InvalidArguments, match="Missing required argument: x"):
        parameters.decode(b"{}")
    with pytest.raises(
        InvalidArguments, match="Unknown argument: y; known arguments: x"
    ):
        parameters.decode(b'{"x":%b,"y":1}' % ADA_JSON.encode())


def test_pydantic_makes_the_schema() -> None:
    assert schema_of(Annotated[int, Field(ge=1, description="How many")]) == {
        "type": "integer",
        "minimum": 1,
        "description": "How many",
    }
    assert schema_of(Annotated[Person | None, "Who"])["description"] == "Who"
    schema = parameters_of(Person).schema
    assert schema["properties"]["x"] == {"$ref": "#/$defs/Person"}
    assert schema["$defs"]["Person"]["properties"]["friends"]["items"] == {
        "$ref": "#/$defs/Person"
    }
    assert "zip" in schema["$defs"]["Address"]["properties"]
    assert schema["required"] == ["x"]


def test_descriptions_are_also_read_from_the_docstring() -> None:
    def function(person: Person, size: Annotated[int, Field(description="Ours")]): ...  # type: ignore[no-untyped-def]

    function.__doc__ = """Do it.

    Args:
        person: For whom
        size: Theirs
    """
    properties = Parameters(function).schema["properties"]
    assert properties["person"]["description"] == "For whom"
    assert properties["size"]["description"] == "Ours"


def test_classes_of_one_name_have_a_schema_each() -> None:
    def struct_person() -> type:
        class Person(msgspec.Struct):
            age: int

        return Person

    def other_model() -> type:
        class Person(BaseModel):
            height: float

        return Person

    def function(a, b, c, d): ...  # type: ignore[no-untyped-def]

    function.__annotations__ = {
        "a": Person,
        "b": struct_person(),
        "c": other_model(),
        "d": Person,
    }
    schema = Parameters(function).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = {
        "a": {"name": "A"},
        "b": {"age": 1},
        "c": {"height": 1},
        "d": {"name": "A"},
    }
    jsonschema.Draft202012Validator(schema).validate(valid)
    for name in valid:
        wrong = valid | {name: {}}
        assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)
    assert schema["properties"]["a"] == schema["properties"]["d"]


def test_defaults_are_in_the_schema_and_are_copied() -> None:
    class Numbers(BaseModel):
        numbers: list[int] = []

    def function(  # type: ignore[no-untyped-def]
        a: Numbers = Numbers(),
        b: Annotated[int, Field(ge=1)] = 5,
        c: int = Field(6, ge=1),
        d: list[int] = Field(default_factory=list, max_length=3),
        e: Person | None = None,
    ): ...

    parameters = Parameters(function)
    properties = parameters.schema["properties"]
    assert "required" not in parameters.schema
    defaults = {name: schema["default"] for name, schema in properties.items()}
    assert defaults == {
        "a": {"numbers": []},
        "b": 5,
        "c": 6,
        "d": [],
        "e": None,
    }
    assert properties["c"]["minimum"] == 1
    first = parameters.decode(b"{}")
    first["a"].numbers.append(1)
    first["d"].append(1)
    assert parameters.decode(b"{}") == {
        "a": Numbers(),
        "b": 5,
        "c": 6,
        "d": [],
        "e": None,
    }


def test_a_field_in_place_of_a_default_is_required_without_one() -> None:
    def function(a: int = Field(description="How many")): ...  # type: ignore[no-untyped-def]

    schema = Parameters(function).schema
    assert schema["required"] == ["a"]
    assert schema["properties"]["a"] == {"type": "integer", "description": "How many"}


def test_a_default_inside_the_annotation_makes_an_argument_optional() -> None:
    parameters = parameters_of(Annotated[int, Field(default=3)])
    assert "required" not in parameters.schema
    assert parameters.decode(b"{}") == {"x": 3}


def test_metadata_inside_a_collection_counts() -> None:
    assert schema_of(list[Annotated[int, Field(ge=1)]])["items"]["minimum"] == 1
    assert refusal(dict[str, Annotated[int, Field(ge=1)]], '{"a":0}').startswith(
        "$.x.a: "
    )


# What is refused at registration


class OddStruct(msgspec.Struct):
    x: Annotated[int, "a number", 5]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (PointOf, r"mixes the msgspec Struct PointOf with Person of pydantic"),
        (list[PointOf], r"mixes the msgspec Struct PointOf with Person"),
        (dict[str, Person | Point], r"mixes the msgspec Struct Point with Person"),
        (Annotated[Point, Field(description="a")], r"mixes the msgspec Struct Point with FieldInfo"),
        (Annotated[int, Field(ge=1), msgspec.Meta(le=3)], r"mixes msgspec.Meta\(le=3\) with FieldInfo"),
        (Annotated[int, object], r"has <class 'object'> in Annotated, which is not supported"),
        (Annotated[int, Field(ge=1), 5], r"has 5 in Annotated, which is not supported"),
        (Annotated[int, annotated_types.Unit("m")], r"has Unit\(unit='m'\) in Annotated"),
        (list[Annotated[int, 5]], r"has 5 in Annotated"),
        (OddStruct, r"has 5 in Annotated"),
        (Annotated[int, Field(alias="y")], r"has the alias 'y', which parameters do not support"),
        (Annotated[str, Field(ge=1), AfterValidator(must_be_even), 5.5], r"has 5.5 in Annotated"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_registration(
    annotation: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=rf"^function\(\): parameter 'x' {message}"):
        parameters_of(annotation)


def test_a_bad_default_is_refused_at_registration() -> None:
    def function(a: Annotated[int, Field(ge=1)] = 0): ...  # type: ignore[no-untyped-def]

    with pytest.raises(
        TypeError, match="'a' has the default 0, which is not of its type: "
    ):
        Parameters(function)


def test_a_model_without_a_schema_is_refused_at_registration() -> None:
    class Odd(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        server: Server[Any]

    with pytest.raises(TypeError, match=r"parameter 'x' has type .*Odd"):
        parameters_of(Odd)


def test_any_number_of_models_is_refused_at_registration() -> None:
    def function(**people: Person): ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="and has a pydantic type; use one parameter"):
        Parameters(function)


def test_unknown_metadata_in_a_result_is_refused_at_registration() -> None:
    def function() -> Annotated[int, 5]: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match=r"the return type has 5 in Annotated"):
        Returned(function)


# Without pydantic


def test_a_string_in_annotated_is_a_description() -> None:
    @dataclass
    class Movie:
        title: Annotated[str, "What it is called"]
        tags: list[Annotated[str, "A word"]]

    schema = parameters_of(Annotated[Movie, "Which"]).schema
    assert schema["properties"]["x"]["description"] == "Which"
    movie = schema["$defs"]["Movie"]["properties"]
    assert movie["title"] == {"type": "string", "description": "What it is called"}
    assert movie["tags"]["items"] == {"type": "string", "description": "A word"}
    meta = Annotated[int, msgspec.Meta(ge=1), "How many"]
    assert schema_of(meta) == {
        "type": "integer",
        "minimum": 1,
        "description": "How many",
    }
    assert refusal(meta, "0") == "$.x: expected integer >= 1"


def test_a_string_describes_a_field_of_a_typed_dict_and_of_a_generic_class() -> None:
    from typing import Generic, NotRequired, TypeVar

    T = TypeVar("T")

    class Box(msgspec.Struct, Generic[T]):
        held: Annotated[T, "What is in it"]

    class Settings(TypedDict):
        size: NotRequired[Annotated[int, "How large"]]

    Settings.__annotations__["size"] = NotRequired[Annotated[int, "How large"]]
    box = parameters_of(Box[int]).schema["$defs"]
    (written,) = box.values()
    assert written["properties"]["held"] == {
        "type": "integer",
        "description": "What is in it",
    }
    settings = parameters_of(Settings).schema["$defs"]["Settings"]["properties"]
    assert settings["size"] == {"type": "integer", "description": "How large"}


def test_a_server_without_pydantic_does_not_import_it() -> None:
    program = (
        "import sys; from typing import Annotated; from mcp_trio import Server\n"
        "server = Server('x')\n"
        "@server.tool\n"
        "def f(a: Annotated[int, 'How many'] = 1) -> list[int]: return [a]\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# Results


class Area(BaseModel):
    width: int = Field(serialization_alias="w", default=1)
    height: Decimal = Decimal(2)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> Decimal:
        return self.width * self.height


def output_of(annotation: Any, value: Any) -> Any:
    def function(): ...  # type: ignore[no-untyped-def]

    function.__annotations__["return"] = annotation
    returned = Returned(function)
    found = msgspec.json.decode(returned.encode(value))
    if returned.schema is not None:
        jsonschema.Draft202012Validator(returned.schema).validate(found)
    return found


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Area, Area(), {"w": 1, "height": "2", "area": "2"}),
        (list[Area], [Area()], [{"w": 1, "height": "2", "area": "2"}]),
        (Person, ADA, {"name": "Ada", "address": {"street": "Main St", "zip": 12345}, "friends": []}),
        (Person, {"name": "Ada"}, {"name": "Ada", "address": None, "friends": []}),
        (Person | None, None, None),
        (Pet, Cat(kind="cat", lives=9), {"kind": "cat", "lives": 9}),
        (Annotated[int, Field(ge=1)], 1, 1),
        (Order, Order(1, Person(name="B")), {"count": 1, "buyer": {"name": "B", "address": None, "friends": []}}),
        (Annotated[datetime, Field()], datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01T00:00:00Z"),
        (Any, Area(), {"w": 1, "height": "2", "area": "2"}),
        (dict[str, Any], {"a": [Area()]}, {"a": [{"w": 1, "height": "2", "area": "2"}]}),
    ],
)  # fmt: skip
def test_a_result_is_encoded_by_pydantic_and_fits_its_schema(
    annotation: Any, value: Any, expected: Any
) -> None:
    assert output_of(annotation, value) == expected


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Person, {"nam": "Ada"}, r"^\$\.name: missing$"),
        (Annotated[int, Field(ge=1)], 0, r"^\$: input should be greater than"),
        (list[Person], [ADA, 5], r"^\$\[1\]: "),
        (Person, object(), "object"),
    ],
)
def test_a_result_that_does_not_fit_is_a_value_error(
    annotation: Any, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        output_of(annotation, value)


def test_the_schema_of_a_result_is_an_objects() -> None:
    def function() -> Person: ...  # type: ignore[empty-body]

    returned = Returned(function)
    assert returned.is_object
    assert returned.schema is not None
    assert returned.schema["properties"]["friends"]["items"] == {
        "$ref": "#/$defs/Person"
    }


# Servers


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2026-07-28"])
async def test_a_tool_takes_and_returns_models(revision: str) -> None:
    server = Server("x")

    @server.tool
    async def older(person: Person, by: Annotated[int, Field(ge=1)] = 1) -> Address:
        """Return the address, some houses on."""
        assert person.address is not None
        return Address(street=person.address.street, zip=person.address.zip_code + by)

    @server.resource("people://ada")
    async def ada() -> Person:
        return ADA

    async with connect(server, revision) as client:
        result = await client.call_tool(
            "older", {"person": msgspec.json.decode(ADA_JSON)}
        )
        address = msgspec.json.decode(result.text)
        assert address == {"street": "Main St", "zip": 12346}
        if revision > "2025":
            assert result.structured == {"street": "Main St", "zip": 12346}
        contents = await client.read_resource("people://ada")
        assert '"zip":12345' in contents[0]["text"]


class Booking(BaseModel):
    """A table."""

    name: str = Field(min_length=1, description="For whom")
    seats: int = Field(2, ge=1, le=8)
    kind: Kind = Kind.RED
    meals: list[Literal["soup", "fish"]] = []
    email: str | None = Field(None, json_schema_extra={"format": "email"})


def test_a_model_is_a_form() -> None:
    schema = form_schema(Booking, lists=True)
    assert schema["required"] == ["name"]
    assert schema["properties"] == {
        "name": {"type": "string", "title": "Name", "description": "For whom", "minLength": 1},
        "seats": {"type": "integer", "title": "Seats", "minimum": 1, "maximum": 8, "default": 2},
        "kind": {"type": "string", "title": "Kind", "enum": ["red", "blue"], "default": "red"},
        "meals": {"type": "array", "title": "Meals", "items": {"type": "string", "enum": ["soup", "fish"]}, "default": []},
        "email": {"type": "string", "title": "Email", "format": "email"},
    }  # fmt: skip
    with pytest.raises(
        TypeError, match=r"Person\.address: expected a form's field to be"
    ):
        form_schema(Person, lists=True)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_user_fills_in_a_model(revision: str) -> None:
    server = Server("x")

    @server.tool
    async def book(ctx: Context) -> str:
        """Book a table."""
        answer = await ctx.elicit("For whom?", Booking)
        assert isinstance(answer.content, Booking)
        return f"{answer.content.name}: {answer.content.seats}"

    seats: Any = 3.0

    async def answer(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"name": "Ada", "seats": seats}}

    capabilities: Json = {"elicitation": {}}
    async with connect(
        server, revision, capabilities=capabilities, answer=answer
    ) as client:
        assert (await client.call_tool("book")).text == "Ada: 3"
        seats = 9
        try:
            reason = (await client.call_tool("book")).text
        except RemoteError as error:
            reason = str(error)
        assert "$.seats: input should be less than or equal to 8, got 9" in reason
