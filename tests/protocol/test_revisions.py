"""What a revision writes: nothing that it does not name."""

import pytest

from mcp_trio.protocol.revisions import Revisions
from mcp_trio.protocol.types import Implementation, Text

REVISIONS = Revisions(Implementation("x", "1")).all
OLDEST = REVISIONS[0]
each_revision = pytest.mark.parametrize(
    "revision", REVISIONS, ids=[revision.name for revision in REVISIONS]
)


class Verse(Text, tag="text"):
    """A user's own class of text."""


@each_revision
def test_a_notification_of_no_revision_is_not_written(revision) -> None:
    assert revision.notification("notifications/unknown", {}) is None


def test_a_notification_of_a_later_revision_is_not_written() -> None:
    method = "notifications/elicitation/complete"
    assert OLDEST.notification(method, {"elicitationId": "1"}) is None


@each_revision
def test_a_class_derived_from_text_is_written_as_text(revision) -> None:
    assert revision.shape(Verse("hello")) == {"type": "text", "text": "hello"}


def test_the_revisions_with_initialize_are_the_ones_that_have_the_method() -> None:
    for revision in REVISIONS:
        assert revision.opens is ("initialize" in revision.requests)
    assert REVISIONS[0].opens
    assert not REVISIONS[-1].opens
