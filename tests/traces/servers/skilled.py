"""A server with skills, two on a page of a list."""

from __future__ import annotations

from pathlib import Path

from mcp_trio import Server

server = Server("skilled", pages=2)
server.skills(Path(__file__).parent / "skills")
