"""A server behind nginx with TLS, whose users log in at an authorization server.

The configuration of nginx is the one in docs/deployment.md.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.clients.install import HERE, Unavailable, node_packages, python_sdk
from tests.support.deployment import (
    ended_at_exit,
    nginx_of,
    running_nginx,
    running_server,
    wait_for_port,
    with_certificate,
)
from tests.support.ports import free_port

pytestmark = pytest.mark.integration

SECONDS = 60
SERVER = '''
from mcp_trio import Access, Context, Server, jwt

ISSUER = "{issuer}"
verify = jwt(
    jwks=ISSUER + "/jwks",
    issuer=ISSUER,
    audience=["{origin}/mcp", "{origin}/sse"],
)
server = Server("shop", access=Access(verify, authorization_servers=[ISSUER]))


@server.tool(scopes={{"read"}})
async def who_am_i(ctx: Context) -> str:
    """Return the caller's name."""
    return ctx.principal.name


@server.tool(scopes={{"admin"}})
async def clear_stock() -> str:
    """Clear the stock."""
    return "cleared"
'''


class Deployment(NamedTuple):
    origin: str
    issuer: str
    certificate: Path


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    port = free_port()
    origin = f"https://localhost:{port}"
    with ExitStack() as stack:
        issuer = stack.enter_context(authorization_server())
        source = SERVER.format(issuer=issuer, origin=origin)
        (folder / "shop.py").write_text(source, encoding="utf-8")
        behind = stack.enter_context(
            running_server("shop.py", "--public-url", f"{origin}/mcp", folder=folder)
        )
        config = nginx_of("deployment.md", "mcp.conf", [behind])
        config = with_certificate(config, folder, port)
        stack.enter_context(running_nginx(folder, config, port))
        yield Deployment(origin, issuer, folder / "certificate.pem")


@contextmanager
def authorization_server() -> Iterator[str]:
    """Run an oidc-provider. Yields its issuer."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed")
    sources = HERE / "authorization_server"
    names = ("package.json", "package-lock.json", "server.mjs")
    files = [sources / name for name in names]
    try:
        npm = [str(shutil.which("npm"))]
        folder = node_packages("authorization-server", files, npm).parent
    except Unavailable as reason:
        pytest.skip(f"cannot install the authorization server: {reason}")
    port = free_port()
    command = ["node", str(folder / "server.mjs"), str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    with ended_at_exit(process):
        wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}"


@pytest.mark.slow
def test_a_refusal_names_metadata_that_the_proxy_passes_on(
    deployment: Deployment,
) -> None:
    trust = ssl.create_default_context(cafile=str(deployment.certificate))
    with httpx.Client(verify=trust) as client:
        for path in ("/mcp", "/sse"):
            refused = client.get(deployment.origin + path)
            assert refused.status_code == 401
            challenge = refused.headers["www-authenticate"]
            url = challenge.partition('resource_metadata="')[2].partition('"')[0]
            metadata = client.get(url)
            assert metadata.status_code == 200, url
            assert metadata.json() == {
                "resource": deployment.origin + path,
                "authorization_servers": [deployment.issuer],
                "scopes_supported": ["admin", "read"],
                "bearer_methods_supported": ["header"],
            }
        assert client.get(f"{deployment.origin}/metrics").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(("option", "path"), [("--url", "/mcp"), ("--sse", "/sse")])
def test_the_official_client_logs_in_and_calls_what_its_scopes_allow(
    deployment: Deployment, option: str, path: str
) -> None:
    ada = conversation(deployment, option, path, "ada")
    assert sorted(ada["scope"].split()) == ["admin", "read"]
    assert ada["tools"] == ["clear_stock", "who_am_i"]
    assert (ada["who_am_i"], ada["clear_stock"]) == ("ada", "cleared")


@pytest.mark.slow
@pytest.mark.parametrize(("option", "path"), [("--url", "/mcp"), ("--sse", "/sse")])
def test_the_official_client_is_refused_without_the_scope(
    deployment: Deployment, option: str, path: str
) -> None:
    bob = conversation(deployment, option, path, "bob")
    assert bob["scope"] == "read"
    assert bob["tools"] == ["who_am_i"]
    assert bob["who_am_i"] == "bob"
    assert bob["clear_stock"].startswith("error: ")
    assert "clear_stock" in bob["clear_stock"]


def conversation(
    deployment: Deployment, option: str, path: str, account: str
) -> dict[str, Any]:
    """What the official client saw."""
    try:
        interpreter = python_sdk(1)
    except Unavailable as reason:
        pytest.skip(f"cannot install the official client: {reason}")
    url = deployment.origin + path
    done = subprocess.run(
        [str(interpreter), str(HERE / "oauth_client.py"), option, url, account],
        env={**os.environ, "SSL_CERT_FILE": str(deployment.certificate)},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report
