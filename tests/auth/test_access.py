"""Access control over HTTP, SSE and WebSocket: tokens, refusals, scopes and expiry."""

import datetime
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from trio_websocket import ConnectionClosed, ConnectionRejected

import mcp_trio
from mcp_trio import Access, Context, Principal, Server
from mcp_trio.auth import access as access_module
from mcp_trio.auth.access import LOG_INTERVAL, VERIFY_TIMEOUT, Denied
from mcp_trio.auth.principal import Owner, owner
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.http_connection import bearer_fields
from mcp_trio.client.target import connect as connect_to
from mcp_trio.server.serve_conversation import serve_conversation
from mcp_trio.testing import connect
from mcp_trio.transports.http import feed
from mcp_trio.transports.memory import memory_pair
from tests.support.access_sites import (
    ADMIN,
    HOSTS,
    A,
    Bearer,
    calling,
    guarded,
    make_server,
    modern,
    post_modern,
    verify,
)
from tests.support.checked import ALL, asking
from tests.support.http_wire import HEADERS, Signals, Wire, message, request, site
from tests.support.reachable import reachable

each_host = pytest.mark.parametrize("host", HOSTS)
Ask = Callable[[dict[str, Any]], Awaitable[Any]]


# Each way in, as a function that puts a request and gives the reply


@asynccontextmanager
async def by_session(there: Bearer) -> AsyncIterator[Ask]:
    session = await there.open_session("2025-11-25")

    async def ask(body: dict[str, Any]) -> Any:
        return (await there.post(body, session)).json

    yield ask


@asynccontextmanager
async def without_session(there: Bearer) -> AsyncIterator[Ask]:
    async def ask(body: dict[str, Any]) -> Any:
        return (await post_modern(there, body)).json

    yield ask


@asynccontextmanager
async def by_legacy_stream(there: Bearer) -> AsyncIterator[Ask]:
    async with there.legacy() as stream:
        yield stream.ask


@asynccontextmanager
async def by_websocket(there: Bearer) -> AsyncIterator[Ask]:
    async with there.websocket() as connection:

        async def ask(body: dict[str, Any]) -> Any:
            await connection.send_message(json.dumps(modern(body)))
            return json.loads(await connection.get_message())

        yield ask


WAYS = [
    *[
        (host, way)
        for host in HOSTS
        for way in (by_session, without_session, by_legacy_stream)
    ],
    ("native", by_websocket),  # hypercorn has no WebSocket
]
each_way = pytest.mark.parametrize(
    ("host", "way"), WAYS, ids=[f"{host}-{way.__name__}" for host, way in WAYS]
)


async def names(ask: Ask) -> list[str]:
    return [
        tool["name"] for tool in (await ask(message("tools/list")))["result"]["tools"]
    ]


@each_way
async def test_only_principals_with_its_scopes_see_a_tool(host: str, way: Any) -> None:
    async with guarded(host=host) as there:
        async with way(there) as ask:
            assert await names(ask) == ["add", "wait"]
            refused, unknown = await ask(calling("purge")), await ask(calling("nosuch"))
            assert refused["error"]["code"] == -32602
            assert refused == json.loads(json.dumps(unknown).replace("nosuch", "purge"))
        async with way(there.by(ADMIN)) as ask:
            assert await names(ask) == ["add", "purge", "wait"]
            assert (await ask(calling("purge")))["result"]["content"][0][
                "text"
            ] == "purged by a"
        async with way(there) as ask:
            assert await names(ask) == ["add", "wait"]


# The responses to refused clients


PLACES = [
    *[(method, "/mcp") for method in ("POST", "GET", "DELETE")],
    ("GET", "/sse"),
    ("POST", "/messages"),
]
PLACES += [("GET", "/metrics")]
METADATA = "/.well-known/oauth-protected-resource/mcp"


