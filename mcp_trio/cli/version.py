"""The command `version`."""

from __future__ import annotations

import argparse
import sys

import trio

from .. import __version__
from ..protocol.revisions import REVISIONS
from .options import Parser


def version_arguments(parser: Parser) -> None:
    """Declare the arguments of `version`, which has none."""


def version(options: argparse.Namespace) -> int:
    """Print the versions of mcp_trio and of the protocol."""
    python, _, _ = sys.version.partition(" ")
    print(f"mcp_trio {__version__} on Python {python}, trio {trio.__version__}")
    revisions = ", ".join(revision.name for revision in REVISIONS)
    print(f"protocol revisions: {revisions}")
    return 0
