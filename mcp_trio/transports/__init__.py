"""The transports: stdio, HTTP, WebSocket and memory. None knows another.

`mcp_trio/serve.py` starts them, and stops them in order.
"""
