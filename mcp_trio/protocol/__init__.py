"""The Model Context Protocol without I/O: bytes in, events and bytes out.

Nothing in this package waits, reads a clock or opens a file.
"""
