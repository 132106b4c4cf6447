"""Replay many traces over many transports, report what differs, and update traces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import trio
from msgspec import Struct, structs

from ..load_spec import UsageError, what_and_where
from .compare import Difference, json_text, write_pointer
from .diagram import paint, printable
from .format import FIRST_LINE, Line, Pattern, Trace, Transport, read
from .patterns import describe_pattern, infer, repeated_later
from .replay import LINE_BY_LINE, TIMEOUT, Finding, Replay, transports_of, ways
from .targets import NO_CREDENTIALS, Credentials, Target, reachable

# The number of concurrent replays.
AT_ONCE = 8
# The client may repeat shorter texts by chance.
_MIN_REPEATED = 6
# ANSI codes of text attributes.
BOLD = 1
RED = 31
GREEN = 32


class Result(Struct):
    """The result of replaying one trace."""

    path: Path
    replays: list[Replay] = []
    # The reasons why the trace, or a replay of it, could not be run.
    problems: list[str] = []

    @property
    def findings(self) -> list[Finding]:
        """The findings of all replays, without duplicates."""
        findings = {}
        for replay in self.replays:
            for finding in replay.findings:
                # Findings have JSON values, which cannot be hashed.
                findings[repr(finding)] = finding
        return list(findings.values())


class _Job(NamedTuple):
    """A replay that has to be run."""

    result: Result
    replay: Replay
    target: Target
    credentials: Credentials


# Selecting and running


def files(places: Iterable[Path]) -> list[Path]:
    """Return the traces at these paths, which may be folders. Raises UsageError."""
    found: list[Path] = []
    for place in places:
        inside = sorted(place.rglob("*.jsonl")) if place.is_dir() else [place]
        if not inside:
            raise UsageError(
                f"{place}: expected traces (*.jsonl) in this folder, found none"
            )
        found += inside
    return list(dict.fromkeys(found))


def tools_called(paths: Iterable[Path]) -> dict[str, int]:
    """Return how often the traces call each tool. Invalid traces are ignored."""
    calls: Counter[str] = Counter()
    for path in paths:
        try:
            trace = read(path)
        except UsageError:
            continue
        for line in trace.lines:
            for message in line.parts:
                match message:
                    case {"method": "tools/call", "params": {"name": str(name)}}:
                        calls[name] += 1
    return dict(calls)


def server_of(trace: Trace) -> str:
    """Return the target that a trace names, if it is safe to use. Raises UsageError.

    Files and modules are safe. Commands and URLs are not: a trace from somewhere else
    should not choose which program is run.
    """
    server = trace.header.server
    if _is_file_or_module(server):
        return server
    if server:
        problem = (
            f"was recorded from {server!r}, which is neither a file here nor a module"
        )
    else:
        problem = "names no server"
    raise UsageError(f"{trace.path}: {problem}; give a target")


def _is_file_or_module(server: str) -> bool:
    stem, suffix, _ = server.partition(".py")
    if suffix:
        return os.path.isfile(stem + suffix)
    names = server.replace(":", ".").split(".")
    return all(name.isidentifier() for name in names)


def _no_progress(done: int, total: int) -> None:
    """Ignore the progress."""


async def replay_all(
    paths: Sequence[Path],
    target: Target | None,
    over: Sequence[Transport] = (),
    timeout: float = TIMEOUT,
    patient: bool = False,
    progress: Callable[[int, int], None] = _no_progress,
    settle: float = 0.0,
    credentials: Credentials = NO_CREDENTIALS,
    at_once: int = AT_ONCE,
) -> list[Result]:
    """Replay each trace over each transport that the trace and the target support.

    Without a target, each trace is replayed against the server that it names. `over`
    limits the transports. `progress` is called after each replay, with the number of
    finished replays and the total. `settle` is the number of seconds to wait after the
    last line for messages that are not in the trace. `credentials` is for a URL.
    `at_once` is the number of concurrent replays.
    """
    results = []
    jobs: list[_Job] = []
    for path in paths:
        result = Result(path)
        results.append(result)
        try:
            trace = read(path)
            place = server_of(trace) if target is None else target
            _check_client_lines(trace)
        except UsageError as problem:
            result.problems.append(str(problem))
            continue
        for transport in _transports(trace, place, over):
            for way in ways(trace, transport):
                replay = Replay(trace, transport, way, timeout, patient, settle)
                result.replays.append(replay)
                jobs.append(_Job(result, replay, place, credentials))
    await _run(jobs, progress, at_once)
    return results


def _check_client_lines(trace: Trace) -> None:
    """Raise UsageError if the client sends nothing in a trace."""
    if not any(line.sender == "client" for line in trace.lines):
        raise UsageError(f"{trace.path}: nothing to replay: the client sends nothing")


def _transports(
    trace: Trace, target: Target, over: Sequence[Transport]
) -> list[Transport]:
    """Return the transports to replay a trace over, limited to `over` if given."""
    transports = []
    for transport in transports_of(trace):
        is_chosen = not over or transport in over
        if is_chosen and transport in reachable(target):
            transports.append(transport)
    return transports


async def _run(
    jobs: Sequence[_Job], progress: Callable[[int, int], None], at_once: int
) -> None:
    """Run all replays, at most `at_once` of them concurrently."""
    waiting = iter(jobs)
    done = 0

    async def work() -> None:
        nonlocal done
        for job in waiting:
            await _run_one(job)
            done += 1
            progress(done, len(jobs))

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(work)


async def _run_one(job: _Job) -> None:
    result, replay, target, credentials = job
    try:
        await replay.against(target, credentials)
    except Exception as error:
        result.replays.remove(replay)
        result.problems.append(
            f"{result.path}: could not be replayed over {replay.over}: {_reason(error)}"
        )


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, UsageError | OSError):
        return str(error)
    return what_and_where(error)


# Reporting


def remarks(result: Result) -> list[str]:
    """Return the notes of a trace's replays, without duplicates."""
    found = []
    for replay in result.replays:
        found += [
            f"{result.path}: note: {printable(remark)} ({replay.over})"
            for remark in replay.remarks
        ]
    return list(dict.fromkeys(found))


