"""Traces: recorded conversations, which can be shown, replayed and compared.

`traces/README.md` describes the file format.
"""
