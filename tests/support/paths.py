"""Where the parts of the project are."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TESTS = PROJECT / "tests"
DATA = TESTS / "data"
SEEDS = TESTS / "seeds"
TRACES = PROJECT / "traces"
