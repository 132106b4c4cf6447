"""Feeds parsers and servers what nobody should send: a million inputs to parsers, fifty thousand to servers.

The same seed gives the same inputs. Nothing may crash, hang, or grow; what is found is said with its input.
"""

from __future__ import annotations

import argparse
import logging
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed

from .parsers import PARSERS
from .running import Found, run_parser
from .servers import SERVERS

TARGETS = {
    **{name: share for name, (share, *_) in PARSERS.items()},
    **{name: n for name, (n, _) in SERVERS.items()},
}
CORES = 2
LONGEST = ["websocket", "http", "jsonrpc", "http-server", "ws-server"]


def say(line: str) -> None:
    print(line, flush=True)


def run(name: str, inputs: int, seed: int) -> tuple[int, str]:
    """One target: how many inputs it took, and what was found."""
    logging.disable(logging.CRITICAL)
    try:
        return (
            run_parser(name, inputs, seed, say)
            if name in PARSERS
            else SERVERS[name][1](inputs, seed, say)
        ), ""
    except Found as found:
        return 0, str(found)
    except (
        Exception
    ) as problem:  # of the server, or of its client: the other targets go on
        return 0, "".join(traceback.format_exception(problem))[-3_000:]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--inputs", type=int, help="for each target; by default its share of all"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args()
    if unknown := set(options.targets) - TARGETS.keys():
        parser.error(
            f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}"
        )
    # Those that take longest first, so that both cores are done at about the same time.
    names = sorted(options.targets or TARGETS, key=LONGEST.__contains__, reverse=True)
    begun, total, wrong = time.monotonic(), 0, []
    with ProcessPoolExecutor(CORES) as pool:
        jobs = {
            pool.submit(run, name, options.inputs or TARGETS[name], options.seed): name
            for name in names
        }
        for job in as_completed(jobs):
            count, found = job.result()
            total += count
            if found:
                wrong.append(jobs[job])
                say(f"FOUND {jobs[job]}: {found}")
    seconds = time.monotonic() - begun
    rate = f"{total:,} inputs in {seconds:.0f} s: {total / seconds:,.0f} inputs/s"
    say(
        f"{rate}; {len(wrong)} of {len(names)} targets failed: {', '.join(wrong) or 'none'}"
    )
    return 1 if wrong else 0
