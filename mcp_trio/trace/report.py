"""Reports of replays: Markdown for a pull request, and JUnit XML for CI."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from .diagram import in_terminal, printable
from .format import Trace, Transport
from .replay import Finding, Replay
from .suite import Result, remarks, report_lines, seen_over, summary

# The columns of the diagrams in a Markdown report.
_WIDTH = 110
# The most findings in a Markdown report. Hosts truncate comments that are too long.
_MAX_FINDINGS = 50


# Markdown


def markdown(results: Sequence[Result]) -> str:
    """Return a report of all results, with diagrams of both sides of differences."""
    rows = ["# Replayed traces", "", f"{summary(results)}.", ""]
    for result in results:
        if result.findings or result.problems:
            rows.extend(_markdown_of(result))
    return "\n".join(rows)


def _markdown_of(result: Result) -> Iterator[str]:
    yield f"## {result.path}"
    yield ""
    findings = result.findings
    for finding in findings[:_MAX_FINDINGS]:
        yield from _markdown_of_finding(result, finding)
    if len(findings) > _MAX_FINDINGS:
        yield f"And {len(findings) - _MAX_FINDINGS} more differences."
        yield ""
    for note in [*result.problems, *remarks(result)]:
        yield from _fenced("text", note)
    for replay in result.replays:
        if replay.findings:
            yield from _both_sides(replay)
            break


def _markdown_of_finding(result: Result, finding: Finding) -> Iterator[str]:
    yield f"Line {finding.line}, over {seen_over(result, finding)}:"
    yield ""
    difference = finding.difference
    if difference is None:
        yield from _fenced("text", printable(finding.what))
        return
    old, new = difference.values()
    path = finding.what + difference.path.removeprefix("$")
    heading = f"@@ {printable(path)} {difference.kind}".rstrip()
    yield from _fenced("diff", f"{heading}\n- {printable(old)}\n+ {printable(new)}")


def _both_sides(replay: Replay) -> Iterator[str]:
    sides: list[tuple[str, Trace]] = [
        ("The conversation in the trace", replay.trace),
        (f"The conversation now, over {replay.over}", replay.updated()),
    ]
    for title, trace in sides:
        yield f"<details><summary>{title}</summary>"
        yield ""
        yield from _fenced("text", in_terminal(trace, _WIDTH, color=False))
        yield "</details>"
        yield ""


def _fenced(language: str, text: str) -> Iterator[str]:
    """Yield a code block. Its fence is longer than any row of backticks in the text."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield text
    yield fence
    yield ""


# JUnit


def junit(results: Sequence[Result]) -> bytes:
    """Return the results as JUnit XML: a test for each transport of each trace."""
    suite = ElementTree.Element("testsuite", name="mcp-trio replay")
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for result in results:
        for case in _cases(result):
            suite.append(case)
            counts["tests"] += 1
            counts["failures"] += len(case.findall("failure"))
            counts["errors"] += len(case.findall("error"))
            counts["skipped"] += len(case.findall("skipped"))
    for name, number in counts.items():
        suite.set(name, str(number))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(
        suites, encoding="utf-8", xml_declaration=True
    )
    return document + b"\n"


def _cases(result: Result) -> Iterator[ElementTree.Element]:
    by_transport: dict[Transport, list[Replay]] = {}
    for replay in result.replays:
        by_transport.setdefault(replay.over, []).append(replay)
    for over, replays in by_transport.items():
        seconds = sum(replay.seconds for replay in replays)
        case = _case(result, over, seconds)
        rows = list(report_lines(Result(result.path, replays)))
        if rows:
            failure = ElementTree.SubElement(case, "failure", message=rows[0])
            failure.text = "\n".join(rows)
        yield case
    if result.problems:
        case = _case(result, "run", 0.0)
        problem = printable(result.problems[0])
        error = ElementTree.SubElement(case, "error", message=problem)
        error.text = "\n".join(printable(one) for one in result.problems)
        yield case
    elif not result.replays:
        case = _case(result, "run", 0.0)
        message = "the trace cannot be replayed over the transports of the target"
        ElementTree.SubElement(case, "skipped", message=message)
        yield case


def _case(result: Result, name: str, seconds: float) -> ElementTree.Element:
    return ElementTree.Element(
        "testcase",
        classname=printable(str(result.path)),
        name=name,
        time=f"{seconds:.3f}",
    )
