"""The MCP endpoint over HTTP: its rules, and the hosts that serve it."""
