"""The table of all commands."""

from .command import Command

_ALL = [
    Command(
        "run",
        "Serve an MCP server, on standard input and output by default.",
        "server.py --grace 2",
    ),
    Command(
        "work",
        "Run the tasks of a server, without serving requests.",
        "server.py --store redis://127.0.0.1:6379/0",
    ),
    Command(
        "inspect",
        "List the tools, resources and prompts of a server.",
        "-- npx some-server",
    ),
    Command("call", "Call a tool and print its result.", "server.py add a=1 b=2"),
    Command(
        "record",
        "Record a conversation between a client and a server.",
        "-o new.jsonl server.py",
    ),
    Command(
        "replay",
        "Replay recorded conversations and report differences.",
        "traces/ server.py",
    ),
    Command("show", "Draw a recorded conversation as a diagram.", "new.jsonl"),
    Command(
        "mock",
        "Act as the server of a recorded conversation, to test clients.",
        "new.jsonl --http 8000",
    ),
    Command(
        "bench",
        "Measure throughput, latency, start-up time and memory.",
        "server.py add a=1 b=2",
    ),
    Command(
        "token",
        "Create an access token and its line for --token-file.",
        "alice --scope admin",
    ),
    Command(
        "config",
        "Write the entry for a server in a host's configuration.",
        "server.py --into .cursor/mcp.json",
    ),
    Command("completion", "Print a completion script for a shell.", "bash"),
    Command("version", "Print the versions of mcp_trio and of the protocol."),
]
COMMANDS = {command.name: command for command in _ALL}
