"""2026-07-28: no handshake and no session; each request says its revision, each result its kind and its server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..errors import TABLE, InternalError, InvalidArguments, InvalidParams, ResourceNotFound, UrlElicitationRequired
from ..jsonrpc import Id
from ..model import Completion, Json, PromptResult, TextContents, ToolResult
from ..params import VENDOR
from .base import INTERNAL_ERROR, names
from .r2025_11_25 import R2025_11_25


class R2026_07_28(R2025_11_25):
    name = "2026-07-28"
    opens = False
    resumes = False
    primes = False
    requests = names(
        "server/discover tools/list tools/call resources/list resources/templates/list resources/read"
        " prompts/list prompts/get completion/complete subscriptions/listen"
    )
    notifications = names("notifications/cancelled")
    asks = R2025_11_25.asks - names("ping")  # in results, never as requests
    tells = R2025_11_25.tells - names("notifications/elicitation/complete") | names(
        "notifications/subscriptions/acknowledged"
    )
    capabilities = R2025_11_25.capabilities | names("extensions")
    fields = R2025_11_25.fields.plus(
        {
            "notifications/tools/list_changed": "_meta",
            "notifications/prompts/list_changed": "_meta",
            "notifications/resources/list_changed": "_meta",
            "notifications/resources/updated": "_meta",
            "notifications/subscriptions/acknowledged": "_meta notifications",
        }
    )
    fields["elicitation/create"] -= {"elicitationId"}
    fields[TextContents] = names("uri text mimeType _meta")
    codes: ClassVar = {ResourceNotFound: TABLE[InvalidParams][0], UrlElicitationRequired: INTERNAL_ERROR}
    tool_failures = frozenset({InternalError, InvalidArguments, UrlElicitationRequired})

    def _result(self, shaped: Json, kind: str = "complete") -> Json:
        meta = {VENDOR + "serverInfo": self.shape(self.server)}
        return {"resultType": kind, **shaped, "_meta": {**meta, **shaped.get("_meta", {})}}

    def _cacheable(self, shaped: Json) -> Json:
        """What is listed or read may change at any time and may differ from one principal to the next."""
        return {**self._result(shaped), "ttlMs": 0, "cacheScope": "private"}

    def output_schema(self, schema: Json) -> Json:
        return schema

    def structured(self, result: ToolResult) -> Any:
        return result.structured

    def tool_result(self, result: ToolResult) -> Json:
        return self._result(super().tool_result(result))

    def listing(self, items: Mapping[str, Sequence[Any]], cursor: str | None) -> Json:
        return self._cacheable(super().listing(items, cursor))

    def read_result(self, contents: Sequence[Any]) -> Json:
        return self._cacheable(super().read_result(contents))

    def prompt_result(self, result: PromptResult) -> Json:
        return self._result(super().prompt_result(result))

    def completion_result(self, completion: Completion) -> Json:
        return self._result(super().completion_result(completion))

    def empty_result(self) -> Json:
        return self._result({})

    def discover_result(self, features: Mapping[str, Json], versions: list[str]) -> Json:
        """The result of server/discover."""
        shaped: Json = {"supportedVersions": versions, "capabilities": self.server_capabilities(features)}
        if self.instructions is not None:
            shaped["instructions"] = self.instructions
        return self._cacheable(shaped)

    def input_required(self, requests: Mapping[str, Json], state: str) -> Json:
        """The result that asks: the questions by key, and what the client has to bring back with the answers."""
        return self._result({"inputRequests": dict(requests), "requestState": state}, "input_required")

    def listen_result(self, id: Id) -> Json:
        """The result that ends a subscription."""
        return self._result({"_meta": {VENDOR + "subscriptionId": id}})
