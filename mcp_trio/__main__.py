"""The command line, as `python -m mcp_trio` and as `mcp-trio`."""

import gc
import sys


def program() -> int:
    """Run the command line in a process of its own. Returns its exit code."""
    # Whatever is imported by now stays until the end. Otherwise the garbage collector
    # would look through it again and again: that is 2 % of the time until a server
    # answers, and 4 % until it has ended.
    gc.freeze()
    from .cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(program())
