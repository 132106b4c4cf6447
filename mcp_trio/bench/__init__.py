"""Measure a server under load, for the command `bench` and the benchmarks."""
