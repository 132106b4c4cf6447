"""The protocol, pure: bytes in, events and bytes out. Nothing here waits, reads a clock or opens anything."""
