"""Many traces on many transports: what is replayed where, a few at once, and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct, structs

from ..load_spec import UsageError, what_and_where
from .compare import Difference, shown
from .diagram import paint, printable
from .format import Trace, Transport, read
from .replay import LINE_BY_LINE, TIMEOUT, Finding, Replay, holds_on, ways
from .targets import Target, reachable

AT_ONCE = 8
RED, GREEN, BOLD = 31, 32, 1


class Result(Struct):
    """What became of one trace."""

    path: Path
    replays: list[Replay] = []
    # Why it could not be run.
    problems: list[str] = []

    @property
    def findings(self) -> list[Finding]:
        """Those of all replays, each once."""
        return list(
            {
                repr(finding): finding
                for run in self.replays
                for finding in run.findings
            }.values()
        )


def files(places: Iterable[Path]) -> list[Path]:
    """The traces that are named, and those in the folders that are. Raises UsageError."""
    found: list[Path] = []
    for place in places:
        inside = sorted(place.rglob("*.jsonl")) if place.is_dir() else [place]
        if not inside:
            raise UsageError(f"{place}: there are no traces (*.jsonl) in this folder")
        found += inside
    return list(dict.fromkeys(found))


def server_of(trace: Trace) -> str:
    """The target that a trace names, if it is a file or a module. Raises UsageError."""
    server = trace.header.server
    file, py, _ = server.partition(".py")
    is_module = all(part.isidentifier() for part in server.replace(":", ".").split("."))
    if os.path.isfile(file + py) if py else is_module:
        return server
    said = (
        f"was recorded from {server!r}, which is neither a file here nor a module"
        if server
        else "names no server"
    )
    raise UsageError(f"{trace.path}: {said}; give a target")


async def replay_all(
    paths: Sequence[Path],
    target: Target | None,
    over: Sequence[Transport] = (),
    timeout: float = TIMEOUT,
    patient: bool = False,
    progress: Callable[[int, int], None] = lambda done, all: None,
) -> list[Result]:
    """Replay each trace on each of the transports that it and its target have."""
    results = [Result(path) for path in paths]
    jobs: list[tuple[Result, Replay, Target]] = []
    for result in results:
        try:
            trace = read(result.path)
            to = server_of(trace) if target is None else target
            if not any(line.sender == "client" for line in trace.lines):
                raise UsageError(
                    f"{result.path}: its client says nothing, so that there is nothing to replay"
                )
        except UsageError as problem:
            result.problems.append(str(problem))
            continue
        on = [
            one
            for one in holds_on(trace)
            if one in reachable(to) and (not over or one in over)
        ]
        result.replays = [
            Replay(trace, one, way, timeout, patient)
            for one in on
            for way in ways(trace, one)
        ]
        jobs += [(result, run, to) for run in result.replays]
    waiting, done = iter(jobs), 0

    async def work() -> None:
        nonlocal done
        for result, run, to in waiting:
            try:
                await run.against(to)
            except Exception as error:
                result.replays.remove(run)
                result.problems.append(
                    f"{result.path}: could not be replayed over {run.over}: {_why(error)}"
                )
            done += 1
            progress(done, len(jobs))

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(work)
    return results


def _why(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (
        str(error) if isinstance(error, UsageError | OSError) else what_and_where(error)
    )


# What is said of it


def told(result: Result, *, colour: bool = False) -> Iterator[str]:
    """Each difference, with the lines and the transports where it was seen, and what could not be run."""
    painted = partial(paint, colour=colour)
    for finding in result.findings:
        line, what, difference = finding
        place, seen = (
            f"{result.path}:{line}:",
            _seen([run for run in result.replays if finding in run.findings]),
        )
        if difference is None:
            yield f"{painted(place, BOLD)} {printable(what)} ({seen})"
            continue
        path = printable(
            difference.path if what == "message" else what + difference.path[1:]
        )
        old, new = map(printable, difference.values())
        yield (
            f"{painted(f'{place} {path}', BOLD)} {difference.kind}".rstrip()
            + f" ({seen})"
        )
        yield f"    {painted(f'- {old}', RED)}"
        yield f"    {painted(f'+ {new}', GREEN)}"
    yield from map(printable, dict.fromkeys(result.problems))


def _seen(runs: list[Replay]) -> str:
    """On which transports, and where not in all ways, in which."""
    words = []
    for over in dict.fromkeys(run.over for run in runs):
        these = [run.way for run in runs if run.over == over]
        all_of_them = over != "stdio" or len(these) >= len(ways(runs[0].trace, over))
        words.append(over if all_of_them else f"{over} {' and '.join(these)}")
    return ", ".join(words)


def summary(results: Sequence[Result]) -> str:
    """All of it in one line."""
    replays = [run for result in results for run in result.replays]
    findings = sum(len(result.findings) for result in results)
    failed = sum(bool(result.problems) for result in results)
    left_out = sum(not result.replays and not result.problems for result in results)
    messages = sum(run.messages for run in replays)
    counts = [
        _count(len(results), "trace"),
        _count(len(replays), "replay"),
        _count(messages, "message"),
    ]
    counts.append(_count(findings, "difference") if findings else "no differences")
    counts += [f"{_count(failed, 'trace')} could not be run"] * bool(failed)
    return ", ".join(
        [
            *counts,
            *[f"{_count(left_out, 'trace')} left out, of other transports"]
            * bool(left_out),
        ]
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# What is changed by it


def update(result: Result) -> bool:
    """Write what came in the place of what was recorded, unless the conversation came to no end."""
    runs = [
        run
        for run in result.replays
        if run.way == LINE_BY_LINE and run.findings and not run.stopped
    ]
    if not runs:
        return False
    recorded = [run for run in runs if run.over == run.trace.header.transport]
    write(result.path, (recorded or runs)[0].updated())
    return True


def stabilise(first: Result, second: Result) -> list[Difference]:
    """Have a trace ignore from now on what differed from one replay to another; those places."""
    replays = [*first.replays, *second.replays]
    seen: dict[str, list[Difference]] = {}
    for run in replays:
        for line, what, difference in run.findings:
            if (
                difference is not None
                and what == "message"
                and len(difference.place) > 1
            ):
                seen.setdefault(f"{line} {difference.path}", []).append(difference)
    unstable = [
        found
        for found in seen.values()
        if len(found) < len(replays) or len({shown(f.new) for f in found}) > 1
    ]
    places = {found[0].pointer: found[0] for found in unstable}
    if places:
        trace = replays[0].trace
        header = structs.replace(trace.header, ignore=[*trace.header.ignore, *places])
        write(first.path, structs.replace(trace, header=header))
    return list(places.values())


def write(path: Path, trace: Trace) -> None:
    """Replace a file by a trace, or leave it as it is."""
    path = path.resolve()  # not a link to it
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(trace.dump())
        with suppress(FileNotFoundError):
            beside.chmod(path.stat().st_mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
