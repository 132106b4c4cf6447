"""Where builds and downloads are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return `$MCP_TRIO_CACHE`, or `mcp_trio` in the user's cache folder."""
    chosen = os.environ.get("MCP_TRIO_CACHE")
    if chosen:
        return Path(chosen).resolve()
    users = os.environ.get("XDG_CACHE_HOME")
    if users and Path(users).is_absolute():
        return Path(users) / "mcp_trio"
    return Path.home() / ".cache" / "mcp_trio"
