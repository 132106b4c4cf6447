"""The command `show`: draw a trace as a sequence diagram."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ..load_spec import UsageError
from .options import Parser
from .output import in_color

if TYPE_CHECKING:
    from ..trace.format import Trace


def show_arguments(parser: Parser) -> None:
    """Add the arguments of `show`."""
    parser.add_argument(
        "traces",
        metavar="TRACE",
        type=Path,
        nargs="+",
        help="a file *.jsonl; with --check, any number of files and folders",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="write the diagram as a self-contained HTML page",
    )
    output.add_argument(
        "--check",
        action="store_true",
        help="check that the files are valid traces",
    )


def show(options: argparse.Namespace) -> int:
    """Show a trace as a sequence diagram, or check the format of traces.

    If the trace is cut off, its complete lines are shown, and the exit code is 2. With
    `--check` the exit code is 1 if a file is not a valid trace.
    """
    from ..trace import format

    if options.check:
        return _check(options.traces)
    if len(options.traces) > 1:
        raise UsageError(
            f"expected one trace to show, got {len(options.traces)}; "
            "only --check takes several"
        )
    [path] = options.traces
    try:
        _draw(format.read(path), options.html)
    except format.BadTrace as bad:
        if bad.whole:
            _draw(bad.whole, options.html)
        raise
    return 0


def _check(places: list[Path]) -> int:
    """Print the problems of each file. Returns the exit code."""
    from ..trace import check, suite

    paths = suite.files(places)
    invalid = 0
    for path in paths:
        problems = check.problems(path)
        for problem in problems:
            print(problem)
        if problems:
            invalid += 1
    if invalid:
        print(f"{invalid} of {suite.count(len(paths), 'trace')} not valid")
        return 1
    print(f"{suite.count(len(paths), 'trace')} valid")
    return 0


def _draw(trace: Trace, page: Path | None) -> None:
    from ..trace import diagram

    if page:
        page.write_text(diagram.as_html(trace), encoding="utf-8")
        return
    width = shutil.get_terminal_size().columns
    print(diagram.in_terminal(trace, width, in_color()))
