"""The command `show`: draw a trace as a sequence diagram."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .options import Parser
from .output import in_colour

if TYPE_CHECKING:
    from ..trace.format import Trace


def show_arguments(parser: Parser) -> None:
    """Add the arguments of `show`."""
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file *.jsonl")
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="write the diagram as a page that needs no network",
    )


def show(options: argparse.Namespace) -> int:
    """Show a trace as a sequence diagram.

    If the trace is cut off, what is left is shown, and the exit code is 2.
    """
    from ..trace import format

    try:
        _draw(format.read(options.trace), options.html)
    except format.BadTrace as bad:
        if bad.whole:
            _draw(bad.whole, options.html)
        raise
    return 0


def _draw(trace: Trace, page: Path | None) -> None:
    from ..trace import diagram

    if page:
        page.write_text(diagram.as_html(trace), encoding="utf-8")
        return
    width = shutil.get_terminal_size().columns
    print(diagram.in_terminal(trace, width, in_colour()))