def report_lines(result: Result, *, color: bool = False) -> Iterator[str]:
    """Yield the lines of a report: the findings, and then the problems."""
    for finding in result.findings:
        yield from _report(result, finding, color=color)
    for problem in dict.fromkeys(result.problems):
        yield printable(problem)


def _report(result: Result, finding: Finding, *, color: bool) -> Iterator[str]:
    """Yield the lines about one finding, with the transports on which it occurred."""
    place = f"{result.path}:{finding.line}:"
    seen = seen_over(result, finding)
    difference = finding.difference
    if difference is None:
        place = paint(place, BOLD, color=color)
        yield f"{place} {printable(finding.what)} ({seen})"
        return
    path = difference.path
    if finding.what != "message":
        path = finding.what + path.removeprefix("$")
    words = [paint(f"{place} {printable(path)}", BOLD, color=color)]
    if difference.kind:
        words.append(difference.kind)
    words.append(f"({seen})")
    yield " ".join(words)
    old, new = difference.values()
    yield "    " + paint(f"- {printable(old)}", RED, color=color)
    yield "    " + paint(f"+ {printable(new)}", GREEN, color=color)


def seen_over(result: Result, finding: Finding) -> str:
    """Return the transports on which a finding occurred.

    The ways of sending are included if it did not occur with all of them.
    """
    replays = [replay for replay in result.replays if finding in replay.findings]
    ways_by_transport: dict[Transport, list[str]] = {}
    for replay in replays:
        ways_by_transport.setdefault(replay.over, []).append(replay.way)
    words = []
    for over, seen in ways_by_transport.items():
        if len(seen) < len(ways(replays[0].trace, over)):
            words.append(f"{over} {' and '.join(seen)}")
        else:
            words.append(over)
    return ", ".join(words)


def summary(results: Sequence[Result]) -> str:
    """Return one line about all results."""
    replays = [replay for result in results for replay in result.replays]
    messages = sum(replay.messages for replay in replays)
    findings = sum(len(result.findings) for result in results)
    failed = 0
    left_out = 0
    for result in results:
        if result.problems:
            failed += 1
        elif not result.replays:
            left_out += 1
    parts = [
        count(len(results), "trace"),
        count(len(replays), "replay"),
        count(messages, "message"),
        count(findings, "difference") if findings else "no differences",
    ]
    if failed:
        parts.append(f"{count(failed, 'trace')} could not be run")
    if left_out:
        parts.append(f"{count(left_out, 'trace')} skipped because of their transports")
    return ", ".join(parts)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed."""
    if number != 1:
        noun += "s"
    return f"{number:,} {noun}"


# Changing traces


def accept_all(finding: Finding) -> bool:
    """Accept every finding."""
    return True


def update(result: Result, accepts: Callable[[Finding], bool] = accept_all) -> bool:
    """Rewrite a trace with the received lines. Returns whether that was necessary.

    Findings for which `accepts` returns False do not change the trace.
    """
    replay = update_source(result)
    if replay is None:
        return False
    updated = replay.updated(accepts)
    if updated.lines == replay.trace.lines:
        return False
    write(result.path, updated)
    return True


def update_source(result: Result) -> Replay | None:
    """Return the replay that a trace can be updated from, if any.

    A replay that stopped early is not used. A replay over the transport of the
    recording is preferred.
    """
    candidates = [replay for replay in result.replays if _can_update(replay)]
    for replay in candidates:
        if replay.over == replay.trace.header.transport:
            return replay
    if candidates:
        return candidates[0]
    return None


def _can_update(replay: Replay) -> bool:
    if replay.way != LINE_BY_LINE or replay.stopped:
        return False
    return len(replay.findings) > 0


class Volatile(NamedTuple):
    """A value that differs from run to run, and its new pattern in the trace."""

    line: int
    difference: Difference
    # None if the value is ignored.
    pattern: Pattern | None

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the value in the trace."""
        if self.pattern is None:
            return self.difference.pointer
        return write_pointer(self.difference.location)

    def __str__(self) -> str:
        if self.pattern is None:
            return f"{self.pointer}: ignored from now on, as it is not in every run"
        return f"{self.pointer}: expected from now on: {describe_pattern(self.pattern)}"


