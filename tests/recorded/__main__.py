"""Records the traces in traces/clients again: `python -m tests.recorded [NAME...]`.

Real clients talk to the demo server, with this project's recorder between them. Their
versions are pinned by tests/clients/install.py. A NAME is that of a file without its
suffix; without names, all traces are recorded. Session ids, which differ each time, are
replaced by `session-1` and so on. Everything else is unchanged, including the times.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mcp_trio.trace.format import Trace, read
from tests.clients.install import command_of

from .recording import PROJECT, listening, recorded, recorder, run, serve_conversation

FOLDER = PROJECT / "traces" / "clients"
DEMO = "mcp_trio.demo"
# It changes with each release, and says nothing about the protocol.
VERSION = {
    False: ["/result/serverInfo/version"],
    True: ["/result/_meta/io.modelcontextprotocol~1serverInfo/version"],
}
TRANSPORTS = {
    "stdio": "stdio",
    "http": "Streamable HTTP",
    "sse": "the HTTP+SSE of 2024",
}
TOUR = (
    "The conversation of tests/clients: lists of everything with all their pages, calls of tools, one that tells its"
    " progress, one that asks the user, one with bad arguments and one that there is not, a resource, a prompt, a"
    " completion."
)
INSPECTED = {
    "stdio": "A tool is called.",
    "http": "Four commands, each with connections of its own.",
}
ERAS = {
    "newest": "It asks for the newest revision.",
    "legacy": "It opens a session, with the handshake.",
}
PARTICULAR = {
    "typescript-sdk-2-stdio": "It has asked a process of its own before which revisions there are.",
    "inspector-stdio": "It listens until its end, which no other transport shows to the server.",
}
HOLDS_ON = {
    "inspector-stdio": ["stdio"],
    "inspector-http": ["http"],
    "inspector-legacy-http": ["http"],
}
ONE_CALL = [
    "--method",
    "tools/call",
    "--tool-name",
    "get_weather",
    "--tool-arg",
    "location=London",
]
ONE_PROMPT = [
    "--method",
    "prompts/get",
    "--prompt-name",
    "write_postcard",
    "--prompt-args",
    "city=London",
]
INSPECTING = [
    ["--method", "tools/list"],
    ONE_CALL,
    ["--method", "resources/read", "--uri", "demo://about"],
    ONE_PROMPT,
]


class Recording(NamedTuple):
    """A trace to record: the client, its era, and the transport."""

    client: str
    era: str
    transport: str
    called: str

    @property
    def name(self) -> str:
        """Return the name of the file, without its suffix."""
        words = [
            *self.called.lower().split(),
            *(["legacy"] if self.era == "legacy" else []),
            self.transport,
        ]
        return "-".join(words)


RECORDINGS = [
    Recording(client, era, transport, called)
    for client, called, eras, transports in [
        ("python 1", "Python SDK 1", [""], ["stdio", "http", "sse"]),
        ("python 2", "Python SDK 2", ["newest", "legacy"], ["stdio", "http"]),
        ("fastmcp", "FastMCP", ["newest", "legacy"], ["stdio", "http"]),
        ("typescript 1", "TypeScript SDK 1", [""], ["stdio", "http", "sse"]),
        ("typescript 2", "TypeScript SDK 2", ["newest", "legacy"], ["stdio", "http"]),
        ("inspector", "Inspector", ["newest", "legacy"], ["stdio", "http"]),
    ]
    for era in eras
    for transport in transports
]


def record(recording: Recording, file: Path) -> str:
    """Record the conversation. Returns the version of the client."""
    speak = inspected if recording.client == "inspector" else toured
    if recording.transport == "stdio":
        return speak(recording, ["--", *recorder(file, DEMO)])
    with listening(file, DEMO) as url:
        return speak(
            recording,
            [url.replace("/mcp", "/sse") if recording.transport == "sse" else url],
        )


def toured(recording: Recording, target: Sequence[str]) -> str:
    """Let an SDK's client have its conversation."""
    where = {"stdio": [], "http": ["--url"], "sse": ["--sse"]}[recording.transport]
    report = serve_conversation(
        command_of(recording.client),
        "--revision",
        recording.era or "newest",
        *where,
        *target,
    )
    sdk: str = report["sdk"]
    return re.sub("^python ", "mcp ", sdk)


def inspected(recording: Recording, target: Sequence[str]) -> str:
    """Run the Inspector once for each request, on stdio with a server for each run."""
    command = command_of(recording.client)
    era = {"newest": "modern", "legacy": "legacy"}[recording.era]
    target = [word for word in target if word != "--"]
    with tempfile.TemporaryDirectory() as home:  # it keeps a catalog there
        for wanted in INSPECTING if recording.transport == "http" else [ONE_CALL]:
            run([*command, *target, "--protocol-era", era, *wanted], HOME=home)
        return f"@modelcontextprotocol/inspector {run([*command, '--version'], HOME=home).split()[-1]}"


def described(trace: Trace, recording: Recording, version: str) -> Trace:
    """Return the trace with a header that describes it."""
    what = INSPECTED[recording.transport] if recording.client == "inspector" else TOUR
    why = "Recorded so that what real clients say stays answered."
    modern = trace.header.revision == "2026-07-28"
    header = msgspec.structs.replace(
        trace.header,
        title=f"{recording.called} over {TRANSPORTS[recording.transport]}",
        client=version,
        over=HOLDS_ON.get(
            recording.name,
            ["stdio", "http", "ws"] if modern else ["stdio", "http", "sse", "ws"],
        ),
        ignore=VERSION[modern],
        notes=" ".join(
            filter(
                None,
                [what, ERAS.get(recording.era), PARTICULAR.get(recording.name), why],
            )
        ),
    )
    return msgspec.structs.replace(trace, header=header)


def without_session_ids(data: bytes) -> bytes:
    """Return the recorded trace, with numbers instead of session ids."""
    found = re.findall(rb'"mcp-session-id":"([^"]+)"|\?session=([\w-]+)', data)
    for number, session in enumerate(dict.fromkeys(a or b for a, b in found), 1):
        data = data.replace(session, b"session-%d" % number)
    return data


def main() -> None:
    """Record the traces that are named, or all."""
    wanted: list[Any] = [
        one for one in RECORDINGS if not sys.argv[1:] or one.name in sys.argv[1:]
    ]
    if len(wanted) < len(sys.argv[1:]):
        sys.exit(f"the recordings are: {' '.join(one.name for one in RECORDINGS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for recording in wanted:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.jsonl"
            version = record(recording, file)
            file = recorded(file)
            file.write_bytes(without_session_ids(file.read_bytes()))
            trace = described(read(file), recording, version)
        (FOLDER / f"{recording.name}.jsonl").write_bytes(trace.dump())
        print(
            f"{recording.name}: {version}, {trace.header.revision}, {len(trace.lines)} lines"
        )


if __name__ == "__main__":
    main()
