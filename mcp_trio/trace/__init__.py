"""Golden traces: conversations recorded, shown and replayed. The format is in format.py and traces/README.md."""
