"""The transports: stdio, HTTP, WebSocket and memory. None knows another."""