@each_host
@pytest.mark.parametrize(("method", "path"), PLACES)
async def test_without_a_token_every_way_in_is_401_and_says_where_to_learn_more(
    host: str, method: str, path: str
) -> None:
    is_for_sse = path in ("/sse", "/messages")
    metadata = METADATA.replace("/mcp", "/sse") if is_for_sse else METADATA
    async with guarded(host=host, token=None) as there:
        refused = await there.send(
            method, path, {**HEADERS, "Host": f"localhost:{there.port}"}
        )
        assert refused.status == 401
        where = f'Bearer resource_metadata="http://localhost:{there.port}{metadata}"'
        assert refused.headers["www-authenticate"] == where


@pytest.mark.parametrize("token", [None, "nonsense"])
async def test_without_a_token_no_websocket_is_opened(token: str | None) -> None:
    async with guarded(token=token) as there:
        with pytest.raises(ConnectionRejected) as rejected:
            async with there.websocket():
                pass
        assert rejected.value.status_code == 401


@each_host
@pytest.mark.parametrize(
    "given",
    [
        "Bearer nonsense",
        "bearer  nonsense",
        "Bearer a b",
        "Bearer ",
        "Bearer a, Bearer b",
    ],
)
async def test_an_invalid_token_is_401_invalid_token(host: str, given: str) -> None:
    async with guarded(host=host, token=None) as there:
        refused = await there.modern("tools/list", Authorization=given)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith(
            'Bearer error="invalid_token", resource_metadata="http'
        )


@each_host
async def test_credentials_of_another_kind_are_as_none(host: str) -> None:
    async with guarded(host=host, token=None) as there:
        refused = await there.modern("tools/list", Authorization="Basic YTpi")
        assert refused.status == 401
        assert "error" not in refused.headers["www-authenticate"]


@each_host
async def test_a_token_in_the_query_is_not_looked_at(host: str) -> None:
    async with guarded(host=host, token=None) as there:
        refused = await there.send("POST", f"/mcp?access_token={A}", HEADERS, b"{}")
        assert (refused.status, "error" in refused.headers["www-authenticate"]) == (
            401,
            False,
        )


@each_host
async def test_a_missing_scope_is_403_and_named(host: str) -> None:
    server = make_server(access=Access(verify, scopes={"admin"}))
    async with guarded(server, host) as there:
        refused = await there.modern("tools/list")
        assert refused.status == 403
        said = refused.headers["www-authenticate"]
        assert said.startswith(
            'Bearer error="insufficient_scope", scope="admin", resource_metadata="'
        )
        assert (await there.by(ADMIN).modern("tools/list")).status == 200
        missing = await there.by(None).modern("tools/list")
        assert missing.headers["www-authenticate"].startswith(
            'Bearer scope="admin", resource_metadata="'
        )


async def test_a_refusal_is_sent_before_the_body_is_read() -> None:
    async with guarded(token=None) as there, there.wire() as wire:
        head = {**HEADERS, "Content-Length": "4000000", "Expect": "100-continue"}
        await wire.send(request("POST", "/mcp", head))
        assert (await wire.response()).status == 401


@each_host
async def test_pages_can_read_the_refusal_and_preflights_need_no_token(
    host: str,
) -> None:
    page = {"Origin": "https://page.example"}
    async with guarded(
        host=host, token=None, allowed_origins=["https://page.example"]
    ) as there:
        for token in (None, "nonsense"):
            refused = await there.by(token).modern("tools/list", **page)
            assert refused.status == 401
            assert refused.headers["access-control-allow-origin"] == page["Origin"]
            assert {"WWW-Authenticate", "Retry-After"} <= {
                *refused.headers["access-control-expose-headers"].split(", ")
            }
        preflight = {**page, "Access-Control-Request-Method": "POST"}
        assert (await there.send("OPTIONS", "/mcp", preflight)).status == 204
        assert (await there.send("OPTIONS", METADATA, preflight)).status == 204


@each_host
async def test_host_and_origin_are_checked_before_the_token(host: str) -> None:
    async with guarded(host=host, token=None) as there:
        assert (await there.modern("tools/list", Host="evil.example")).status == 421
        assert (
            await there.modern("tools/list", Origin="https://evil.example")
        ).status == 403


