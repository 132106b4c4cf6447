"""The bound on repeated headers holds for each request, not for the connection."""

from tests.support.http_wire import make_server, request, site


def ping(number: int) -> bytes:
    """Return a request with a repeated header, and a unique head."""
    repeated = f"{number}\r\nX-Repeated: again\r\nX-Repeated: and again"
    return request("GET", "/healthz", {"X-Repeated": repeated})


async def test_many_requests_may_repeat_a_header_on_one_connection() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        for number in range(200):
            await wire.send(ping(number))
            assert (await wire.response()).status == 200


async def test_one_request_may_not_repeat_headers_without_end() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        repeated = "\r\n".join(["0", *["X-Repeated: again"] * 200])
        await wire.send(request("GET", "/healthz", {"X-Repeated": repeated}))
        assert (await wire.response()).status == 431
