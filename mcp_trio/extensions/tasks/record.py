"""The record of a task in the store, and its form for clients."""

import time
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field, json, structs

from ...auth.principal import Owner, Principal, owner
from ...protocol import jsonrpc
from ...protocol.types import Json

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL = frozenset({"completed", "failed", "cancelled"})


class StoredPrincipal(Struct):
    """The principal of a task."""

    name: str
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    claims: dict[str, Any] = {}
    # The owner of a process may have a different name on another machine.
    is_owner: bool = False

    @classmethod
    def of(cls, principal: Principal | None) -> "StoredPrincipal | None":
        """Return the stored form of a principal."""
        if principal is None:
            return None
        return cls(
            principal.name,
            principal.scopes,
            principal.expires,
            principal.claims,
            isinstance(principal, Owner),
        )

    def restored(self) -> Principal:
        """Return the principal."""
        if self.is_owner:
            return owner()
        return Principal(self.name, self.scopes, self.expires, self.claims)


class ShownTask(Struct, kw_only=True, omit_defaults=True):
    """The parts of a stored task that a poll needs.

    `shown` is the task in its form for clients. It is encoded when the task changes,
    because tasks are polled more often. This saves a tenth of a poll's instructions.
    """

    id: str
    principal: StoredPrincipal | None
    poll_interval: float
    status: Status = "working"
    shown: Raw = Raw(b"{}")

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.status in TERMINAL


class TaskRecord(ShownTask, kw_only=True, omit_defaults=True):
    """One task. Times are in seconds since 1970, durations in seconds.

    `params` are those of the `tools/call` request, with `_meta`. `questions` have not
    been answered. `answers` have not been read by the tool, or are all answers if the
    tool may be retried. `asked` are the keys of all questions so far. In the store, the
    result or the error is only in `shown`, and a task that has ended has no `params`.
    """

    tool: str
    revision: str
    params: Raw
    address: str
    created: float
    ttl: float
    retry: bool = False
    updated: float = 0.0
    message: str | None = None
    questions: dict[str, Raw] = {}
    answers: dict[str, Raw] = {}
    asked: list[str] = field(default_factory=list)
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    def seconds_left(self) -> float:
        """Return the seconds until an existing task expires.

        If the clock of the process that created it differs, this may be too long. The
        store deletes the task in time.
        """
        left = self.created + self.ttl - time.time()
        return left if 0 < left < self.ttl else self.ttl

    def fail_with(self, error: Raw) -> None:
        """Mark the task as failed, with a JSON-RPC error object."""
        self.status = "failed"
        self.error = error
        self.message = json.decode(error)["message"]
        self.questions = {}

    # The form for clients

    def summary(self) -> Json:
        """Return the fields that every form of a task has."""
        fields: Json = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": _iso(self.created),
            "lastUpdatedAt": _iso(self.updated),
            "ttlMs": round(self.ttl * 1000),
            "pollIntervalMs": round(self.poll_interval * 1000),
        }
        if self.message is not None:
            fields["statusMessage"] = self.message
        return fields

    def encoded(self) -> bytes:
        """Encode the record for the store."""
        shown = Raw(jsonrpc.encode(self._detailed()))
        stored = structs.replace(self, shown=shown, result=UNSET, error=UNSET)
        if self.is_over:
            # Only what a poll needs, because clients may keep tasks for long.
            stored.params = Raw(b"{}")
            stored.answers = {}
        return json.encode(stored)

    def _detailed(self) -> Json:
        """Return the task with its questions, its result or its error."""
        fields = self.summary()
        if self.status == "input_required":
            fields["inputRequests"] = self.questions
        elif self.status == "completed":
            fields["result"] = self.result
        elif self.status == "failed":
            fields["error"] = self.error
        return fields


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
