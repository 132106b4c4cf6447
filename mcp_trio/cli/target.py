"""Connect to the target of a command: a SPEC, a URL or the command of a server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout

from .. import testing
from ..client.client import Client
from ..client.handlers import AnswerCallback
from ..client.target import connect, is_url
from ..load_spec import load
from ..protocol.types import Json
from .options import DEFAULT_REVISION, DEMO, token_of


@asynccontextmanager
async def connect_to_target(
    spec: str | None,
    options: argparse.Namespace,
    *,
    capabilities: Json | None = None,
    answer: AnswerCallback | None = None,
) -> AsyncIterator[Client]:
    """Connect to a target, and redirect its output to standard error."""
    revision = options.revision or DEFAULT_REVISION
    with redirect_stdout(sys.stderr):
        if options.command or is_url(spec):
            connection = connect(
                options.command or str(spec),
                revision,
                token=token_of(options),
                capabilities=capabilities,
                answer=answer,
            )
        else:
            server = load(DEMO if spec is None else spec)
            connection = testing.connect(
                server,
                revision,
                capabilities=capabilities,
                answer=answer,
                timeout=None,
            )
        async with connection as client:
            yield client