# Announcements, which a client only receives if its stream is already open.
_ANNOUNCEMENTS = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
)


def make_optional(first: Result, second: Result) -> list[str]:
    """Make announcements optional that do not always arrive. Returns their methods.

    Both results are of the same trace.
    """
    differing = {
        finding.what.split(" ")[0]
        for finding in [*first.findings, *second.findings]
        if finding.difference is None
    }
    found = [method for method in _ANNOUNCEMENTS if method in differing]
    if found:
        trace = read(first.path)
        optional = [*trace.header.optional, *found]
        header = structs.replace(trace.header, optional=optional)
        write(first.path, structs.replace(trace, header=header))
    return found


def stabilise(first: Result, second: Result) -> list[Volatile]:
    """Add patterns to a trace for values that differ in two results of it.

    Returns the values. If there is no suitable pattern, the value is ignored. If the
    client repeats such a value, later replays send the value of their own run.
    """
    replays = [*first.replays, *second.replays]
    found = []
    for seen in _differences_by_place(replays):
        volatile = _volatile(seen, len(replays))
        if volatile is not None:
            found.append(volatile)
    if found:
        trace = replays[0].trace
        write(first.path, structs.replace(trace, lines=_stable_lines(trace, found)))
    return found


def _volatile(seen: Sequence[Finding], replays: int) -> Volatile | None:
    """Return the volatile value at the location of these findings.

    Returns None if all replays have the same difference there, which is not volatile.
    """
    differences = [finding.difference for finding in seen if finding.difference]
    values = {json_text(difference.new) for difference in differences}
    if len(seen) == replays and len(values) == 1:
        return None
    first = differences[0]
    pattern = infer([first.old, *(difference.new for difference in differences)])
    return Volatile(seen[0].line, first, pattern)


def _stable_lines(trace: Trace, found: Iterable[Volatile]) -> list[Line]:
    """Return the lines of a trace with patterns for volatile values."""
    lines = dict(enumerate(trace.lines, FIRST_LINE))
    for volatile in found:
        number = volatile.line
        line = lines[number]
        if volatile.pattern is None:
            ignore = [*line.ignore, volatile.pointer]
            lines[number] = structs.replace(line, ignore=list(dict.fromkeys(ignore)))
            continue
        lines[number] = _with_patterns(line, {volatile.pointer: volatile.pattern})
        old = volatile.difference.old
        if not isinstance(old, str) or len(old) < _MIN_REPEATED:
            continue
        for later, patterns in repeated_later(
            lines, number, volatile.pointer, old
        ).items():
            lines[later] = _with_patterns(lines[later], patterns)
    return list(lines.values())


def _with_patterns(line: Line, patterns: dict[str, Pattern]) -> Line:
    return structs.replace(line, match={**line.match, **patterns})


def _differences_by_place(replays: Iterable[Replay]) -> list[list[Finding]]:
    """Return the findings in messages, grouped by location."""
    places: dict[tuple[int, str], list[Finding]] = {}
    for replay in replays:
        for finding in replay.findings:
            difference = finding.difference
            if difference is None or finding.what != "message":
                continue
            if len(difference.location) > 1:
                place = (finding.line, difference.path)
                places.setdefault(place, []).append(finding)
    return list(places.values())


def write(path: Path, trace: Trace) -> None:
    """Replace a file with a trace, or leave it unchanged if that fails."""
    # Replace the file that a symbolic link leads to, not the link.
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(trace.dump())
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
