"""Arguments of prompts and templates, which the protocol sends as strings."""

import datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from mcp_trio import Context, Server
from mcp_trio.client.errors import RemoteError
from mcp_trio.protocol.errors import InvalidArguments, InvalidParams
from mcp_trio.server.schema.strings import StringParameters
from tests.support.checked import ALL, connect


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


Small = Annotated[int, msgspec.Meta(ge=1, le=9)]
Positive = Annotated[int, pydantic.Field(ge=1)]


def parameters_of(annotation: Any) -> StringParameters:
    def function(x): ...  # type: ignore[no-untyped-def]

    function.__annotations__ = {"x": annotation}
    return StringParameters(function, of="prompt ask")


def parsed(annotation: Any, text: str) -> Any:
    return parameters_of(annotation).decode(msgspec.json.encode({"x": text}))["x"]


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (str, "5", "5"),
        (str, "true", "true"),
        (int, "5", 5),
        (int, "-5", -5),
        (int, "5.0", 5),
        (Small, "9", 9),
        (float, "5", 5.0),
        (float, "1e-3", 0.001),
        (bool, "true", True),
        (bool, "False", False),
        (int | None, "null", None),
        (int | None, "3", 3),
        (str | None, "null", "null"),
        (int | str, "3", "3"),
        (int | float, "2.5", 2.5),
        (Color, "red", Color.RED),
        (Level, "2", Level.HIGH),
        (Literal["a", "b"], "a", "a"),
        (Literal[1, 2], "2", 2),
        (Literal["a", 1], "1", 1),
        (Literal["a", 1], "a", "a"),
        (datetime.datetime, "2025-01-01T00:00:00Z", datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)),
        (datetime.date, "2025-01-01", datetime.date(2025, 1, 1)),
        (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90)),
        (Decimal, "1.50", Decimal("1.50")),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (Positive, "3", 3),
        (Annotated[Color, pydantic.Field()], "blue", Color.BLUE),
        (Annotated[datetime.date, pydantic.Field()], "2025-01-01", datetime.date(2025, 1, 1)),
    ],
)  # fmt: skip
def test_a_string_is_parsed(annotation: Any, text: str, value: Any) -> None:
    found = parsed(annotation, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "reason"),
    [
        (int, "abc", 'expected a string that holds an integer, got "abc"'),
        (int, "5.5", 'expected a string that holds an integer, got "5.5"'),
        (int, "", 'expected a string that holds an integer, got ""'),
        (int, "[5]", 'expected a string that holds an integer, got "[5]"'),
        (int, "true", 'expected a string that holds an integer, got "true"'),
        (float, "nan", 'expected a string that holds a number, got "nan"'),
        (float, "1e999", 'expected a string that holds a number, got "1e999"'),
        (bool, "yes", 'expected a string that holds true or false, got "yes"'),
        (bool, "1", 'expected a string that holds true or false, got "1"'),
        (int | None, "x", 'expected a string that holds an integer or null, got "x"'),
        (Small, "10", "expected integer <= 9"),
        (Literal[1, 2], "3", "expected one of 1, 2, got 3"),
        (Literal["a", 1], "b", 'expected "a" or a string that holds an integer, got "b"'),
        (Color, "green", "expected one of 'red', 'blue', got 'green'"),
        (datetime.datetime, "tomorrow", 'expected a date and time such as 1999-12-31T23:59:59Z, got "tomorrow"'),
        (datetime.datetime, "170000000", 'expected a date and time such as 1999-12-31T23:59:59Z, got "170000000"'),
        (datetime.date, "1.1.2025", 'expected a date such as 1999-12-31, got "1.1.2025"'),
        (datetime.timedelta, "1 h", 'expected a duration such as PT90S, got "1 h"'),
        (UUID, "x", 'expected a UUID, got "x"'),
        (Decimal, "x", 'expected a number, got "x"'),
        (Positive, "0", "input should be greater than or equal to 1, got 0"),
        (Positive, "x", 'expected a string that holds an integer, got "x"'),
    ],
)  # fmt: skip
def test_a_string_that_cannot_be_parsed_is_refused_in_clear_words(
    annotation: Any, text: str, reason: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parsed(annotation, text)
    assert caught.value.reason == f"$.x: {reason}"


def test_a_value_that_is_not_a_string_is_taken_too() -> None:
    assert parameters_of(int).decode(b'{"x":5}') == {"x": 5}
    with pytest.raises(InvalidArguments, match="expected integer, got boolean"):
        parameters_of(int).decode(b'{"x":true}')
    with pytest.raises(InvalidArguments, match="expected string, got integer"):
        parameters_of(str).decode(b'{"x":5}')


def test_missing_and_unknown_arguments_are_reported_as_for_other_types() -> None:
    with pytest.raises(InvalidArguments, match="Missing required argument: x"):
        parameters_of(int).decode(b"{}")
    with pytest.raises(InvalidArguments, match="Unknown argument: y"):
        parameters_of(int).decode(b'{"x":"1","y":"2"}')
    with pytest.raises(InvalidParams, match="expected object, got array"):
        parameters_of(int).decode(b"[]")


@pytest.mark.parametrize(
    "annotation", [list[str], dict[str, int], None, pydantic.BaseModel]
)
def test_what_no_string_holds_is_refused_at_registration(annotation: Any) -> None:
    if annotation is None:
        assert parsed(None, "null") is None
        return
    with pytest.raises(
        TypeError,
        match=r"^prompt ask: argument 'x' is sent as a string, which cannot be parsed as its type; use str, int",
    ):
        parameters_of(annotation)


@pytest.mark.parametrize("revision", ALL)
async def test_prompts_and_templates_parse_their_arguments(revision: str) -> None:
    server = Server("x")

    @server.prompt
    async def ask(ctx: Context, count: int, loud: bool = False) -> str:
        """Ask something."""
        return f"{count + 1} {loud}"

    @server.resource("days://{day}/{number}")
    async def day(day: datetime.date, number: int) -> str:
        """Read a day."""
        return f"{day:%d.%m.%Y} {number + 1}"

    async with connect(server, revision) as client:
        prompt = await client.get_prompt("ask", {"count": "1", "loud": "true"})
        assert prompt["messages"][0]["content"]["text"] == "2 True"
        with pytest.raises(RemoteError) as caught:
            await client.get_prompt("ask", {"count": "one"})
        assert caught.value.code == -32602
        if revision > "2024-10-07":
            assert "expected a string that holds an integer" in str(caught.value)
        (contents,) = await client.read_resource("days://2025-12-31/1")
        assert contents["text"] == "31.12.2025 2"
        with pytest.raises(RemoteError):
            await client.read_resource("days://today/1")
