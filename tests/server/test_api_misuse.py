"""Wrong use of the API is an error at once, with the given and the expected value."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import trio

import mcp_trio
from mcp_trio import Context, Server


async def function() -> str:
    return "x"


async def generator() -> AsyncIterator[str]:
    yield "x"


def plain_generator() -> Iterator[str]:
    yield "x"


async def with_argument(a: str) -> str:
    return a


async def with_list(a: list[str]) -> str:
    return ""


async def with_object(a: object, b: Callable[[], int]) -> str:
    return "x"


async def with_star(*a: int) -> str:
    return "x"


async def two_contexts(a: Context, b: Context) -> str:
    return "x"


class Thing:
    async def method(self):  # type: ignore[no-untyped-def]
        return "x"


def twice(add: Callable[[], Any]) -> None:
    add()
    add()


def make_server_with_a_prompt() -> Server:
    server = Server("x")

    @server.prompt
    async def prompt(a: str) -> str:
        return a

    return server


Case = tuple[str, Callable[[Server], Any], type[Exception], str]
CASES: list[Case] = [
    (
        "two tools of one name",
        lambda s: twice(lambda: s.tool(function)),
        ValueError,
        "the tool 'function' already exists",
    ),
    (
        "two prompts of one name",
        lambda s: twice(lambda: s.prompt(function)),
        ValueError,
        "the prompt 'function' already exists",
    ),
    (
        "two resources of one URI",
        lambda s: twice(lambda: s.resource("a://b")(function)),
        ValueError,
        "resource 'a://b'",
    ),
    (
        "a tool that is a class",
        lambda s: s.tool(Thing),
        TypeError,
        "@server.tool: expected a function, got <class",
    ),
    (
        "a tool that is no function",
        lambda s: s.tool(5),
        TypeError,
        "@server.tool: expected a function, got 5",
    ),
    (
        "a tool given its name",
        lambda s: s.tool("name"),
        TypeError,
        "got 'name'; for a name, write @server.tool(name='name')",
    ),
    (
        "a tool that is a generator",
        lambda s: s.tool(generator),
        TypeError,
        "that returns its result",
    ),
    (
        "a tool that is a plain generator",
        lambda s: s.tool(plain_generator),
        TypeError,
        "got the generator function",
    ),
    (
        "a coroutine in place of a function",
        lambda s: s.tool(closed(function())),
        TypeError,
        "expected a function",
    ),
    (
        "a prompt that is a class",
        lambda s: s.prompt(Thing),
        TypeError,
        "@server.prompt: expected a function",
    ),
    (
        "a resource that is a class",
        lambda s: s.resource("a://b")(Thing),
        TypeError,
        "@server.resource: expected a function",
    ),
    (
        "a resource without its URI",
        lambda s: s.resource(function),
        TypeError,
        "@server.resource('notes://{id}')",
    ),
    (
        "a completer that is a class",
        lambda s: s.complete("prompt", "a")(Thing),
        TypeError,
        "@server.complete: expected a function",
    ),
    (
        "an unknown option",
        lambda s: s.tool(nmae="x")(function),
        TypeError,
        "Server.tool() got an unexpected keyword argument 'nmae'",
    ),
    (
        "an unknown option of a prompt",
        lambda s: s.prompt(nmae="x")(function),
        TypeError,
        "Server.prompt() got an unexpected keyword argument 'nmae'",
    ),
    (
        "a size of a prompt",
        lambda s: s.prompt(size=1)(function),
        TypeError,
        "Server.prompt() got an unexpected keyword argument 'size'",
    ),
    (
        "a name that is a number",
        lambda s: s.tool(name=5)(function),
        TypeError,
        "@server.tool(name): expected a string",
    ),
    (
        "a title that is a number",
        lambda s: s.tool(title=5)(function),
        TypeError,
        "Tool(title): expected str | None, got 5",
    ),
    (
        "icons in words",
        lambda s: s.tool(icons=["http://x"])(function),
        TypeError,
        "Tool(icons): expected list[Icon]",
    ),
    (
        "annotations as a dict",
        lambda s: s.tool(annotations={"readOnlyHint": "yes"})(function),
        TypeError,
        "Tool(annotations): expected ToolAnnotations | None, got {",
    ),
    (
        "a size in words",
        lambda s: s.resource("r://a", size="big")(function),
        TypeError,
        "Resource(size): expected int | None",
    ),
    (
        "a number as MIME type",
        lambda s: s.resource("r://a", mime_type=5)(function),
        TypeError,
        "Resource(mime_type)",
    ),
    (
        "a schema in a list",
        lambda s: s.tool(input_schema=[1])(function),
        ValueError,
        "input_schema of function(): expected",
    ),
    (
        "an output schema in a list",
        lambda s: s.tool(output_schema=[1])(function),
        ValueError,
        "got [1]",
    ),
    (
        "a method of no object",
        lambda s: s.tool(Thing.method),
        TypeError,
        "Thing.method(): expected a bound method",
    ),
    (
        "an empty name",
        lambda s: s.tool(name=" ")(function),
        ValueError,
        "expected 1 to 128 characters, each of A-Z a-z 0-9 _ - ., got ' '",
    ),
    (
        "a name with a space",
        lambda s: s.tool(name="a b")(function),
        ValueError,
        "got 'a b'",
    ),
    (
        "a name that is too long",
        lambda s: s.tool(name="a" * 129)(function),
        ValueError,
        "1 to 128",
    ),
    (
        "a name with a newline",
        lambda s: s.tool(name="a\n")(function),
        ValueError,
        "server.tool(name): expected 1 to 128",
    ),
    (
        "a lambda without a name",
        lambda s: s.tool(lambda: "x"),
        ValueError,
        "got '<lambda>'",
    ),
    (
        "a timeout of nothing",
        lambda s: s.tool(timeout=0)(function),
        ValueError,
        "server.tool(timeout): expected a positive number of seconds, got 0",
    ),
    (
        "a timeout below nothing",
        lambda s: s.tool(timeout=-1)(function),
        ValueError,
        "got -1",
    ),
    (
        "a timeout that is no number",
        lambda s: s.tool(timeout=float("nan"))(function),
        ValueError,
        "got nan",
    ),
    ("a timeout in words", lambda s: s.tool(timeout="5")(function), ValueError, "'5'"),
    ("an unsupported type", lambda s: s.tool(with_object), TypeError, "with_object"),
    (
        "arguments with a star",
        lambda s: s.tool(with_star),
        TypeError,
        "*a has no JSON form",
    ),
    (
        "two contexts",
        lambda s: s.tool(two_contexts),
        TypeError,
        "second parameter of the type Context",
    ),
    (
        "a schema that is none",
        lambda s: s.tool(input_schema={"type": "objekt"})(function),
        ValueError,
        "input_schema",
    ),
    (
        "a schema of no object",
        lambda s: s.tool(input_schema={"type": "array"})(function),
        ValueError,
        '"type": "object"',
    ),
    (
        "an output schema that is none",
        lambda s: s.tool(output_schema={"type": 5})(function),
        ValueError,
        "output_schema",
    ),
    (
        "an unsupported dialect",
        lambda s: s.tool(output_schema={"$schema": "http://example.com/mine"})(
            function
        ),
        ValueError,
        "'http://example.com/mine'; supported are",
    ),
    (
        "a URI without a scheme",
        lambda s: s.resource("notes/1")(function),
        ValueError,
        "expected a URI with a scheme",
    ),
    (
        "a variable too many",
        lambda s: s.resource("a://{b}")(function),
        TypeError,
        "got ['b'] in the URI and none in the function",
    ),
    (
        "a variable too few",
        lambda s: s.resource("a://b")(with_argument),
        TypeError,
        "got none in the URI",
    ),
    (
        "a variable of another name",
        lambda s: s.resource("a://{b}")(with_argument),
        TypeError,
        "the same names",
    ),
    (
        "a variable that is a list",
        lambda s: s.resource("a://{a}")(with_list),
        TypeError,
        "is sent as a string",
    ),
    (
        "a prompt's argument that is a list",
        lambda s: s.prompt(with_list),
        TypeError,
        "argument 'a' is sent as a string",
    ),
    (
        "a completer for nothing",
        lambda s: s.complete("none", "a")(with_argument),
        ValueError,
        "expected a prompt or a resource template",
    ),
    (
        "a completer for no argument",
        lambda s: s.complete("prompt", "z")(with_argument),
        ValueError,
        "'z'",
    ),
    (
        "two completers for one argument",
        lambda s: twice(lambda: s.complete("prompt", "a")(with_argument)),
        ValueError,
        "already has a completer",
    ),
    (
        "a completer without a parameter",
        lambda s: s.complete("prompt", "a")(function),
        TypeError,
        "the text so far",
    ),
    (
        "a lifespan that does not yield",
        lambda s: s.lifespan(function),
        TypeError,
        "yields once",
    ),
    (
        "a lifespan that is not async",
        lambda s: s.lifespan(plain_generator),
        TypeError,
        "@server.lifespan: expected an async",
    ),
    (
        "two lifespans",
        lambda s: twice(lambda: s.lifespan(generator)),
        ValueError,
        "already has a lifespan",
    ),
    (
        "removing an unknown tool",
        lambda s: s.remove_tool("none"),
        KeyError,
        "the tool 'none' does not exist",
    ),
    (
        "removing an unknown resource",
        lambda s: s.remove_resource("a://none"),
        KeyError,
        "the resource 'a://none' does not exist",
    ),
    (
        "removing an unknown prompt",
        lambda s: s.remove_prompt("none"),
        KeyError,
        "the prompt 'none' does not exist",
    ),
    ("a name that is none", lambda s: Server(5), TypeError, "got 5"),  # type: ignore[arg-type]
    (
        "no name at all",
        lambda s: Server(""),
        TypeError,
        "Server(name): expected a non-empty string, got ''",
    ),
    (
        "a version that is a number",
        lambda s: Server("x", version=5),
        TypeError,
        "(version): expected str, got 5",
    ),  # type: ignore[arg-type]
    (
        "a server's icons in words",
        lambda s: Server("x", icons=["https://i"]),
        TypeError,
        "(icons): expected list[Icon]",
    ),  # type: ignore[list-item]
    (
        "instructions in a list",
        lambda s: Server("x", instructions=["a"]),
        TypeError,
        "Server(instructions): expected",
    ),  # type: ignore[arg-type]
    (
        "a secret that is a number",
        lambda s: Server("x", secret=5),
        TypeError,
        "Server(secret): expected str | bytes",
    ),  # type: ignore[arg-type]
    ("pages in words", lambda s: Server("x", pages="3"), ValueError, "got '3'"),  # type: ignore[arg-type]
    ("pages of a fraction", lambda s: Server("x", pages=1.5), ValueError, "got 1.5"),  # type: ignore[arg-type]
    ("pages that are true", lambda s: Server("x", pages=True), ValueError, "got True"),
    (
        "a timeout that is true",
        lambda s: Server("x", timeout=True),
        ValueError,
        "Server(timeout): expected",
    ),
    (
        "no grace",
        lambda s: Server("x", grace=None),
        ValueError,
        "Server(grace): expected",
    ),  # type: ignore[arg-type]
    (
        "a grace that is false",
        lambda s: Server("x", grace=False),
        ValueError,
        "Server(grace): expected",
    ),
    (
        "an unknown profile",
        lambda s: Server("x", profile="purse"),
        ValueError,
        "Server(profile): expected pocket or None, got 'purse'",
    ),
    (
        "pages of nothing",
        lambda s: Server("x", pages=0),
        ValueError,
        "at least 1, got 0",
    ),
    (
        "a server's timeout of nothing",
        lambda s: Server("x", timeout=0),
        ValueError,
        "timeout",
    ),
    (
        "a server's timeout below nothing",
        lambda s: Server("x", timeout=-1),
        ValueError,
        "timeout",
    ),
    (
        "a grace below nothing",
        lambda s: Server("x", grace=-1),
        ValueError,
        "Server(grace): expected",
    ),
]


def closed(coroutine: Any) -> Any:
    coroutine.close()
    return coroutine


@pytest.mark.parametrize(
    ("misuse", "error", "says"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_misuse_is_an_error_that_says_what_is_wrong(
    misuse: Callable[[Server], Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        misuse(make_server_with_a_prompt())
    assert says in str(caught.value)


def test_a_failed_registration_leaves_nothing_behind() -> None:
    server = Server("x")
    with pytest.raises(TypeError):
        server.tool(with_object)
    assert len(server.tools) == 0
    server.tool(name="with_object")(function)
    assert len(server.tools) == 1


def test_a_decorated_function_stays_what_it_was() -> None:
    server = Server("x")
    assert server.tool(function) is function
    assert server.tool(name="again")(function) is function
    assert server.prompt(function) is function
    assert server.resource("a://b")(function) is function
    assert server.add_tool(Thing().method).__name__ == "method"
    assert server.lifespan(generator) is generator


async def test_running_where_a_loop_runs_already_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"await server.serve\(stdio=True\)"):
        Server("x").run()
    with pytest.raises(RuntimeError, match="in the main thread, to handle signals"):
        await trio.to_thread.run_sync(Server("x").run)


def test_what_the_documentation_names_can_be_imported() -> None:
    for name in mcp_trio.__all__:
        assert getattr(mcp_trio, name) is not None
    assert issubclass(mcp_trio.Elicit, mcp_trio.Question)
    assert mcp_trio.Tool("x").name == "x"


async def test_serving_on_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to serve on"):
        await Server("x").serve()
