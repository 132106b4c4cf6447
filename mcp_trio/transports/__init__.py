"""The transports: stdio, HTTP, WebSocket and memory. They do not import each other.

`mcp_trio/serve.py` starts and stops them.
"""
