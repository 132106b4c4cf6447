"""TODO"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .options import Parser
from .output import in_colour

if TYPE_CHECKING:
    from ..trace.format import Trace


# show


def show_arguments(parser: Parser) -> None:
    """What show takes."""
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file *.jsonl")
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="write it as a page that needs no network",
    )


def show(options: argparse.Namespace) -> int:
    """Show a trace as a sequence picture.

    Of one that is cut off it is what there is, with exit code 2.
    """
    import shutil

    from ..trace import diagram as picture
    from ..trace import format

    def draw(trace: Trace) -> None:
        if options.html:
            options.html.write_text(picture.as_html(trace), encoding="utf-8")
        else:
            print(
                picture.in_terminal(
                    trace, shutil.get_terminal_size().columns, in_colour()
                )
            )

    try:
        draw(format.read(options.trace))
    except format.BadTrace as bad:
        if bad.whole:
            draw(bad.whole)
        raise
    return 0
