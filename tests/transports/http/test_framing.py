"""HTTP/1.1: where requests end, and which of them are refused."""

import json

import pytest
import trio

from tests.support.http_wire import (
    HEADERS,
    MODERN,
    Site,
    make_server,
    message,
    modern_headers,
    request,
    site,
)

LIST = message("tools/list", {"_meta": MODERN})
BODY = json.dumps(LIST).encode()
HEAD = modern_headers(LIST)
MIB = 2**20


async def answered(there: Site, data: bytes) -> tuple[int, bool]:
    """Return the status of the first response, and whether it closes the connection."""
    async with there.wire() as wire:
        await wire.send(data)
        response = await wire.response()
        return response.status, await wire.ended()


def post(**more: str) -> bytes:
    return request(
        "POST",
        "/mcp",
        {**HEAD, **{name.replace("_", "-"): value for name, value in more.items()}},
        BODY,
    )


CHUNKED = request("POST", "/mcp", {**HEAD, "Transfer-Encoding": "chunked"})
BAD = {
    "a length with chunks": post(Transfer_Encoding="chunked"),
    "two lengths": post().replace(
        b"Content-Length", b"Content-Length: 5\r\nContent-Length"
    ),
    "a list of lengths": post(Content_Length="5, 5"),
    "a signed length": post(Content_Length="+5"),
    "a negative length": post(Content_Length="-1"),
    "an encoding that is not chunked": post(Content_Length="0").replace(
        b"Content-Length: 0", b"Transfer-Encoding: gzip"
    ),
    "an encoding before chunked": CHUNKED.replace(b"chunked", b"gzip, chunked")
    + b"0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"\r\nxx\r\n",
    "a chunk with a bad size": CHUNKED + b"zz\r\nxx\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"1\r\nxx\r\n0\r\n\r\n",
    "a folded header": post().replace(b"Accept:", b"X-A: 1\r\n  folded\r\nAccept:"),
    "a space before the colon": post().replace(b"Accept:", b"Accept :"),
    "a header without a name": post().replace(b"Accept:", b": x\r\nAccept:"),
    "a bare line feed": post().replace(b"\r\nAccept", b"\nAccept"),
    "a zero byte": post().replace(b"Accept:", b"X-A: \0\r\nAccept:"),
    "no host": post().replace(b"Host: localhost\r\n", b""),
    "two hosts": post().replace(b"Host:", b"Host: localhost\r\nHost:"),
    "two origins": post().replace(
        b"Host:", b"Origin: http://localhost\r\nOrigin: http://localhost\r\nHost:"
    ),
    "no version": b"GET /healthz\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "another version": b"GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
async def test_bad_framing_is_refused_and_nothing_after_it_is_read(data: bytes) -> None:
    async with site(make_server()) as there:
        assert await answered(there, data + request("GET", "/healthz")) == (400, True)
        assert (await there.send("GET", "/healthz")).status == 200


async def test_bytes_may_arrive_one_by_one() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        for byte in post():
            await wire.send(bytes([byte]))
        assert (await wire.response()).status == 200


async def test_chunked_bodies() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        chunks = b"".join(
            b"%x;ext=1\r\n%b\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:])
        )
        await wire.send(
            CHUNKED + chunks + b"0\r\nTrailer: x\r\n\r\n" + request("GET", "/healthz")
        )
        assert (await wire.response()).status == 200
        assert (await wire.response()).body == b"ok\n"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        await wire.send(
            post() + request("GET", "/healthz") + request("GET", "/nowhere") + post()
        )
        assert [(await wire.response()).status for _ in range(4)] == [
            200,
            200,
            404,
            200,
        ]


async def test_a_connection_is_kept_unless_it_is_said_otherwise() -> None:
    async with site(make_server()) as there:
        assert await answered(there, post(Connection="close")) == (200, True)
        async with there.wire() as wire:
            for _ in range(3):
                assert (await wire.request("POST", "/mcp", HEAD, BODY)).status == 200


async def test_an_older_http_gets_no_chunks_and_its_connection_is_closed() -> None:
    async with site(make_server()) as there:
        old = (
            post()
            .replace(b"HTTP/1.1", b"HTTP/1.0")
            .replace(b"Host: localhost\r\n", b"Host: localhost\r\n")
        )
        assert await answered(there, old) == (200, True)
        steps = message(
            "tools/call", {"name": "steps", "_meta": {**MODERN, "progressToken": 1}}
        )
        sent = request(
            "POST", "/mcp", modern_headers(steps), json.dumps(steps).encode()
        )
        async with there.wire() as wire:
            await wire.send(sent.replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert "transfer-encoding" not in (await wire.head()).headers
            assert (await wire.to_end()).count(b"data: ") == 4


async def test_head_has_no_body() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        response = await wire.request("HEAD", "/healthz", {})
        assert response.headers["content-length"] == "3"
        assert (await wire.request("GET", "/healthz", {})).body == b"ok\n"


async def test_a_target_may_be_a_whole_url() -> None:
    async with site(make_server()) as there:
        assert (
            await there.send("GET", f"http://localhost:{there.port}/healthz")
        ).status == 200


async def test_a_body_that_waits_for_a_word_gets_one() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        await wire.send(post(Expect="100-continue").removesuffix(BODY))
        assert await wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(BODY)
        assert (await wire.response()).status == 200


async def test_a_body_that_will_be_refused_is_not_asked_for() -> None:
    async with site(make_server()) as there:
        refused = post(Expect="100-continue", Host="evil.example").removesuffix(BODY)
        assert await answered(there, refused) == (421, True)


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    async with site(make_server()) as there:
        data = request("POST", "/mcp", {**HEAD, "Content-Length": str(5 * MIB)})
        assert await answered(there, data + b"x" * 1000) == (413, True)
        assert (
            await answered(
                there, request("POST", "/mcp", {**HEAD, "Content-Length": "9" * 30})
            )
        )[0] in (400, 413)


async def test_a_body_that_turns_out_too_large_is_refused_at_the_limit() -> None:
    async with (
        site(make_server()) as there,
        there.wire() as wire,
        trio.open_nursery() as nursery,
    ):

        async def trickle() -> None:
            await wire.stream.send_all(CHUNKED)
            while True:
                await wire.stream.send_all(b"8\r\nxxxxxxxx\r\n" * 10_000)

        async def swallow() -> None:
            try:
                await trickle()
            except trio.BrokenResourceError:
                pass

        nursery.start_soon(swallow)
        assert (await wire.response()).status == 413
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "data",
    [
        request("GET", "/" + "x" * 40_000),
        request("GET", "/healthz", {"X-Large": "x" * 40_000}),
        request("GET", "/healthz", {f"X-{number}": "1" for number in range(200)}),
        request("GET", "/healthz").replace(b"Host:", b"X-A: 1\r\n" * 200 + b"Host:"),
        b"GET /healthz HTTP/1.1\r\nX-Endless: " + b"x" * 40_000,
        b"GET /" + b"x" * 70_000,
    ],
    ids=["target", "value", "number", "repeated", "endless", "endless target"],
)
async def test_a_head_that_is_too_large_is_refused(data: bytes) -> None:
    async with site(make_server()) as there:
        assert await answered(there, data) == (431, True)


async def test_upgrades_to_what_is_not_spoken_here_are_passed_over() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        upgrade = {
            "Connection": "Upgrade, HTTP2-Settings",
            "Upgrade": "h2c",
            "HTTP2-Settings": "AAMAAABk",
        }
        asked = request("POST", "/mcp", {**HEAD, **upgrade}, BODY) + request(
            "GET", "/healthz", upgrade
        )
        await wire.send(asked * 3)
        for _ in range(3):
            assert "tools" in (await wire.response()).json["result"]
            assert (await wire.response()).body == b"ok\n"


async def test_empty_lines_before_a_request_are_passed_over() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        await wire.send(b"\r\n\r\n" + request("GET", "/healthz"))
        assert (await wire.response()).status == 200


async def test_content_types_are_checked_before_the_body_is_read() -> None:
    async with site(make_server()) as there:
        head = request(
            "POST",
            "/mcp",
            {**HEADERS, "Content-Type": "text/plain", "Content-Length": "100"},
        )
        assert await answered(there, head) == (415, True)
