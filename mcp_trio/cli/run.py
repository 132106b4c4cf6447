"""The command `run`: serve a server.

Every server starts here, so this module imports only what serving needs.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import trio
from msgspec.structs import replace

from ..auth.access import Access
from ..load_spec import UsageError, load
from ..serve import Server as PublicServer
from ..serve import add_skills, serve
from ..server.app import Server
from .log_format import FORMATTERS
from .options import DEMO, PROG, at_terminal, listening, looks_like_url
from .run_options import fill_from_environment, resolve_places, run_arguments

if TYPE_CHECKING:
    from .reload import Reloader

# The options that are fields of `Limits`.
LIMITS = (
    "timeout",
    "rate",
    "max_in_flight",
    "max_sessions",
    "max_result",
    "threads",
    "memory",
)

__all__ = ["run", "run_arguments"]


def run(options: argparse.Namespace) -> int:
    """Serve a SPEC, or the demo server."""
    _check_target(options)
    fill_from_environment(options)
    resolve_places(options)
    _check_extras(options)
    _check_workers(options)
    set_up_logging(options)
    if options.workers is not None:
        from .run_workers import run_workers

        # Report invalid options before the port is open and workers are started.
        serve_options(options)
        return run_workers(options)
    if options.reload:
        # A cached file is not updated if the source changes twice within a second and
        # keeps its size.
        sys.dont_write_bytecode = True
    if options.stdio or not (options.http or options.ws):
        _serve_on_stdio(options)
    else:
        _load_and_serve(options, stdio=False)
    return 0


def _check_target(options: argparse.Namespace) -> None:
    if options.command:
        command = " ".join(options.command)
        if options.spec is not None:
            raise UsageError(
                f"run: expected only a SPEC, got the arguments {command!r} for it; use "
                "environment variables instead, which clients can set"
            )
        raise UsageError(
            f"run: expected a SPEC, got a command; to inspect it, run: "
            f"{PROG} inspect -- {command}"
        )
    if looks_like_url(options.spec):
        raise UsageError(
            f"run: expected a SPEC, got a URL; to inspect it, run: "
            f"{PROG} inspect {options.spec}"
        )


def _check_extras(options: argparse.Namespace) -> None:
    """Raise UsageError if an option needs a library that is not installed."""
    if options.console:
        _require("--console", "quart_trio", extra="console")
    if options.skills:
        _require("--skills", "yaml", extra="skills")
    if options.http and options.http_engine == "hypercorn":
        _require("--http-engine hypercorn", "hypercorn", extra="http2")
    if options.otel:
        _require("--otel", "opentelemetry", extra="otel")
    require_store(options.store)


def _check_workers(options: argparse.Namespace) -> None:
    """Raise UsageError if --workers cannot be combined with the other options."""
    if options.workers is None:
        if options.worker_timeout is not None:
            raise UsageError(
                "--worker-timeout: expected --workers with it, because only workers "
                "are replaced; add --workers 4, or leave out --worker-timeout"
            )
        return
    if sys.platform == "win32":
        raise UsageError(
            "--workers: not available on Windows; start several processes on different "
            "ports behind a load balancer"
        )
    if options.stdio or not (options.http or options.ws):
        raise UsageError(
            "--workers: expected --http or --ws, as standard input and output serve "
            "one client; add --http 8000, or leave out --workers"
        )
    for option in ("reload", "console"):
        if getattr(options, option):
            raise UsageError(
                f"--{option}: cannot be combined with --workers, because it only "
                f"affects one process; leave out --workers or --{option}"
            )


def require_store(url: str | None) -> None:
    """Raise UsageError if a library for this store is not installed."""
    if url is not None and url.startswith("redis"):
        _require("--store redis://", "coredis", extra="redis")


def use_store(server: Server, url: str | None) -> None:
    """Let a server use the store at a URL. Raises UsageError."""
    if url is None:
        return
    try:
        server.use_store(url)
    except ValueError as error:
        raise UsageError(f"--store: {error}") from None


def _require(option: str, library: str, *, extra: str) -> None:
    if find_spec(library) is None:
        raise UsageError(f"{option} needs: pip install 'mcp_trio[{extra}]'")


def set_up_logging(options: argparse.Namespace, *, worker: int | None = None) -> None:
    """Log to standard error. Lines of a worker process begin with its number."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[options.log_format or "text"](worker))
    level = options.log_level or "warning"
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _serve_on_stdio(options: argparse.Namespace) -> None:
    from ..transports.stdio import claim

    explains = at_terminal()
    # What the user's module prints when it is imported must not reach the client.
    with claim() as descriptors:
        _load_and_serve(options, stdio=descriptors, explains=explains)


