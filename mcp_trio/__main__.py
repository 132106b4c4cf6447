"""The command line, as `python -m mcp_trio` and as `mcp-trio`."""

import gc
import sys


def program() -> int:
    """Run the command line. Returns its exit code."""
    # Objects that exist by now are never freed, so the garbage collector need not scan
    # them. This saves 2 % of the time until a server responds, and 4 % until it has
    # exited.
    gc.freeze()
    from .cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(program())
