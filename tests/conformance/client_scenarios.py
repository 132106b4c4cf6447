"""Run the client scenarios of the official suite.

    python -m tests.conformance.client_scenarios

Scenarios with an OAuth login are left out, because `mcp_trio.client` takes a token and
leaves the login to the program. So are the scenarios of extensions.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.clients.install import Unavailable
from tests.conformance.__main__ import install

CLIENT = Path(__file__).with_name("client.py")
SECONDS = 60
# Revision -> the scenarios that apply to it.
SCENARIOS = {
    "2025-06-18": ["initialize", "tools_call"],
    "2025-11-25": [
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        "json-schema-2020-12-preservation",
    ],
    "2026-07-28": [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ],
}


def main() -> int:
    """Run all scenarios. Returns the exit code."""
    try:
        suite = install()
    except Unavailable as reason:
        print(f"cannot install the suite: {reason}", file=sys.stderr)
        return 2
    failed = 0
    for revision, scenarios in SCENARIOS.items():
        for scenario in scenarios:
            passed, problems = run_scenario(suite, scenario, revision)
            failed += len(problems)
            mark = "FAILED" if problems else "ok"
            print(f"  {mark:<6} {revision} {scenario}: {passed} passed", flush=True)
            for problem in problems:
                print(f"           {problem}")
    print(f"Client scenarios: {failed} checks failed")
    return 1 if failed else 0


def run_scenario(
    suite: list[str], scenario: str, revision: str
) -> tuple[int, list[str]]:
    """Run one scenario. Returns the number of passed checks, and the problems."""
    command = [*suite, "client", "--command", f"{sys.executable} {CLIENT}"]
    command += ["--scenario", scenario, "--spec-version", revision]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, "-o", folder],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        found = [read_checks(file) for file in Path(folder).rglob("checks.json")]
    checks = [check for one in found for check in one]
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    problems = [
        f"{check['id']}: {check.get('errorMessage') or check.get('description')}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    ]
    if not passed or (done.returncode and not problems):
        problems.append(f"exit code {done.returncode}: {done.stderr.strip()[-800:]}")
    return passed, problems


def read_checks(file: Path) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return checks


if __name__ == "__main__":
    sys.exit(main())