@each_host
async def test_probes_need_no_token_and_metrics_do(host: str) -> None:
    async with guarded(host=host, token=None) as there:
        assert (await there.send("GET", "/healthz")).status == 200
        assert (await there.by(A).send("GET", "/metrics")).status == 200


@each_host
async def test_refusals_are_counted(host: str) -> None:
    async with guarded(host=host) as there:
        await there.by("nonsense").modern("tools/list")
        await there.by(None).modern("tools/list")
        assert (
            b'mcp_http_refused_total{status="401"} 2'
            in (await there.send("GET", "/metrics")).body
        )


async def test_a_refused_token_does_not_end_the_connection() -> None:
    async with guarded() as there, there.wire() as wire:
        body = modern(message("tools/list"))
        for token, status in (("nonsense", 401), (A, 200), ("nonsense", 401), (A, 200)):
            headers = {
                **HEADERS,
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/list",
            }
            headers["Authorization"] = f"Bearer {token}"
            assert (
                await wire.request("POST", "/mcp", headers, json.dumps(body).encode())
            ).status == status


async def test_a_token_is_looked_at_again_in_each_request_that_says_the_same() -> None:
    good = {"token"}

    async def check(token: str) -> Principal | None:
        return Principal("a", frozenset({"admin"} & good)) if token in good else None

    async with (
        guarded(make_server(access=Access(check, remember=0)), token="token") as there,
        there.wire() as wire,
    ):
        body = modern(calling("purge"))
        headers = {**HEADERS, **there.own, "MCP-Protocol-Version": "2026-07-28"}
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "purge"}
        allowed = []
        for change in (
            good.clear,
            lambda: good.update({"token", "admin"}),
            lambda: good.discard("admin"),
            good.clear,
        ):
            for _ in range(3):
                response = await wire.request(
                    "POST", "/mcp", headers, json.dumps(body).encode()
                )
                allowed.append((response.status, "result" in response.json))
            change()
        assert (
            allowed
            == [(200, False)] * 3
            + [(401, False)] * 3
            + [(200, True)] * 3
            + [(200, False)] * 3
        )


async def test_requests_in_one_go_are_each_answered_for_their_own_token() -> None:
    async with guarded() as there, there.wire() as wire:
        sent = b""
        for token in (A, ADMIN, "nonsense", A):
            headers = {
                **HEADERS,
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/list",
            }
            headers["Authorization"] = f"Bearer {token}"
            sent += request(
                "POST",
                "/mcp",
                headers,
                json.dumps(modern(message("tools/list"))).encode(),
            )
        await wire.send(sent)
        answers = [await wire.response() for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 401, 200]
        assert [b"purge" in answer.body for answer in answers] == [
            False,
            True,
            False,
            False,
        ]


# The metadata


@each_host
@pytest.mark.parametrize("path", [METADATA, "/.well-known/oauth-protected-resource"])
async def test_the_metadata_needs_no_token(host: str, path: str) -> None:
    control = Access(
        verify, scopes={"mcp"}, authorization_servers=["https://login.example"]
    )
    async with guarded(make_server(access=control), host, token=None) as there:
        found = await there.send("GET", path, {"Host": f"localhost:{there.port}"})
        assert (found.status, found.headers["content-type"]) == (
            200,
            "application/json",
        )
        assert found.json == {
            "resource": f"http://localhost:{there.port}/mcp",
            "authorization_servers": ["https://login.example"],
            "scopes_supported": ["admin", "mcp"],
            "bearer_methods_supported": ["header"],
        }


async def test_the_metadata_leaves_out_empty_fields_and_keeps_the_resource_as_given() -> (
    None
):
    server = Server(
        "plain", access=Access(verify, resource="https://public.example/api/mcp/")
    )
    async with guarded(server, token=None) as there:
        document = (await there.send("GET", METADATA)).json
        assert document == {
            "resource": "https://public.example/api/mcp/",
            "bearer_methods_supported": ["header"],
        }
        said = (await there.modern("tools/list")).headers["www-authenticate"]
        assert (
            said
            == f'Bearer resource_metadata="https://public.example{METADATA.replace("/mcp", "/api/mcp")}"'
        )
        assert (
            await there.send("GET", METADATA.replace("/mcp", "/api/mcp"))
        ).json == document


