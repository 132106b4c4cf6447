"""The public names and their signatures change only where a change is meant."""

import difflib

from tests.package.public_api import GOLDEN, describe


def test_the_public_api_is_as_it_was_written_down() -> None:
    written = GOLDEN.read_text(encoding="utf-8").splitlines()
    found = describe().splitlines()
    difference = "\n".join(difflib.unified_diff(written, found, lineterm="", n=0))
    assert not difference, (
        f"{difference}\nIf this is meant, run: python -m tests.package.public_api"
    )
