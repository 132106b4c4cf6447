"""Streams of bytes that a server might divide into requests in more than one way."""

import json
from typing import NamedTuple

from tests.support.http_wire import (
    MODERN,
    message,
    modern_headers,
    request,
)

LIST = message("tools/list", {"_meta": MODERN})
BODY = json.dumps(LIST).encode()
SMUGGLE = message(
    "tools/call", {"name": "smuggled", "arguments": {}, "_meta": MODERN}, "smuggled"
)
HIDDEN = request("POST", "/mcp", modern_headers(SMUGGLE), json.dumps(SMUGGLE).encode())
CANARY = request("GET", "/healthz", {"Connection": "close"})
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
# The replies that a case may get, as `said` names them. A refusal is the last reply.
REFUSED = ["refused"]
READ = ["list", "canary"]


def posted(
    *lines: bytes,
    body: bytes = b"",
    start: bytes = b"POST /mcp HTTP/1.1",
    host: bytes = b"localhost",
) -> bytes:
    """Return a request for the list of tools, with these framing headers."""
    known = [
        b"%b: %b" % (name.encode(), value.encode())
        for name, value in modern_headers(LIST).items()
    ]
    return b"\r\n".join([start, b"Host: " + host, *known, *lines, b"", body])


def chunked(body: bytes, *lines: bytes) -> bytes:
    return posted(b"Transfer-Encoding: chunked", *lines, body=body)


def got(
    *lines: bytes, start: bytes = b"GET /healthz HTTP/1.1", body: bytes = b""
) -> bytes:
    return b"\r\n".join([start, *lines, b"", body])


LENGTH = b"Content-Length: %d" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked"
END = b"0\r\n\r\n"


class Case(NamedTuple):
    """A stream, and the replies that it must get.

    `section` is the section of the specification that says how the stream is read.
    `hypercorn` are its replies, if they differ and are also correct, and `why` says
    why.
    """

    data: bytes
    section: str
    owed: list[str] = REFUSED
    hypercorn: list[str] | None = None
    why: str = ""


EQUAL = "6.3: equal lengths may be read as a single one"
LF = "2.2: a single line feed may be read as the end of a line"
FOLD = "5.2: a fold may be replaced by a space"
BLANK = "7.1.1: blanks after a size do not change it"
CARRIAGE = (
    "2.2: a single carriage return may be read as a space, here in an ignored part"
)
IGNORED = "7.1.2: a trailer may be ignored"
EARLY = "9.6: bytes after the last request may be answered before it"

