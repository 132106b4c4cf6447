"""What a revision writes: nothing that it does not name."""

import pytest

from mcp_trio.protocol.revisions import Revisions
from mcp_trio.protocol.types import Implementation, Text

ALL = Revisions(Implementation("x", "1"))
REVISIONS = ALL.all
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


def test_the_revisions_that_do_not_need_a_session_have_a_sessionless_variant() -> None:
    assert [revision.name for revision in ALL.without_sessions().all] == [
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    ]


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
def test_without_sessions_a_server_announces_no_notifications(method: str) -> None:
    features = {"tools": {"listChanged": True}, "logging": {}}
    for revision in ALL.without_sessions().all:
        if method in revision.requests:
            shown = revision.describe_server(method, features, [revision.name])
            assert shown["capabilities"] == {"tools": {}}