async def test_without_access_control_metadata_is_not_found() -> None:
    async with site(Server("open")) as there:
        assert (await there.send("GET", METADATA)).status == 404
        assert (await there.modern("tools/list")).status == 200


async def test_a_port_with_websocket_only_also_serves_the_metadata() -> None:
    async with guarded(token=None, upgrades_only=True) as there:
        refused = await there.send(
            "GET", "/mcp", {"Connection": "Upgrade", "Upgrade": "websocket"}
        )
        assert (refused.status, METADATA in refused.headers["www-authenticate"]) == (
            401,
            True,
        )
        assert (await there.send("GET", METADATA)).status == 200
        assert (
            await there.by(A).send("GET", "/mcp", {"Accept": "text/event-stream"})
        ).status == 426
        async with there.by(A).websocket():
            pass


async def test_over_tls_the_resource_is_https(tmp_path: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with guarded(tls=certificate(tmp_path)) as there:
        stream = await trio.open_tcp_stream("127.0.0.1", there.port)
        async with trio.SSLStream(stream, context, https_compatible=True) as secure:
            refused = await Wire(secure).request("GET", "/metrics", {})
            assert (
                refused.headers["www-authenticate"]
                == f'Bearer resource_metadata="https://localhost{METADATA}"'
            )


def certificate(folder: Path) -> tuple[str, str]:
    """Return the files of a self-signed certificate and its key."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]),
    )
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1)
    )
    (folder / "certificate").write_bytes(
        made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    )
    (folder / "key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return str(folder / "certificate"), str(folder / "key")


async def test_a_host_cannot_write_into_the_challenge() -> None:
    async with guarded(token=None, allowed_hosts=["*"]) as there:
        refused = await there.modern("tools/list", Host='localhost:", error="none')
        assert refused.status == 401
        assert refused.headers["www-authenticate"].count('"') == 2


# Verifiers


def served_by(check: Any) -> Any:
    return guarded(make_server(access=check))


async def test_a_bare_function_is_enough_and_a_name_is_a_principal() -> None:
    async def anybody(token: str) -> str:
        return token

    async with served_by(anybody) as there:
        assert (await there.by("somebody").modern("tools/list")).status == 200


async def failing(token: str) -> Principal:
    raise RuntimeError(f"no database for {len(token)} letters")


async def leaving(token: str) -> Principal:
    raise SystemExit


async def returning_nonsense(token: str) -> Any:
    return True


async def returning_no_name(token: str) -> Any:
    return ""


@pytest.mark.parametrize(
    "check", [failing, leaving, returning_nonsense, returning_no_name]
)
async def test_a_verifier_that_fails_lets_nobody_in_and_is_logged(
    check: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_by(check) as there:
        refused = await there.modern("tools/list")
        assert refused.status == 503
        assert "www-authenticate" not in refused.headers
        record, turned_away = caplog.records
        assert record.exc_info
        assert vars(turned_away)["event"] == "refused"
        assert (
            record.getMessage().rpartition(" ")[2][:-1]
            in refused.json["error"]["message"]
        )
        assert A not in caplog.text
        assert (await there.send("GET", "/healthz")).status == 200


async def test_what_a_failing_verifier_says_is_logged_without_the_token_and_no_flood(
    caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    async def looking_up(token: str) -> str:
        return {"somebody-else": "ada"}[token]

    guard = Access(looking_up)
    for second in range(2):
        for number in range(50):
            with pytest.raises(Denied) as denied:
                await guard.find(f"hidden-token-{number}")
            assert ("(reference " in str(denied.value)) == (
                number == 0
            )  # only in the log
        assert len(caplog.records) == second + 1
        await trio.sleep(LOG_INTERVAL)
    assert "hidden-token" not in caplog.text
    assert "KeyError: '[token]'" in caplog.text
    assert "in looking_up" in caplog.text


async def test_a_verifier_that_hangs_lets_nobody_in(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async def hanging(token: str) -> None:
        await trio.sleep_forever()

    began = trio.current_time()
    with pytest.raises(Denied) as denied:
        await Access(hanging).find("token")
    assert denied.value.status == 503
    assert trio.current_time() - began == VERIFY_TIMEOUT
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_an_expired_principal_is_refused() -> None:
    async def expired(token: str) -> Principal:
        return Principal(
            "a", expires=time.time() - 1 if token == "old" else time.time() + 60
        )

    async with served_by(expired) as there:
        refused = await there.by("old").modern("tools/list")
        assert refused.status == 401
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]
        assert (await there.by("new").modern("tools/list")).status == 200


async def test_no_token_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded(token="hidden-nonsense") as there:
        await there.modern("tools/list")
        async with there.by(ADMIN).websocket():
            pass
        with pytest.raises(ConnectionRejected):
            async with there.websocket():
                pass
    assert "hidden-nonsense" not in caplog.text
    assert ADMIN not in caplog.text


# Long-lived connections end with their principal


async def short_lived(token: str) -> Principal:
    return Principal("a", expires=time.time() + 0.2)


async def test_a_websocket_ends_with_its_principal() -> None:
    async with served_by(short_lived) as there:
        with trio.fail_after(30):
            async with there.websocket() as connection:
                with pytest.raises(ConnectionClosed) as closed:
                    await connection.get_message()
        assert closed.value.reason.code == 1008


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_stream_of_get_ends_with_its_principal(path: str) -> None:
    async with served_by(short_lived) as there, there.wire() as wire:
        session = await there.open_session() if path == "/mcp" else {}
        await wire.send(
            request(
                "GET", path, {"Accept": "text/event-stream", **session, **there.own}
            )
        )
        assert (await wire.response()).status == 200


@pytest.mark.parametrize(
    "then",
    [
        None,
        Principal("b", frozenset({"admin", "mcp"})),
        Principal("a", frozenset({"mcp"})),
        Principal("a", frozenset({"admin"})),
    ],
    ids=["none", "another principal", "fewer scopes", "without the required scope"],
)
async def test_connections_end_when_the_token_is_withdrawn(
    then: Principal | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"token": Principal("a", frozenset({"admin", "mcp"}))}
    monkeypatch.setattr(access_module, "RECHECK_INTERVAL", 0.05)
    monkeypatch.setattr(feed, "HEARTBEAT", 0.02)

    async def looking_up(token: str) -> Principal | None:
        if known["token"] == Principal("unknown"):
            raise OSError("the database is down")
        return known["token"]

    with trio.fail_after(30):
        async with (
            served_by(Access(looking_up, scopes={"mcp"})) as there,
            there.wire() as news,
            there.wire() as legacy,
        ):
            session = await there.open_session()
            await news.send(
                request(
                    "GET",
                    "/mcp",
                    {"Accept": "text/event-stream", **session, **there.own},
                )
            )
            await legacy.send(
                request("GET", "/sse", {"Accept": "text/event-stream", **there.own})
            )
            async with there.websocket() as connection, trio.open_nursery() as nursery:
                ended = trio.Event()

                @nursery.start_soon
                async def listened() -> None:
                    listening = message(
                        "subscriptions/listen",
                        {"notifications": {"toolsListChanged": True}},
                    )
                    assert len((await post_modern(there, listening)).messages) == 1
                    ended.set()

                with trio.move_on_after(0.1):
                    await connection.get_message()
                known["token"] = Principal(
                    "unknown"
                )  # while the verifier fails, connections stay open
                with trio.move_on_after(0.15):
                    await connection.get_message()
                assert not ended.is_set()
                known["token"] = then
                with pytest.raises(ConnectionClosed) as closed:
                    await connection.get_message()
            assert closed.value.reason.code == 1008
            for stream in (news, legacy):
                assert (await stream.response()).status == 200


async def test_a_subscription_ends_with_its_principal_and_a_call_that_waits_does_not() -> (
    None
):
    signals = Signals()
    async with guarded(make_server(signals, access=short_lived)) as there:
        listening = message(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        assert len((await post_modern(there, listening)).messages) == 1
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def called() -> None:
                reply = await post_modern(there, calling("wait"))
                assert reply.json["result"]["content"][0]["text"] == "went"

            await signals.begun.wait()
            await trio.sleep(0.3)
            signals.go.set()


# Scopes, apart from any transport


def scoped(**options: Any) -> Server:
    server = Server("scoped", **options)
    for number in range(12):

        async def tool() -> str:
            return "done"

        scopes = [set(), {"one"}, {"two"}, {"one", "two"}][number % 4]
        server.add_tool(tool, name=f"t{number}", scopes=scopes)
    return server


MAY = {
    (): [0, 4, 8],
    ("one",): [0, 1, 4, 5, 8, 9],
    ("one", "two"): [*range(12)],
    ("three",): [0, 4, 8],
}


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("pages", [None, 1, 2, 5])
async def test_pages_hold_what_the_principal_may_use_and_nothing_else(
    revision: str, pages: int | None
) -> None:
    server = scoped(pages=pages)
    for _ in range(2):
        for scopes, numbers in MAY.items():
            async with connect(
                server, revision, principal=Principal("p", frozenset(scopes))
            ) as client:
                listed = [tool["name"] for tool in await client.list_tools()]
                assert listed == [f"t{number}" for number in numbers]
        async with connect(server, revision) as client:
            assert len(await client.list_tools()) == 12
            assert (await client.call_tool("t3")) is not None


async def test_only_principals_that_may_use_a_tool_see_it_added_and_removed() -> None:
    server = scoped()
    able, unable = Principal("p", frozenset({"new"})), Principal("p")
    async with (
        connect(server, principal=able) as one,
        connect(server, principal=unable) as other,
    ):
        before = len(await one.list_tools())

        async def fresh() -> str:
            return "fresh"

        server.add_tool(fresh, scopes={"new"})
        assert (len(await one.list_tools()), len(await other.list_tools())) == (
            before + 1,
            before,
        )
        with pytest.raises(RemoteError, match="Unknown tool: fresh"):
            await other.call_tool("fresh")
        server.remove_tool("fresh")
        assert (len(await one.list_tools()), len(await other.list_tools())) == (
            before,
            before,
        )
        assert "new" not in server.tools.scopes


async def test_lists_are_kept_for_a_bounded_number_of_principals() -> None:
    server = Server("many")
    for number in range(10):

        async def tool() -> str:
            return "done"

        server.add_tool(tool, name=f"t{number}", scopes={f"s{number}"})
    for mix in range(300):
        scopes = frozenset(f"s{number}" for number in range(10) if mix & 1 << number)
        async with connect(server, principal=Principal("p", scopes)) as client:
            assert len(await client.list_tools()) == mix.bit_count()
    lists = [data for data in reachable(server.tools, bytes) if b'"tools"' in data]
    assert 0 < len(lists) <= 100


async def test_an_anonymous_client_has_no_scopes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site(scoped()) as there:
        assert "without access control clients have no scopes" in caplog.text
        listed = (await there.modern("tools/list")).json["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["t0", "t4", "t8"]
        refused = await there.modern("tools/call", {"name": "t1"})
        assert refused.json["error"]["message"] == "Unknown tool: t1"


async def test_a_header_that_a_hidden_tool_wants_is_not_asked_for() -> None:
    server = Server("mirrors", access=verify)
    region = {"type": "string", "x-mcp-header": "Region"}
    schema = {
        "type": "object",
        "properties": {"region": region},
        "required": ["region"],
    }

    @server.tool(scopes={"admin"}, input_schema=schema)
    async def deploy(region: str) -> str:
        return region

    async with guarded(server) as there:
        body = calling("deploy", region="eu")
        assert (await post_modern(there, body)).json["error"][
            "message"
        ] == "Unknown tool: deploy"
        assert (await post_modern(there.by(ADMIN), body)).json["error"][
            "code"
        ] == -32020


async def test_a_hidden_tool_that_waits_shows_in_no_order_of_replies() -> None:
    server = make_server()
    signals = Signals()

    @server.tool(scopes={"admin"})
    async def slow() -> str:
        await signals.go.wait()
        return "done"

    async def order(name: str) -> list[Any]:
        ours, theirs = memory_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_conversation, server, theirs, Principal("p"))
            for body in (
                asking(ALL[-1], 1, "tools/call", {"name": name}),
                asking(ALL[-1], 2, "tools/list"),
            ):
                ours.send(json.dumps(body).encode())
            replies: list[bytes | None] = []
            while len(replies) < 2:
                replies += await ours.receive()
            nursery.cancel_scope.cancel()
        return [json.loads(reply or b"")["id"] for reply in replies]

    async with server.running():
        server.tools_that_wait.add("slow")
        assert await order("slow") == await order("nosuch") == [1, 2]
        assert "slow" in server.tools_that_wait


@pytest.mark.parametrize("revision", ALL)
async def test_the_owner_of_the_process_may_use_everything(revision: str) -> None:
    who: list[Principal | None] = []
    server = Server("owned")

    @server.tool(scopes={"admin", "more"})
    async def purge(context: Context) -> str:
        who.append(context.principal)
        return "purged"

    async with connect(server, revision) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["purge"]
        await client.call_tool("purge")
    async with connect(
        server, revision, principal=Principal("p", frozenset({"admin"}))
    ) as client:
        with pytest.raises(RemoteError, match="-32602"):
            await client.call_tool("purge")
    assert isinstance(who[0], Owner)
    assert who[0].name


def test_an_owner_without_a_name_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import getpass

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert owner().name == "owner"


# What is said where something else was given


async def test_misuse_is_explained() -> None:
    def plain(token: str) -> None:
        """Not async."""

    server = Server("misused")
    for wrong, words in (
        (lambda: Access(plain), "expected an async function"),  # type: ignore[arg-type]
        (lambda: Access("token"), "expected an async function"),  # type: ignore[arg-type]
        (lambda: Server("x", access="token"), "expected an async function"),  # type: ignore[arg-type]
        (lambda: Access(verify, scopes="mcp"), "expected a set of scopes"),
        (lambda: Access(verify, scopes={'a"b'}), "expected a scope"),
        (lambda: Access(verify, scopes={1}), "expected a scope"),  # type: ignore[arg-type]
        (lambda: Access(verify, authorization_servers="https://x"), "expected a list"),
        (
            lambda: Access(verify, authorization_servers=["id.example.org"]),
            "expected URLs such as https://id.example.org, got 'id.example.org'",
        ),
        (lambda: Access(verify, resource="/mcp"), "expected the endpoint's URL"),
        (lambda: Principal(""), "expected a non-empty string"),
        (lambda: Principal("a", "admin"), "expected a set of scopes"),  # type: ignore[arg-type]
        (lambda: server.tool(scopes="admin")(verify), "expected a set of scopes"),
        (lambda: server.tool(scopes=None)(verify), "expected a set of scopes"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            wrong()
    assert Principal("a", ["admin"]).scopes == {"admin"}  # type: ignore[arg-type]


def test_the_names_are_public() -> None:
    assert {"Access", "Principal", "jwt", "token_file"} <= set(mcp_trio.__all__)


# Clients


@pytest.mark.parametrize(
    "way",
    ["http://localhost:{}/mcp", "http://localhost:{}/sse", "ws://localhost:{}/mcp"],
)
async def test_the_client_brings_a_token(way: str) -> None:
    async with guarded(token=None) as there:
        url = way.format(there.port)
        revision = "2024-11-05" if "sse" in way else "2025-11-25"
        async with connect_to(url, revision, token=A) as client:
            assert await client.list_tools()
        with pytest.raises((RemoteError, OSError), match=r"401|expected Bearer TOKEN"):
            async with connect_to(url, revision):
                pass


def test_a_token_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="expected ASCII characters without spaces"):
        bearer_fields("a b")
