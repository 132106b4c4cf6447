"""The MCP endpoint over HTTP: its rules, and the two servers that can host it."""
