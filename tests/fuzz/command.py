"""Feed parsers and servers a million malformed inputs.

The same seed gives the same inputs. Nothing may crash, hang or grow. A failure is
reported with its input.
"""

from __future__ import annotations

import argparse
import logging
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed

from .parsers import PARSERS
from .running import Failure, run_parser
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
    """Run one target. Returns the number of its inputs, and what went wrong."""
    logging.disable(logging.CRITICAL)
    try:
        if name in PARSERS:
            return run_parser(name, inputs, seed, say), ""
        _, run_server = SERVERS[name]
        return run_server(inputs, seed, say), ""
    except Failure as failure:
        return 0, str(failure)
    # An error in a server or its client must not end the other targets.
    except Exception as problem:
        return 0, "".join(traceback.format_exception(problem))[-3_000:]


def main() -> int:
    """Run the targets that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--inputs",
        type=int,
        help="inputs of each target; by default its share of a million",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args()
    for target in options.targets:
        if target not in TARGETS:
            known = ", ".join(TARGETS)
            parser.error(f"expected a target ({known}), got {target!r}")
    # The longest first, so that both cores finish at about the same time.
    names = sorted(options.targets or TARGETS, key=LONGEST.__contains__, reverse=True)
    started = time.monotonic()
    total = 0
    failed = []
    with ProcessPoolExecutor(CORES) as pool:
        jobs = {
            pool.submit(run, name, options.inputs or TARGETS[name], options.seed): name
            for name in names
        }
        for job in as_completed(jobs):
            count, problem = job.result()
            total += count
            if problem:
                failed.append(jobs[job])
                say(f"FAILED {jobs[job]}: {problem}")
    seconds = time.monotonic() - started
    say(f"{total:,} inputs in {seconds:.0f} s: {total / seconds:,.0f} inputs/s")
    say(f"{len(failed)} of {len(names)} targets failed: {', '.join(failed) or 'none'}")
    return int(bool(failed))
