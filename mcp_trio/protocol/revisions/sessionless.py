"""Revisions as a server without sessions speaks them over HTTP.

Every request may reach another process. So nothing can be set for later requests, and
nothing can be announced between requests.
"""

from typing import cast

from .base import Revision

_LOST = """
    requests: -logging/setLevel -subscriptions/listen
    requests: -resources/subscribe -resources/unsubscribe
    capabilities: -logging
    tells: -notifications/message -notifications/resources/updated
    tells: -notifications/tools/list_changed -notifications/prompts/list_changed
    tells: -notifications/resources/list_changed
"""
# In other revisions, the server asks in its results.
_LOST_IN_SESSIONS = """
    asks: -sampling/createMessage -elicitation/create -roots/list
"""


def sessionless(kind: type[Revision]) -> type[Revision]:
    """Return a revision as it is without sessions."""
    table = kind.table.plus(_LOST)
    if kind.opens:
        table = table.plus(_LOST_IN_SESSIONS)
    changes = {
        "table": table,
        "keeps_sessions": False,
        "resumes": False,
        "primes": False,
    }
    return cast(type[Revision], type(kind.__name__, (kind,), changes))
