"""Revision 2026-07-28.

Stateless: no handshake and no sessions. Each request names its revision, and each
result names its type and the server. The server does not send requests. It puts its
questions to the client into a result.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from ..errors import (
    InternalError,
    InvalidParams,
    ResourceNotFound,
    UrlElicitationRequired,
)
from ..params import VENDOR
from ..types import Json
from .r2025_11_25 import R2025_11_25


class R2026_07_28(R2025_11_25):
    """Revision 2026-07-28."""

    name = "2026-07-28"
    wraps = False
    table = R2025_11_25.table.plus("""
        requests: server/discover subscriptions/listen
        requests: -initialize -ping -logging/setLevel
        requests: -resources/subscribe -resources/unsubscribe
        notifications: -notifications/initialized -notifications/progress
        notifications: -notifications/roots/list_changed
        server_requests: -ping
        server_notifications: notifications/subscriptions/acknowledged
        server_notifications: -notifications/elicitation/complete
        capabilities: extensions
        TextContents: -annotations
        elicitation/create: -elicitationId
        server/discover: supportedVersions capabilities instructions
        notifications/tools/list_changed: _meta
        notifications/prompts/list_changed: _meta
        notifications/resources/list_changed: _meta
        notifications/resources/updated: _meta
        notifications/subscriptions/acknowledged: _meta notifications
    """)
    codes_of: ClassVar = {
        ResourceNotFound: InvalidParams,
        UrlElicitationRequired: InternalError,
    }

    @cached_property
    def _about(self) -> Json:
        """The entry in `_meta` that identifies the server."""
        return {VENDOR + "serverInfo": self.shape(self.server)}

    def result(
        self, shaped: Json, meta: Json | None = None, *, cacheable: bool = False
    ) -> Json:
        """Return a result with its type, the server's name, and caching hints.

        Lists and resources may change at any time, and may differ between principals,
        so caches must neither store nor share them.
        """
        about = self._about
        if meta:
            about = about | meta
        result = {"resultType": "complete", **shaped, "_meta": about}
        if cacheable:
            result["ttlMs"] = 0
            result["cacheScope"] = "private"
        return result

    def input_required(self, requests: Mapping[str, Json], state: str) -> Json:
        """Return a result that asks the client for input.

        `requests` maps keys to questions. The client repeats its request with the
        answers and with `state`.
        """
        return self.result(
            {
                "resultType": "input_required",
                "inputRequests": requests,
                "requestState": state,
            }
        )
