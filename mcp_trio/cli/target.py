"""TODO"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from typing import Any

from ..client.client import Client
from ..client.target import connect, is_url
from ..load_spec import load
from .options import (
    DEMO,
    SPOKEN,
    token_of,
)


@asynccontextmanager
async def _client(
    spec: str | None, options: argparse.Namespace, **about: Any
) -> AsyncIterator[Client]:
    """A client of a TARGET. What the target prints goes to stderr."""
    from .. import testing

    revision = options.revision or SPOKEN
    with redirect_stdout(sys.stderr):
        if options.command or is_url(spec):
            about["token"] = token_of(options)
            found = connect(options.command or str(spec), revision, **about)
        else:
            found = testing.connect(
                load(DEMO if spec is None else spec), revision, **about
            )
        async with found as connected:
            yield connected