CASES = {
    # Lengths
    "a length": Case(posted(LENGTH, body=BODY), "6.2", READ),
    "chunks": Case(chunked(CHUNK + END), "7.1", READ),
    "a length before chunks": Case(posted(LENGTH, CHUNKED, body=BODY), "6.1, 6.3 (3)"),
    "chunks before a length": Case(
        posted(CHUNKED, LENGTH, body=CHUNK + END), "6.1, 6.3 (3)"
    ),
    "a length that hides a request behind chunks": Case(
        posted(b"Content-Length: %d" % len(END + HIDDEN), CHUNKED, body=END + HIDDEN),
        "6.3 (3)",
    ),
    "chunks that hide a request in a length": Case(
        posted(
            b"Content-Length: 4",
            CHUNKED,
            body=b"%x\r\n%b\r\n%b" % (len(HIDDEN), HIDDEN, END),
        ),
        "6.3 (3)",
    ),
    "two lengths": Case(posted(LENGTH, b"Content-Length: 0", body=BODY), "6.3 (5)"),
    "two lengths, the first hides a request": Case(
        posted(b"Content-Length: 0", b"Content-Length: %d" % len(HIDDEN), body=HIDDEN),
        "6.3 (5)",
    ),
    "two equal lengths": Case(
        posted(LENGTH, LENGTH, body=BODY), "6.3 (5)", REFUSED, READ, EQUAL
    ),
    "a list of equal lengths": Case(
        posted(b"Content-Length: %d, %d" % (len(BODY), len(BODY)), body=BODY),
        "6.3 (5)",
        REFUSED,
        READ,
        EQUAL,
    ),
    "a list of lengths": Case(posted(b"Content-Length: 5, 6", body=BODY), "6.3 (5)"),
    "a positive length": Case(
        posted(b"Content-Length: +%d" % len(BODY), body=BODY), "6.2"
    ),
    "a negative length": Case(posted(b"Content-Length: -1", body=BODY), "6.2"),
    "a length of nothing": Case(posted(b"Content-Length:", body=BODY), "6.2"),
    "a length with a power": Case(posted(b"Content-Length: 1e2", body=BODY), "6.2"),
    "a length in hexadecimal": Case(
        posted(b"Content-Length: 0x%x" % len(BODY), body=BODY), "6.2"
    ),
    "a length with a fraction": Case(
        posted(b"Content-Length: %d.0" % len(BODY), body=BODY), "6.2"
    ),
    "a length with a line between its digits": Case(
        posted(b"Content-Length: 1_0", body=BODY), "6.2"
    ),
    "a length in two words": Case(posted(b"Content-Length: 1 0", body=BODY), "6.2"),
    "a length in other digits": Case(
        posted("Content-Length: ١".encode(), body=BODY), "6.2"
    ),
    "a length with leading zeros": Case(
        posted(b"Content-Length: 000%d" % len(BODY), body=BODY), "6.2", READ
    ),
    "a length of 2 to the 64": Case(
        posted(b"Content-Length: %d" % 2**64, body=BODY), "6.2"
    ),
    "a length that comes round to the right one": Case(
        posted(b"Content-Length: %d" % (2**64 + len(BODY)), body=BODY), "6.2"
    ),
    "a length of a thousand digits": Case(
        posted(b"Content-Length: " + b"9" * 1_000, body=BODY), "6.2"
    ),
    "a length with a tab before it": Case(
        posted(b"Content-Length:\t%d" % len(BODY), body=BODY), "5.1", READ
    ),
    # Transfer-Encoding
    "chunked twice": Case(posted(CHUNKED, CHUNKED, body=CHUNK + END), "6.1"),
    "chunked twice in one line": Case(
        posted(CHUNKED + b", chunked", body=CHUNK + END), "6.1"
    ),
    "identity": Case(posted(b"Transfer-Encoding: identity", body=CHUNK + END), "6.1"),
    "gzip": Case(posted(b"Transfer-Encoding: gzip", body=CHUNK + END), "6.3 (4)"),
    "gzip, then chunked": Case(
        posted(b"Transfer-Encoding: gzip, chunked", body=CHUNK + END), "6.1"
    ),
    "chunked, then gzip": Case(
        posted(b"Transfer-Encoding: chunked, gzip", body=CHUNK + END), "6.3 (4)"
    ),
    "chunked, then identity": Case(
        posted(b"Transfer-Encoding: chunked, identity", body=CHUNK + END), "6.3 (4)"
    ),
    "identity, then chunked in another line": Case(
        posted(b"Transfer-Encoding: identity", CHUNKED, body=CHUNK + END), "6.1"
    ),
    "xchunked": Case(posted(b"Transfer-Encoding: xchunked", body=CHUNK + END), "6.1"),
    "chunkedx": Case(posted(b"Transfer-Encoding: chunkedx", body=CHUNK + END), "6.1"),
    "chunked in quotes": Case(
        posted(b'Transfer-Encoding: "chunked"', body=CHUNK + END), "6.1"
    ),
    "chunked with a parameter": Case(
        posted(b"Transfer-Encoding: chunked;q=1", body=CHUNK + END), "7"
    ),
    "chunked with a comma": Case(
        posted(b"Transfer-Encoding: chunked,", body=CHUNK + END), "6.1"
    ),
    "chunked behind a vertical tab": Case(
        posted(b"Transfer-Encoding: \x0bchunked", body=CHUNK + END), "5.5"
    ),
    "chunked in capitals": Case(
        posted(b"Transfer-Encoding: CHUNKED", body=CHUNK + END), "7", READ
    ),
    "no encoding at all": Case(posted(b"Transfer-Encoding:", body=CHUNK + END), "6.1"),
    "chunks in HTTP/1.0": Case(
        posted(
            CHUNKED,
            b"Connection: keep-alive",
            body=CHUNK + END,
            start=b"POST /mcp HTTP/1.0",
        ),
        "6.1: faulty, so that the connection is closed behind it",
        ["list"],
        REFUSED,
        EARLY,
    ),
    # Chunks
    "a chunk with a negative size": Case(chunked(b"-1\r\n" + CHUNK + END), "7.1"),
    "a chunk with a positive size": Case(chunked(b"+%b%b" % (CHUNK, END)), "7.1"),
    "a chunk with a size in 0x": Case(chunked(b"0x%b%b" % (CHUNK, END)), "7.1"),
    "a chunk with a size of nothing": Case(chunked(b"\r\n" + CHUNK + END), "7.1"),
    "a chunk with a size of 2 to the 64": Case(
        chunked(b"10000000000000000\r\n" + BODY), "7.1"
    ),
    "a chunk with a size that comes round": Case(
        chunked(b"1%016x\r\n%b\r\n%b" % (len(BODY), BODY, END)), "7.1"
    ),
    "a chunk with a size beyond the limit": Case(
        chunked(b"ffffffff\r\n" + b"x" * 5 * 2**20), "7.1"
    ),
    "a chunk with leading zeros": Case(chunked(b"000" + CHUNK + END), "7.1", READ),
    "a chunk with blanks before its size": Case(chunked(b" " + CHUNK + END), "7.1"),
    "a chunk with blanks behind its size": Case(
        chunked(CHUNK.replace(b"\r\n", b" \r\n", 1) + END), "7.1", REFUSED, READ, BLANK
    ),
    "a chunk with a line between its digits": Case(
        chunked(b"0_1\r\nx\r\n" + END), "7.1"
    ),
    "a chunk whose size ends in a line feed": Case(
        chunked(CHUNK.replace(b"\r\n", b"\n", 1) + END), "7.1"
    ),
    "a chunk whose size ends in a carriage return": Case(
        chunked(CHUNK.replace(b"\r\n", b"\r", 1) + END), "7.1"
    ),
    "a chunk without a line's end behind it": Case(
        chunked(CHUNK.removesuffix(b"\r\n") + END), "7.1"
    ),
    "a chunk with other bytes for its end": Case(
        chunked(CHUNK.removesuffix(b"\r\n") + b"xx" + END), "7.1"
    ),
    "a chunk with a line feed for its end": Case(
        chunked(CHUNK.removesuffix(b"\r\n") + b"\n" + END), "7.1"
    ),
    "a chunk longer than its size": Case(
        chunked(b"1\r\n%b\r\n%b" % (BODY, END)), "7.1"
    ),
    "an extension": Case(
        chunked(CHUNK.replace(b"\r\n", b";a=b;c\r\n", 1) + END), "7.1.1", READ
    ),
    "an extension in quotes": Case(
        chunked(CHUNK.replace(b"\r\n", b';a="b;c"\r\n', 1) + END), "7.1.1", READ
    ),
    "an extension with a line feed": Case(
        chunked(CHUNK.replace(b"\r\n", b";a\n\r\n", 1) + END), "7.1.1"
    ),
    "an extension with a carriage return": Case(
        chunked(CHUNK.replace(b"\r\n", b";a\rb\r\n", 1) + END),
        "7.1.1",
        REFUSED,
        READ,
        CARRIAGE,
    ),
    "an extension that hides a request behind a line feed": Case(
        chunked(b"%x;\n" % len(BODY) + BODY + b"\r\n" + END + HIDDEN), "7.1.1"
    ),
    "an extension that never ends": Case(
        chunked(b"1;a=" + b"b" * 200_000), "7.1.1: within limits"
    ),
    # Trailers
    "a trailer": Case(chunked(CHUNK + b"0\r\nX-Sum: 1\r\n\r\n"), "7.1.2", READ),
    "a trailer with a length": Case(
        chunked(CHUNK + b"0\r\nContent-Length: %d\r\n\r\n" % len(CANARY)),
        "7.1.2",
        REFUSED,
        READ,
        IGNORED,
    ),
    "a trailer with a host": Case(
        chunked(CHUNK + b"0\r\nHost: evil.example\r\n\r\n"), "7.1.2", READ
    ),
    "a trailer with chunked": Case(
        chunked(CHUNK + b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "7.1.2",
        REFUSED,
        READ,
        IGNORED,
    ),
    "a trailer with headers that a guard checks": Case(
        chunked(
            CHUNK
            + b"0\r\nOrigin: https://evil.example\r\nMcp-Method: tools/call\r\n\r\n"
        ),
        "7.1.2",
        READ,
    ),
    "a trailer that is folded": Case(
        chunked(CHUNK + b"0\r\nX-A: 1\r\n b\r\n\r\n"), "5.2", REFUSED, READ, FOLD
    ),
    "a trailer that never ends": Case(
        chunked(CHUNK + b"0\r\nX-A: " + b"b" * 200_000), "7.1.2: within limits"
    ),
    # LineDecoder
    "a fold": Case(
        posted(b"X-A: 1\r\n folded", LENGTH, body=BODY), "5.2", REFUSED, READ, FOLD
    ),
    "a fold before the length's value": Case(
        posted(b"Content-Length:\r\n %d" % len(BODY), body=BODY),
        "5.2",
        REFUSED,
        READ,
        FOLD,
    ),
    "a fold that makes chunks": Case(
        posted(b"Transfer-Encoding:\r\n chunked", body=CHUNK + END),
        "5.2",
        REFUSED,
        READ,
        FOLD,
    ),
    "a fold that is the first header": Case(got(b" Host: localhost"), "2.2"),
    "a blank before the first header": Case(got(b" X-A: 1", b"Host: localhost"), "2.2"),
    "a line feed for a line's end": Case(
        posted(LENGTH, body=BODY).replace(b"\r\nAccept", b"\nAccept"),
        "2.2",
        REFUSED,
        READ,
        LF,
    ),
    "a line feed for the head's end": Case(
        posted(LENGTH, body=BODY).replace(b"\r\n\r\n", b"\r\n\n"),
        "2.2",
        REFUSED,
        READ,
        LF,
    ),
    "line feeds for all ends": Case(
        got(b"Host: localhost").replace(b"\r\n", b"\n"),
        "2.2",
        REFUSED,
        ["canary", "canary"],
        LF,
    ),
    "a carriage return within a value": Case(
        posted(b"X-A: 1\r2", LENGTH, body=BODY), "2.2"
    ),
    "a carriage return that hides chunks": Case(
        posted(b"X-A: 1\rTransfer-Encoding: chunked", LENGTH, body=BODY), "2.2"
    ),
    "a carriage return within the target": Case(
        got(b"Host: localhost", start=b"GET /heal\rthz HTTP/1.1"), "2.2"
    ),
    "a space before the colon": Case(
        posted(b"Content-Length : %d" % len(BODY), body=BODY), "5.1"
    ),
    "a tab before the colon": Case(
        posted(b"Transfer-Encoding\t: chunked", body=CHUNK + END), "5.1"
    ),
    "a name with a space": Case(
        posted(b"Content Length: %d" % len(BODY), body=BODY), "5.1"
    ),
    "a header without a name": Case(posted(b": 1", LENGTH, body=BODY), "5.1"),
    "a header without a colon": Case(posted(b"X-A", LENGTH, body=BODY), "5.1"),
    "a zero byte in a name": Case(posted(b"X\0A: 1", LENGTH, body=BODY), "5.1"),
    "a zero byte in a value": Case(posted(b"X-A: 1\0", LENGTH, body=BODY), "5.5"),
    "a zero byte in the length": Case(
        posted(b"Content-Length: 1\x000", body=BODY), "5.5"
    ),
    "a zero byte in the target": Case(
        got(b"Host: localhost", start=b"GET /healthz\0 HTTP/1.1"), "3"
    ),
    "an underscore for the hyphen of a length": Case(
        posted(b"Content_Length: 0", LENGTH, body=BODY), "5.1: another header", READ
    ),
    "an underscore for the hyphen of chunks": Case(
        posted(b"Transfer_Encoding: chunked", LENGTH, body=BODY),
        "5.1: another header",
        READ,
    ),
    # The first line
    "HTTP/0.9": Case(b"GET /healthz\r\n", "2.3"),
    "HTTP/0.9 with its number": Case(
        got(b"Host: localhost", start=b"GET /healthz HTTP/0.9"), "2.3"
    ),
    "HTTP/1.2": Case(
        got(b"Host: localhost", start=b"GET /healthz HTTP/1.2"),
        "2.3",
    ),
    "HTTP/1.10": Case(got(b"Host: localhost", start=b"GET /healthz HTTP/1.10"), "2.3"),
    "HTTP/2.0": Case(got(b"Host: localhost", start=b"GET /healthz HTTP/2.0"), "2.3"),
    "the opening of HTTP/2": Case(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "2.3",
        REFUSED,
        [],
        "RFC 9113: it speaks that",
    ),
    "http in small letters": Case(
        got(b"Host: localhost", start=b"GET /healthz http/1.1"), "2.3"
    ),
    "two spaces behind the method": Case(
        got(b"Host: localhost", start=b"GET  /healthz HTTP/1.1"),
        "3: words may be separated by any white space",
        ["canary", "canary"],
        REFUSED,
        "3: one space is the rule",
    ),
    "a space in the target": Case(
        got(b"Host: localhost", start=b"GET /heal thz HTTP/1.1"), "3.2"
    ),
    "a tab for a space": Case(
        got(b"Host: localhost", start=b"GET\t/healthz\tHTTP/1.1"), "3"
    ),
    "a target with a line of its own": Case(
        got(b"Host: localhost", start=b"GET /x HTTP/1.1\r\nGET /healthz HTTP/1.1"), "3"
    ),
    "an empty line before": Case(
        b"\r\n" + got(b"Host: localhost"),
        "2.2",
        ["canary", "canary"],
        REFUSED,
        "2.2: it should be passed over, not must",
    ),
    # Host and target
    "no host": Case(got(b"X-A: 1"), "3.2"),
    "two hosts": Case(got(b"Host: localhost", b"Host: evil.example"), "3.2"),
    "two equal hosts": Case(got(b"Host: localhost", b"Host: localhost"), "3.2"),
    "an empty host": Case(
        posted(LENGTH, body=BODY, host=b""), "3.2", ["421", "canary"]
    ),
    "a host with a path": Case(
        posted(LENGTH, body=BODY, host=b"localhost/evil"), "3.2", ["421", "canary"]
    ),
    "a host behind a name": Case(
        posted(LENGTH, body=BODY, host=b"localhost:1@evil.example"),
        "3.2",
        ["421", "canary"],
    ),
    "a host with an invalid port": Case(
        posted(LENGTH, body=BODY, host=b"localhost:x"), "3.2", ["421", "canary"]
    ),
    "an address with something behind it": Case(
        posted(LENGTH, body=BODY, host=b"[::1].evil.example"), "3.2", ["421", "canary"]
    ),
    "a whole URL that is another host": Case(
        posted(LENGTH, body=BODY, start=b"POST http://evil.example/mcp HTTP/1.1"),
        "3.2.2",
        ["421", "canary"],
    ),
    "a whole URL with another host in the header": Case(
        posted(
            LENGTH,
            body=BODY,
            host=b"evil.example",
            start=b"POST http://localhost/mcp HTTP/1.1",
        ),
        "3.2.2",
        READ,
    ),
    "a whole URL with a name before its host": Case(
        posted(
            LENGTH,
            body=BODY,
            start=b"POST http://localhost:1@evil.example/mcp HTTP/1.1",
        ),
        "3.2.2",
        ["421", "canary"],
    ),
    "a query that is encoded": Case(
        posted(LENGTH, body=BODY, start=b"POST /mcp%3Fx HTTP/1.1"),
        "3.2.1",
        ["404", "canary"],
    ),
    # Bodies of GET, HEAD and OPTIONS
    "a request hidden in the body of GET": Case(
        got(b"Host: localhost", b"Content-Length: %d" % len(HIDDEN), body=HIDDEN),
        "6",
        ["canary", "canary"],
    ),
    "a request hidden in the chunks of GET": Case(
        got(
            b"Host: localhost",
            CHUNKED,
            body=b"%x\r\n%b\r\n%b" % (len(HIDDEN), HIDDEN, END),
        ),
        "6",
        ["canary"] * 2,
    ),
    "a request hidden in the body of HEAD": Case(
        got(
            b"Host: localhost",
            b"Content-Length: %d" % len(HIDDEN),
            body=HIDDEN,
            start=b"HEAD /healthz HTTP/1.1",
        ),
        "6",
        ["head", "canary"],
    ),
    "a request hidden in a body": Case(
        posted(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN),
        "6.2",
        ["400", "canary"],
    ),
    "a request hidden in a chunk": Case(
        chunked(b"%x\r\n%b\r\n%b" % (len(HIDDEN), HIDDEN, END)),
        "7.1",
        ["400", "canary"],
    ),
    "a request behind a length of nothing": Case(
        posted(b"Content-Length: 0", body=got(b"Host: localhost")),
        "6.2",
        ["400", "canary", "canary"],
    ),
    "a request behind one without a length": Case(
        posted(body=got(b"Host: localhost")), "6.3 (7)", ["400", "canary", "canary"]
    ),
    # Expect and Upgrade
    "an expectation of something else": Case(
        posted(b"Expect: 200-ok", LENGTH, body=BODY),
        "RFC 9110, 10.1.1",
        REFUSED,
        READ,
        "it may be passed over",
    ),
    "two expectations": Case(
        posted(b"Expect: 100-continue", b"Expect: 100-continue", LENGTH, body=BODY),
        "RFC 9110, 10.1.1",
        REFUSED,
        READ,
        "it may be passed over",
    ),
    "an upgrade to something else with a body": Case(
        posted(b"Connection: Upgrade", b"Upgrade: foo/2", LENGTH, body=BODY),
        "RFC 9110, 7.8",
        READ,
    ),
    "an upgrade to something else with chunks": Case(
        posted(b"Connection: Upgrade", b"Upgrade: foo/2", CHUNKED, body=CHUNK + END),
        "RFC 9110, 7.8",
        READ,
    ),
    "an upgrade to a WebSocket with a body": Case(
        got(
            b"Host: localhost",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            b"Sec-WebSocket-Version: 13",
            b"Content-Length: %d" % len(HIDDEN),
            start=b"GET /mcp HTTP/1.1",
            body=HIDDEN,
        ),
        "RFC 9110, 7.8: not before the body has come",
    ),
    "an upgrade to a WebSocket with chunks": Case(
        got(
            b"Host: localhost",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            b"Sec-WebSocket-Version: 13",
            CHUNKED,
            start=b"GET /mcp HTTP/1.1",
            body=b"%x\r\n%b\r\n%b" % (len(HIDDEN), HIDDEN, END),
        ),
        "RFC 9110, 7.8: not before the body has come",
    ),
    "an upgrade in HTTP/1.0": Case(
        posted(
            b"Connection: Upgrade",
            b"Upgrade: foo/2",
            LENGTH,
            body=BODY,
            start=b"POST /mcp HTTP/1.0",
        ),
        "RFC 9110, 7.8",
        ["list"],
        REFUSED,
        EARLY,
    ),
    "a tunnel": Case(
        got(b"Host: localhost:1", start=b"CONNECT localhost:1 HTTP/1.1"),
        "RFC 9110, 9.3.6",
        REFUSED,
        ["404", "canary"],
        "9.3.6: one that is refused leaves the connection as it was",
    ),
}
