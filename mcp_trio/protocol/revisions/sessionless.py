"""Variants of the revisions for a server that has no sessions over HTTP.

Any process may receive any request. So a request cannot change settings for later ones,
and the server cannot send notifications between requests.
"""

from typing import cast

from .base import Revision

_REMOVED = """
    requests: -logging/setLevel -subscriptions/listen
    requests: -resources/subscribe -resources/unsubscribe
    capabilities: -logging
    server_notifications: -notifications/message -notifications/resources/updated
    server_notifications: -notifications/tools/list_changed
    server_notifications: -notifications/prompts/list_changed
    server_notifications: -notifications/resources/list_changed
"""
# Only in revisions that begin with `initialize`. In others, questions to the client are
# part of a result, which needs no session.
_REMOVED_REQUESTS = """
    server_requests: -sampling/createMessage -elicitation/create -roots/list
"""


def sessionless(kind: type[Revision]) -> type[Revision]:
    """Return the variant of a revision that has no sessions."""
    table = kind.table.plus(_REMOVED)
    if kind.opens:
        table = table.plus(_REMOVED_REQUESTS)
    changes = {
        "table": table,
        "keeps_sessions": False,
        "resumes": False,
        "primes": False,
    }
    return cast(type[Revision], type(kind.__name__, (kind,), changes))