def _load_and_serve(
    options: argparse.Namespace,
    *,
    stdio: bool | tuple[int, int],
    explains: bool = False,
) -> None:
    server = load_server(options)
    reloader = _reloader(server, options) if options.reload else None
    # After the reloader has noted the SPEC's own settings, to which it compares later.
    configure(server, options)
    if explains:
        _explain(server)
    start = partial(serve, server, stdio=stdio, **serve_options(options))
    places = [place for place in (options.http, options.ws, options.console) if place]
    trio.run(_serve_and_announce, server, start, places, reloader)


def load_server(options: argparse.Namespace) -> Server:
    """Return the server that the options name. Raises UsageError."""
    if options.spec is None and options.skills:
        name = os.path.basename(os.path.abspath(options.skills))
        return PublicServer(name or "skills")
    return load(DEMO if options.spec is None else options.spec)


def _add_skills(server: Server, folder: str | None) -> None:
    """Serve the folder of --skills, if it is given. Raises UsageError."""
    if folder is None:
        return
    try:
        add_skills(server, folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"--skills: {error}") from None


def _reloader(server: Server, options: argparse.Namespace) -> Reloader:
    from .reload import Reloader

    spec = options.spec
    if spec is None and options.skills is None:
        raise UsageError(
            "--reload: expected a SPEC, as the demo does not change; for example: "
            f"{PROG} run server.py --reload"
        )
    return Reloader(server, spec)


def configure(server: Server, options: argparse.Namespace) -> None:
    """Apply the options, which override the server's own. Raises UsageError."""
    _add_skills(server, options.skills)
    if options.grace is not None:
        server.grace = options.grace
    if options.task_slots is not None:
        server.task_slots = options.task_slots
    use_store(server, options.store)
    limits = {}
    for name in LIMITS:
        value = getattr(options, name)
        if value is not None:
            limits[name] = value
    server.use_limits(replace(server.limits, **limits))
    server.event_log.with_arguments = options.log_arguments
    if options.otel:
        server.telemetry = True
        _warn_without_exporter()
    if options.profile is not None:
        server.use_profile(options.profile)
    if options.token_file is not None:
        require_tokens(server, options.token_file)


def _warn_without_exporter() -> None:
    """Log a warning if spans and metrics are not exported anywhere."""
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        logging.getLogger("mcp_trio").warning(
            "--otel: no OpenTelemetry SDK is set up, so nothing is exported; start "
            "with opentelemetry-instrument, or set one up in the server's file"
        )


def require_tokens(server: Server, path: str) -> None:
    """Accept the tokens of a file, and no others. Raises UsageError."""
    from ..auth.token_file import token_file

    try:
        verify = token_file(path)
    except OSError as error:
        raise UsageError(
            f"--token-file: cannot read {path}: {error.strerror}; to make a token and "
            f"its line: {PROG} token NAME"
        ) from None
    except ValueError as error:
        raise UsageError(f"--token-file: {error}") from None
    if server.access is None:
        server.access = Access(verify)
    else:
        # The server still requires its scopes of every token.
        server.access.verify = verify


def serve_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `serve` from the options. Raises UsageError."""
    given = {
        "http": options.http,
        "ws": options.ws,
        "console": options.console,
        "http_engine": options.http_engine,
        "path": options.path,
        "cors": options.cors,
        "stateless": options.stateless,
        "allowed_hosts": options.allowed_host,
        "allowed_origins": options.allowed_origin,
        "public_url": options.public_url,
        "trusted_proxies": options.trusted_proxy,
        "tls": _tls_files(options.tls_cert, options.tls_key),
    }
    return {name: value for name, value in given.items() if value}


def _tls_files(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    """Return the files for TLS, if they are given and valid. Raises UsageError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given = "--tls-key" if certificate is None else "--tls-cert"
        raise UsageError(
            f"--tls-cert and --tls-key: expected both or neither, got only {given}"
        )
    for option, file in (("--tls-cert", certificate), ("--tls-key", key)):
        if not os.path.isfile(file):
            raise UsageError(
                f"{option}: expected a file in PEM format, got {file!r}, which does "
                "not exist"
            )
    import ssl

    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise UsageError(
            f"--tls-cert {certificate}, --tls-key {key}: expected a certificate and "
            f"its private key, in PEM format: {error}"
        ) from None
    return certificate, key


async def _serve_and_announce(
    server: Server,
    start: partial[Any],
    places: list[str],
    reloader: Reloader | None,
) -> None:
    reloading = reloader.watching() if reloader else nullcontext()
    with listening(*places):
        async with reloading, trio.open_nursery() as nursery:
            for url in await nursery.start(start):
                print(f"Serving {server.info.name!r} on {url}", file=sys.stderr)


def _explain(server: Server) -> None:
    print(
        f"Serving {server.info.name!r} on standard input and output, waiting for the "
        "JSON-RPC messages of a client.\n"
        "To list its tools: python -m mcp_trio inspect [SPEC]. "
        "For all commands: python -m mcp_trio --help.\n"
        "To stop: Ctrl-C or Ctrl-D.",
        file=sys.stderr,
    )
