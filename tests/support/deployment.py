"""Servers, proxies and databases, each as a process on a free port."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.paths import PROJECT
from tests.support.ports import free_port

PATIENCE = 20
TEMPORARY = "".join(
    f"{name}_temp_path {{0}}/{name}; "
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)
HEAD = (
    "daemon off; worker_processes 1; pid {0}/pid; events {{}} http {{ access_log off; "
)


def wait_for_port(port: int, process: subprocess.Popen[str]) -> None:
    """Wait until a process listens on a port."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert process.poll() is None, f"{process.args!r} has ended"
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"nobody listens on port {port}")


@contextmanager
def ended_at_exit(process: subprocess.Popen[str]) -> Iterator[None]:
    with process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def running_server(
    *arguments: str,
    folder: Path = PROJECT,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Iterator[int]:
    """Run `mcp-trio run` with these arguments. Yields its port."""
    command = [*prefix, sys.executable, "-m", "mcp_trio", "run", *arguments]
    process = subprocess.Popen(
        [*command, "--http", "0"],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stderr=subprocess.PIPE,
        text=True,
    )
    with ended_at_exit(process):
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("Serving "):
                break
        assert said, "the server has said nothing"
        assert said[-1].startswith("Serving "), "".join(said)
        yield int(said[-1].rsplit(":", 1)[1].split("/")[0])


@contextmanager
def running_nginx(folder: Path, config: str, port: int) -> Iterator[None]:
    """Run nginx with this configuration, which listens on `port`."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    file = folder / "nginx.conf"
    head = (HEAD + TEMPORARY).format(folder)
    file.write_text(f"{head}\n{config}\n}}\n", encoding="utf-8")
    command = ["nginx", "-c", str(file), "-e", str(folder / "errors")]
    process = subprocess.Popen(command, text=True)
    with ended_at_exit(process):
        wait_for_port(port, process)
        yield


def nginx_of(page: str, name: str, ports: Sequence[int]) -> str:
    """Return the nginx configuration on a page, for servers on these ports."""
    text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
    (config,) = re.findall(
        rf"^```nginx\n(# {re.escape(name)}\n.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    written = dict.fromkeys(re.findall(r"127\.0\.0\.1:80\d\d", config))
    for place, port in zip(written, ports, strict=True):
        config = config.replace(place, f"127.0.0.1:{port}")
    return str(config)


@contextmanager
def balanced(folder: Path, ports: Sequence[int]) -> Iterator[str]:
    """Run an nginx before two servers, and return its URL.

    It is set up as docs/deployment.md says, without TLS and without the line that keeps
    a client with one server.
    """
    port = free_port()
    text = nginx_of("deployment.md", "balanced.conf", ports)
    text = re.sub(r"(?m)^ *(hash|ssl_certificate|server_name).*\n", "", text)
    text = text.replace("443 ssl", f"127.0.0.1:{port}")
    with running_nginx(folder, text, port):
        yield f"http://127.0.0.1:{port}/mcp"


def with_certificate(config: str, folder: Path, port: int) -> str:
    """Return the configuration for a port, with a certificate for this machine."""
    certificate = folder / "certificate.pem"
    make_certificate(certificate, folder / "key.pem")
    config = config.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")
    config = config.replace("server_name mcp.example.org;", "")
    config = re.sub(
        r"ssl_certificate [^;]+;", f"ssl_certificate {certificate};", config
    )
    return re.sub(
        r"ssl_certificate_key [^;]+;",
        f"ssl_certificate_key {folder / 'key.pem'};",
        config,
    )


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a certificate for localhost, signed by itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec",
            "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", str(key), "-out", str(certificate),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
