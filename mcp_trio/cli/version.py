"""TODO"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import trio

from .. import __version__
from ..protocol.revisions import REVISIONS

if TYPE_CHECKING:
    pass


# version


def _version(options: argparse.Namespace) -> int:
    """Print the versions, of itself and of the protocol."""
    print(
        f"mcp_trio {__version__} on Python {sys.version.split()[0]}, trio {trio.__version__}"
    )
    print(f"speaks {', '.join(revision.name for revision in REVISIONS)}")
    return 0
