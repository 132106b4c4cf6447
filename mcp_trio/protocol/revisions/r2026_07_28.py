"""2026-07-28: no handshake and no session; each request says its revision, each result its kind and its server."""

from collections.abc import Mapping
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
    name = "2026-07-28"
    # It asks in results, never by requests.
    table = R2025_11_25.table.plus("""
        requests: server/discover subscriptions/listen
        requests: -initialize -ping -resources/subscribe -resources/unsubscribe -logging/setLevel
        notifications: -notifications/initialized -notifications/progress -notifications/roots/list_changed
        asks: -ping
        tells: -notifications/elicitation/complete notifications/subscriptions/acknowledged
        capabilities: extensions
        TextContents: -annotations
        elicitation/create: -elicitationId
        server/discover: supportedVersions capabilities instructions
        notifications/tools/list_changed notifications/prompts/list_changed: _meta
        notifications/resources/list_changed notifications/resources/updated: _meta
        notifications/subscriptions/acknowledged: _meta notifications
    """)
    codes_of: ClassVar = {
        ResourceNotFound: InvalidParams,
        UrlElicitationRequired: InternalError,
    }
    wraps = False

    def result(
        self, shaped: Json, meta: Json | None = None, *, cacheable: bool = False
    ) -> Json:
        """What is listed or read may change at any time and may differ from one principal to the next."""
        about = {VENDOR + "serverInfo": self.shape(self.server), **(meta or {})}
        caching = {"ttlMs": 0, "cacheScope": "private"} if cacheable else {}
        return {"resultType": "complete", **shaped, "_meta": about, **caching}

    def input_required(self, requests: Mapping[str, Json], state: str) -> Json:
        """The result that asks: the questions by key, and what the client has to bring back with the answers."""
        return self.result(
            {
                "resultType": "input_required",
                "inputRequests": requests,
                "requestState": state,
            }
        )
