"""Bytes to and from the world. Each transport knows server/ and protocol/; none knows another."""
