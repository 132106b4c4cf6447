"""A load that consists of several recorded conversations, with thinking time."""

import json
import sys

import pytest
from msgspec import Raw

from mcp_trio.bench.target import conversations, reach, recorded
from mcp_trio.cli.main import main
from mcp_trio.load_spec import UsageError
from mcp_trio.trace.format import Header, Line, Trace

REVISION = "2025-11-25"
DEMO = [sys.executable, "-m", "mcp_trio", "run", "mcp_trio.demo"]


def trace(*requests, revision=REVISION, every=0.0):
    """Return a trace of requests at intervals of some seconds, with empty results."""
    lines = []
    for id, (method, params) in enumerate(requests):
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        answer = {"jsonrpc": "2.0", "id": id, "result": {}}
        for sender, content in (("client", message), ("server", answer)):
            raw = Raw(json.dumps(content).encode())
            lines.append(Line(t=id * every, sender=sender, message=raw))
    return Trace(Header(mcp_trace=1, transport="stdio", revision=revision), lines)


PINGS = [("ping", {}), ("ping", {})]
LISTS = [("tools/list", {}), ("prompts/list", {}), ("resources/list", {})]


def test_users_think_as_long_as_in_the_trace_times_a_factor():
    requests = recorded(trace(*LISTS, every=0.5), REVISION, 2.0)
    assert [request.think for request in requests] == [0.0, 1.0, 1.0]
    assert [request.method for request in requests] == [name for name, _ in LISTS]
    requests = recorded(trace(*LISTS, every=5000), REVISION, 1.0)
    assert max(request.think for request in requests) == 60.0


def test_traces_of_other_revisions_are_left_out_of_a_mix():
    other = trace(*PINGS, revision="2024-11-05")
    assert len(conversations([trace(*LISTS), other], REVISION, 0.0)) == 1
    with pytest.raises(UsageError, match="expected revision 2025-11-25, got"):
        conversations([other], REVISION, 0.0)


def test_each_user_goes_through_conversations_and_the_figures_are_by_method():
    mix = conversations([trace(*LISTS), trace(*PINGS)], REVISION, 0.0)
    with reach(DEMO, REVISION) as server:
        run = server.load_mix(mix, 4, 0.3)
    assert run.errors == {}
    assert run.at_once == 4
    assert set(run.methods) == {"ping", "prompts/list", "resources/list", "tools/list"}
    assert sum(method.calls for method in run.methods.values()) == run.calls > 20
    # Of five requests of a round, two are pings.
    assert run.methods["ping"].calls / run.calls == pytest.approx(0.4, abs=0.1)
    assert run.methods["ping"].p50 <= run.methods["ping"].longest


@pytest.mark.thorough
def test_thinking_users_send_less():
    mix = conversations([trace(*PINGS, every=0.1)], REVISION, 1.0)
    with reach(DEMO, REVISION) as server:
        run = server.load_mix(mix, 2, 0.45)
    # A user sends two requests in each 0.1 seconds of thinking.
    assert 4 <= run.calls <= 24


@pytest.mark.thorough
def test_the_command_takes_a_folder_and_prints_a_table_by_method(tmp_path, capsys):
    for name, requests in (("a", LISTS), ("b", PINGS)):
        (tmp_path / f"{name}.jsonl").write_bytes(trace(*requests).dump())
    words = ["bench", "--trace", str(tmp_path), "--at-once", "3", "--seconds", "0.2"]
    assert main([*words, "--", *DEMO]) == 0
    out = capsys.readouterr().out
    assert "a mix of 2 of 2 traces" in out
    table = out[out.index("by method") :]
    assert "prompts/list" in table
    assert main([*words, "--json", "--", *DEMO]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["methods"]["ping"]["errors"] == 0
