"""The command line, as `python -m mcp_trio`."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
