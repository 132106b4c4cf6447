"""The results of the latest runs, in results.json, and their page docs/clients.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.clients.matrix.clients import CLIENTS, Client
from tests.clients.matrix.features import GROUPS, Feature
from tests.clients.matrix.runs import Run
from tests.support.paths import PROJECT

RESULTS = Path(__file__).resolve().parent / "results.json"
PAGE = PROJECT / "docs" / "clients.md"
WORKS = "✓"
FAULT = "✗"
NONE = "–"
INTRODUCTION = """\
# Clients

<!-- Written by `tox -e clients -- --update`. -->

mcp_trio is tested with clients that other projects wrote. Each one talks to
[one server](../tests/clients/matrix/server.py) that has a tool, resource or prompt for each feature, on each transport
and with each protocol revision that the client supports. No model and no network are involved: of frameworks, only the
MCP client is used.

In the tables, ✓ means that the feature works in all of the client's runs. ✗ means that it fails in some of them because
of the client: [the reasons](#why-some-features-fail) are below. – means that the client does not have the feature, or
does not give programs access to it. An empty cell means that the client's transports and revisions do not have it.

To run the tests yourself, see [CONTRIBUTING.md](../CONTRIBUTING.md#testing-with-other-clients).
"""


@dataclass(frozen=True)
class Cell:
    """The outcome of one feature in one run."""

    client: str
    run: str
    feature: str
    kind: str
    """`pass`, `fail`, `fault` (it fails by the client's own fault) or `unsupported`."""
    reason: str


def read() -> dict[str, Any]:
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def results_of(cells: Iterable[Cell]) -> dict[str, Any]:
    """Return the results of the clients that have cells."""
    by_name = {client.name: client for client in CLIENTS}
    results: dict[str, Any] = {}
    for cell in sorted(cells, key=lambda cell: (cell.client, cell.run)):
        if cell.client not in results:
            results[cell.client] = {
                "package": by_name[cell.client].packages[0],
                "date": datetime.now(UTC).date().isoformat(),
                "runs": {},
            }
        run = results[cell.client]["runs"].setdefault(cell.run, {})
        run[cell.feature] = [cell.kind, cell.reason] if cell.reason else [cell.kind]
    return results


def merge(known: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Replace the known results of the runs in `found`."""
    for name, result in found.items():
        earlier = known.get(name)
        if earlier is None or earlier["package"] != result["package"]:
            known[name] = result
        else:
            earlier["date"] = result["date"]
            earlier["runs"] |= result["runs"]


def write(results: Mapping[str, Any], path: Path) -> None:
    text = json.dumps(results, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def page(results: Mapping[str, Any]) -> str:
    """Return the text of docs/clients.md."""
    clients = [client for client in CLIENTS if client.name in results]
    parts = [INTRODUCTION, "## Versions\n", versions(clients, results)]
    for title, features in GROUPS.items():
        parts += [f"## {title}\n", matrix(clients, features, results)]
        parts.append(legend(features))
    parts += ["## Why some features fail\n", reasons(clients, results)]
    return "\n".join(parts)


def versions(clients: list[Client], results: Mapping[str, Any]) -> str:
    rows = []
    for client in clients:
        package, version = split_package(results[client.name]["package"])
        runs = ", ".join(results[client.name]["runs"])
        date = results[client.name]["date"]
        title = [client.title, client.language, f"`{package}` {version}"]
        rows.append([*title, runs, date])
    header = ["client", "language", "package", "transports and revisions", "tested on"]
    return table(header, rows)


def split_package(package: str) -> tuple[str, str]:
    """Split a name and a version as pip, npm, go and others write them."""
    for separator in ("==", ":"):
        if separator in package:
            name, _, version = package.rpartition(separator)
            return name, version
    name, _, version = package.rpartition("@")
    return name, version


def matrix(
    clients: list[Client], features: list[Feature], results: Mapping[str, Any]
) -> str:
    header = ["client", *(feature.title for feature in features)]
    rows = []
    for client in clients:
        runs = results[client.name]["runs"].values()
        symbols = [symbol(feature, runs) for feature in features]
        rows.append([f"{client.title} ({client.language})", *symbols])
    return table(header, rows)


def symbol(feature: Feature, runs: Iterable[Mapping[str, Any]]) -> str:
    kinds = {run[feature.name][0] for run in runs if feature.name in run}
    if not kinds:
        return ""
    if kinds <= {"unsupported"}:
        return NONE
    return WORKS if kinds <= {"pass", "unsupported"} else FAULT


def legend(features: list[Feature]) -> str:
    lines = [f"- *{feature.title}*: {feature.description}" for feature in features]
    return "\n".join([*lines, ""])


def reasons(clients: list[Client], results: Mapping[str, Any]) -> str:
    """List the features that fail, and the runs where they do."""
    rows = []
    for client in clients:
        where: dict[tuple[str, str], list[str]] = {}
        for run, outcomes in results[client.name]["runs"].items():
            for feature, (kind, *reason) in outcomes.items():
                if kind in ("fail", "fault"):
                    where.setdefault((feature, "".join(reason)), []).append(run)
        for (feature, reason), runs in where.items():
            title = f"{client.title} ({client.language})"
            rows.append([title, feature.replace("_", " "), ", ".join(runs), reason])
    return table(["client", "feature", "where", "why"], rows)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def run_name(run: Run) -> str:
    return f"{run.transport} {run.revision}"
