"""Messages that only a broken or hostile client sends."""

from __future__ import annotations

from typing import Any

from .behaviour import PAGES
from .methods import CONTENT
from .playing import DEMO, VENDOR, Json, Said, cancelled, note

LONG = 2_000
BOM = b"\xef\xbb\xbf"
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def bare(**message: Any) -> Json:
    """Return a message with only these keys."""
    return message


def rpc(**message: Any) -> Json:
    """Return a JSON-RPC message with these keys."""
    return {"jsonrpc": "2.0", **message}


def ping(**more: Any) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": "ping", **more}


def call(name: Any, arguments: Any, **more: Any) -> Json:
    return rpc(
        id="call",
        method="tools/call",
        params={"name": name, "arguments": arguments, **more},
    )


def read(uri: Any) -> Json:
    return rpc(id="read", method="resources/read", params={"uri": uri})


def quoted(*texts: str) -> list[Said]:
    """Return calls of echo whose texts are inserted into the JSON unchanged."""
    return [
        b'{"jsonrpc":"2.0","id":"e","method":"tools/call","params":{"name":"echo","arguments":{"text":"%b"}}}'
        % text.encode("utf-8", "surrogatepass")
        for text in texts
    ]


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + b"1" + closing * depth


ENVELOPES: list[Said] = [
    b"{}",
    b"null",
    b"1.5",
    b'"ping"',
    b"[1]",
    bare(id=1, method="ping"),
    bare(jsonrpc="1.0", id=2, method="ping"),
    bare(jsonrpc=2.0, id=3, method="ping"),
    rpc(id=4, method=7),
    rpc(id=5, method=None),
    rpc(id=None, method="ping"),
    rpc(id=1.5, method="ping"),
    rpc(id=True, method="ping"),
    rpc(id=[6], method="ping"),
    rpc(id={}, method="ping"),
    rpc(id=7),
    rpc(id=8, method="tools/list", params="all"),
    rpc(id=9, method="tools/list", params=[1]),
    rpc(id=10, method="tools/list", params=None),
    b"{",
    b"\xff",
]

# Name -> title, notes, server, and the messages. They are sent in a session of the
# latest revision that has sessions.
LISTED: dict[str, tuple[str, str, str, list[Said]]] = {
    "no-json": (
        "Lines that are no JSON",
        "Cut off, two on a line, with single quotes, with a comma too many: a parse error, whose id nobody knows.",
        DEMO,
        [
            b"ping",
            b"{",
            PING[:-1],
            PING * 2,
            b"{'id':1}",
            b'{"id":1,}',
            b"{}}",
            b"NaN",
            b"<html>",
        ],
    ),
    "no-utf-8": (
        "Bytes that are no UTF-8",
        "A stray byte, an overlong slash, half a character, a surrogate in UTF-8, all of it in UTF-16.",
        DEMO,
        [
            b"\xff\xfe",
            b'{"jsonrpc":"2.0","id":1,"method":"ping\xff"}',
            b'{"jsonrpc":"2.0","id":2,"method":"\xc0\xaf"}',
            b'{"jsonrpc":"2.0","id":"\xe2\x82","method":"ping"}',
            b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}',
            PING.decode().encode("utf-16-le"),
        ],
    ),
    "byte-order-mark": (
        "Byte order marks",
        "Only at the very start of the input is one passed over.",
        DEMO,
        [BOM + PING, BOM, BOM * 2 + PING, PING + BOM],
    ),
    "deep-nesting": (
        "Values within values without end",
        "Arrays, objects, and both in an argument: what is nested too deeply is a parse error, and no crash.",
        CONTENT,
        [
            b"[" * 20_000,
            nested(b"[", b"]", 5_000),
            nested(b'{"a":', b"}", 5_000),
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":%b}}'
            % nested(b"[", b"]", 5_000),
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"keep","arguments":{"a":%b}}}'
            % nested(b'{"b":', b"}", 5_000),
        ],
    ),
    "empty-array": (
        "Arrays where none are taken",
        "Empty, of nothing, of numbers, of arrays, of a ping.",
        DEMO,
        [b"[]", b"[null]", b"[1,2]", b"[[]]", b"[%b]" % PING, b" [ ] ", b"["],
    ),
    "missing-jsonrpc": (
        "Messages that do not say what they are",
        "Without jsonrpc, or with another one. Where it has an id, that is answered.",
        DEMO,
        [
            bare(id=1, method="ping"),
            bare(jsonrpc="1.0", id=2, method="ping"),
            bare(jsonrpc=2.0, id=3, method="ping"),
            bare(jsonrpc=None, id=4, method="ping"),
            bare(jsonrpc="2.0 ", id=5, method="ping"),
            bare(jsonrpc="3.0", method="notifications/initialized"),
        ],
    ),
    "methods-of-odd-types": (
        "Methods that are no strings",
        "Numbers, nothing, objects; then strings that are near a method.",
        DEMO,
        [
            *[
                rpc(id=1, method=method)
                for method in (7, None, True, [], ["ping"], {}, {"name": "ping"})
            ],
            *[
                rpc(id=2, method=method)
                for method in (
                    "",
                    " ping",
                    "ping\n",
                    "PING",
                    "tools/list/",
                    "tools//list",
                )
            ],
            *[
                rpc(id=3, method=method)
                for method in ("rpc.discover", "__init__", "constructor", "x" * LONG)
            ],
        ],
    ),
    "params-of-odd-types": (
        "Params that are no objects",
        "An error that says so, under the request's id.",
        DEMO,
        [
            rpc(id=1, method="tools/list", params=params)
            for params in (None, 1, "", "all", True, [], [1], [{}], 1.5)
        ],
    ),
    "ids-of-odd-types": (
        "Ids that are none",
        "Null, fractions, truth, arrays and objects are refused; whoever sent them hears it without an id.",
        DEMO,
        [
            *[
                rpc(id=id, method="ping")
                for id in (None, 1.5, True, False, [], [1], {}, {"id": 1})
            ],
            b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":1e3,"method":"ping"}',
        ],
    ),
    "huge-ids": (
        "Ids without measure",
        "Beyond 64 bits, beyond all floats, and long ones; those that can be told back are.",
        DEMO,
        [
            rpc(id=2**63 - 1, method="ping"),
            rpc(id=2**64, method="ping"),
            b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % 10**40,
            b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":-%b,"method":"ping"}' % (b"9" * 1_000),
            rpc(id="x" * LONG, method="ping"),
        ],
    ),
    "huge-numbers": (
        "Numbers without measure",
        "As arguments of a tool that wants an integer, of one that takes anything, and where the envelope has none.",
        CONTENT,
        [
            *[
                b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%b","arguments":{"x":%b}}}'
                % (tool, x)
                for tool in (b"point", b"keep")
                for x in (
                    b"1e308",
                    b"-0.0",
                    b"1e-400",
                    b"1e400",
                    b"1%b" % (b"0" * 60),
                    b"0.1%b" % (b"0" * 60),
                    b"01",
                )
            ],
            b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":1e999999}}',
        ],
    ),
    "duplicate-keys": (
        "Keys that come twice",
        "The last one counts; one of the wrong type is refused wherever it stands.",
        CONTENT,
        [
            b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"number"}}',
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"number"},"method":"ping"}',
            b'{"jsonrpc":"2.0","id":3,"id":4,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":5,"id":null,"method":"ping"}',
            b'{"jsonrpc":"1.0","jsonrpc":"2.0","id":6,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"crash","name":"number"}}',
            b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"keep","arguments":{"a":1,"a":2}}}',
            b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"point","arguments":{"x":1,"x":2}}}',
        ],
    ),
    "wrong-case-keys": (
        "Keys in other letters",
        "They are other keys: what is wanted is missing.",
        CONTENT,
        [
            rpc(id=1, Method="ping"),
            rpc(ID=2, method="ping"),
            bare(JSONRPC="2.0", id=3, method="ping"),
            rpc(id=4, method="tools/call", Params={"name": "number"}),
            rpc(id=5, method="tools/call", params={"Name": "number"}),
            rpc(
                id=6,
                method="tools/call",
                params={"name": "echo", "Arguments": {"text": "x"}},
            ),
            call("echo", {"Text": "x"}),
        ],
    ),
    "more-keys": (
        "Keys that nobody has asked for",
        "Beside a request's own they change nothing; a request that is a response too is a request.",
        DEMO,
        [
            ping(evil=True),
            ping(result={}),
            ping(error={"code": 1, "message": "x"}),
            ping(params={"evil": {"a": [1]}, "_meta": {"evil": 1}}),
            call("calculate_sum", {"a": 1, "b": 2}, evil=1, task={"ttl": 1}),
        ],
    ),
    "prototype-keys": (
        "Keys that mean something elsewhere",
        "Here they are keys like any other: kept where anything is, refused where they are not wanted.",
        CONTENT,
        [
            call(
                "keep",
                {
                    "__proto__": {"admin": True},
                    "constructor": {"prototype": {}},
                    "__class__": "x",
                },
            ),
            call("echo", {"text": "x", "__proto__": {"text": "y"}}),
            call("point", {"x": 1, "__init__": 1, "self": 2}),
            b'{"jsonrpc":"2.0","id":1,"method":"ping","__proto__":{"method":"tools/call"}}',
            call("__proto__", {}),
            rpc(
                id=2,
                method="prompts/get",
                params={"name": "constructor", "arguments": {"__proto__": "x"}},
            ),
        ],
    ),
    "lone-surrogates": (
        "Halves of characters",
        "They are no text, so that what holds them is a parse error; two halves in order are a character.",
        CONTENT,
        [
            *quoted(r"\ud800", r"\udc00\ud800", r"a\ud83db", r"\ud83d\ude00"),
            rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}',
            rb'{"jsonrpc":"2.0","id":1,"method":"\udfff"}',
            rb'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"\ud800"}}',
            rb'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"keep","arguments":{"\ud800":1}}}',
        ],
    ),
    "control-characters": (
        "Characters that control something",
        "Escaped they are part of a string; raw they are no JSON.",
        CONTENT,
        [
            *quoted(
                r"a\u0000b",
                r"\u001b[31mred\u001b[0m",
                r"\u0007\b\f\r\n\t\u007f",
                r"\u009b2J",
                r"\u202etxt.exe",
            ),
            *quoted(
                "a\0b",
                "a\tb",
                "a\x1b[2Jb",
                "a\rb",
                "a\x7fb",
                "\u2028\u2029",
                "\ufeff",
                "\u200b",
                "\ufffe",
            ),
            PING[:1] + b"\0" + PING[1:],
            PING[:1] + b"\t\r " + PING[1:],
            b"\0" * 10,
        ],
    ),
    "strings-that-look-like-json": (
        "Strings that look like JSON",
        "They stay strings, whatever stands in them.",
        CONTENT,
        [
            *[
                call("echo", {"text": text})
                for text in ("123", '"123"', '{"a":1}', "null", "true", "[1]", "1e400")
            ],
            call("echo", '{"text":"x"}'),
            call("point", {"x": "1"}),
            call("echo", {"text": 123}),
            call("echo", {"text": {"text": "x"}}),
        ],
    ),
    "arguments-of-odd-types": (
        "Arguments that are no objects",
        "Refused as params that do not fit, or as arguments that do not.",
        CONTENT,
        [
            call("echo", arguments)
            for arguments in (
                None,
                [],
                ["x"],
                "x",
                1,
                True,
                {"text": None},
                {"": 1},
                {"text": []},
            )
        ],
    ),
    "names-of-odd-types": (
        "Names of tools that are none",
        "Types, tricks with paths and case, and a very long one.",
        CONTENT,
        [
            *[call(name, {}) for name in (None, 1, [], {}, True)],
            *[
                call(name, {})
                for name in (
                    "",
                    " echo",
                    "ECHO",
                    "echo\0",
                    "../echo",
                    "echo/../crash",
                    "__init__",
                )
            ],
            call("x" * LONG, {}),
        ],
    ),
    "path-tricks": (
        "URIs that want to lead elsewhere",
        "A template's variable is one segment of a path, and no file is ever looked for.",
        CONTENT,
        [
            *[
                read(uri)
                for uri in (
                    "file:///etc/passwd",
                    "../../etc/passwd",
                    "notes://../words",
                    "notes://1/../2",
                )
            ],
            *[
                read(uri)
                for uri in (
                    "notes://..%2f..%2fetc/words",
                    "notes://%2e%2e/words",
                    "notes://%00/words",
                )
            ],
            *[
                read(uri)
                for uri in (
                    "notes://a/b/words",
                    "notes:///words",
                    "NOTES://1",
                    "notes://1\0",
                    "notes://1#x",
                )
            ],
            *[
                read(uri)
                for uri in (
                    "notes://%zz/words",
                    "notes://%ff/words",
                    "",
                    " ",
                    "x" * LONG,
                    "http://[::1",
                    "\\\\h\\c",
                )
            ],
        ],
    ),
    "cancelling-nothing": (
        "Cancellations of what does not run",
        "Unknown ids, ids of what has ended, of itself, of odd types: all are passed over without a word.",
        DEMO,
        [
            cancelled("nobody"),
            ping(),
            cancelled(1),
            cancelled(0),
            *[
                note("notifications/cancelled", {"requestId": id})
                for id in (None, 1.5, True, [], {}, "", -1)
            ],
            note("notifications/cancelled"),
            note("notifications/cancelled", {}),
            note("notifications/cancelled", {"requestId": 1, "reason": {"a": 1}}),
            rpc(
                id="own", method="notifications/cancelled", params={"requestId": "own"}
            ),
        ],
    ),
    "answers-never-asked-for": (
        "Answers to questions that were never put",
        "Results and errors under ids that nobody has given out; both in one; neither. None is answered but what is no"
        " message at all.",
        DEMO,
        [
            rpc(id="ask-1", result={}),
            rpc(id="ask-0000000000000000", result={"action": "accept"}),
            rpc(id=1, result=None),
            rpc(id=2, error={"code": -1, "message": "x"}),
            rpc(id=None, error={"code": -32700, "message": "Parse error"}),
            rpc(error={"code": -32700, "message": "Parse error"}),
            rpc(id=3, result={}, error={"code": 1, "message": "x"}),
            rpc(id=4),
            rpc(result={}),
            rpc(id=[5], result={}),
        ],
    ),
    "odd-progress-tokens": (
        "Progress tokens of odd types",
        "A string and an integer are tokens, also empty ones and zero; nothing else is.",
        DEMO,
        [
            rpc(
                id=id,
                method="tools/call",
                params={
                    "name": "count_slowly",
                    "arguments": {"steps": 1, "seconds": 0},
                    "_meta": {"progressToken": token},
                },
            )
            for id, token in enumerate(
                ("", 0, -1, 2**63, None, 1.5, True, [], {}, "x" * LONG), 1
            )
        ],
    ),
    "odd-meta": (
        "`_meta` of odd types",
        "It is an object, or an error; what nobody knows in it is nobody's concern.",
        DEMO,
        [
            *[ping(params={"_meta": meta}) for meta in (None, [], "x", 1)],
            ping(params={"_meta": {"": 1, "a/b": {"c": [1]}, "x" * LONG: None}}),
            ping(params={"_meta": {VENDOR + "logLevel": "loud"}}),
            ping(params={"_meta": {VENDOR + "protocolVersion": 7}}),
            ping(params={"_meta": {VENDOR + "clientCapabilities": {}}}),
        ],
    ),
    "odd-notifications": (
        "Notifications that are none",
        "Unknown ones, requests without an id, with params of any type: a notification is never answered.",
        CONTENT,
        [
            note("notifications/unknown"),
            note("notifications/progress", {"progressToken": None}),
            rpc(method="ping"),
            rpc(method="tools/call", params={"name": "crash"}),
            rpc(method="notifications/initialized", params=7),
            rpc(method="notifications/initialized", params=[]),
            rpc(method="initialize", params={}),
            rpc(method=""),
        ],
    ),
    "odd-levels": (
        "Log levels that there are not",
        "The level stays what it was.",
        CONTENT,
        [
            *[
                rpc(id=1, method="logging/setLevel", params={"level": level})
                for level in ("loud", "DEBUG", "", None, 0, ["debug"])
            ],
            rpc(id=2, method="logging/setLevel"),
        ],
    ),
    "odd-subscriptions": (
        "Subscriptions to what there is not",
        "Types, unknown URIs, and the end of what never began.",
        CONTENT,
        [
            *[
                rpc(id=1, method="resources/subscribe", params={"uri": uri})
                for uri in (None, 1, [], "", "none://", "notes://1/../2")
            ],
            rpc(id=2, method="resources/unsubscribe", params={"uri": ["notes://1"]}),
            rpc(id=3, method="resources/unsubscribe", params={"uri": "none://"}),
        ],
    ),
    "odd-completions": (
        "Completions of nothing",
        "References of no kind, arguments that are none, others of odd types.",
        DEMO,
        [
            rpc(id=1, method="completion/complete", params=params)
            for name in ["write_postcard"]
            for params in (
                {},
                {"ref": None, "argument": {"name": "city", "value": ""}},
                {
                    "ref": {"type": "ref/prompt"},
                    "argument": {"name": "city", "value": ""},
                },
                {
                    "ref": {"type": "ref/prompt", "name": name},
                    "argument": {"name": "__proto__", "value": ""},
                },
                {
                    "ref": {"type": "ref/prompt", "name": name},
                    "argument": {"name": "city", "value": 7},
                },
                {
                    "ref": {"type": "ref/prompt", "name": name},
                    "argument": {"name": "city", "value": "\0" * 100},
                },
                {
                    "ref": {"type": "ref/resource", "uri": "../"},
                    "argument": {"name": "name", "value": ""},
                },
                {
                    "ref": {"type": "ref/prompt", "name": name},
                    "argument": {"name": "city", "value": ""},
                    "context": 1,
                },
            )
        ],
    ),
    "odd-prompts": (
        "Prompts with arguments that are none",
        "They are strings, under names that the prompt has.",
        CONTENT,
        [
            rpc(
                id=1,
                method="prompts/get",
                params={"name": "illustrate", "arguments": arguments},
            )
            for arguments in (
                None,
                [],
                "x",
                {"subject": 7},
                {"subject": None},
                {"subject": {}},
                {"subject": "x", "y": "z"},
            )
        ],
    ),
    "blank-lines": (
        "Lines with nothing on them",
        "They are passed over; line ends of other systems are white space.",
        DEMO,
        [b"", b"   ", b"\t", b"\r", PING + b"\r", b"  " + PING + b"  "],
    ),
    "forged-cursors": (
        "Cursors that were made up",
        "To look like the server's own, with what may break who reads them; an error, and no page.",
        PAGES,
        [
            rpc(id=1, method=method, params={"cursor": cursor})
            for method in ("tools/list", "resources/list")
            for cursor in (
                *(
                    "YWZ0ZXI6LTE=",
                    "YWZ0ZXI6OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
                    "YWZ0ZXI6MToy",
                    "YWZ0ZXI6",
                    "YWZ0ZXI6MS4w",
                ),
                *(
                    "YWZ0ZXI6wrI=",
                    "2",
                    "../..",
                    "\0",
                    "ä",
                    "=",
                    "Y",
                    "x" * LONG,
                    None,
                    2,
                    ["YWZ0ZXI6Mg=="],
                ),
            )
        ],
    ),
}
