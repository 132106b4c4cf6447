"""The identifiers in a conversation: those of the client, and those of the server.

A replay sends the client's requests with the ids in the trace. The server chooses its
own identifiers in every run: the ids of its requests and tasks, cursors, request
states, sessions and the ids of events. If the client repeats one of them, the replay
has to send the identifier of the current run instead of the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urljoin

import msgspec
from msgspec import Raw, structs

from ..client.http_connection import target_of
from ..protocol.params import VENDOR
from ..protocol.types import Json
from .compare import ABSENT, Location, json_text, value_at
from .format import Http, JsonValue, Line

# The key in `_meta` that says which subscription a notification belongs to.
SUBSCRIPTION_ID = f"{VENDOR}subscriptionId"


# The location, in an `endpoint` event, of the path that the client posts to.
_ENDPOINT = ("event", "data")


class ClientRequests:
    """The requests that the client has sent so far.

    Ids are kept as JSON text, because 1 and "1" are two ids.
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._unanswered: set[str] = set()
        self._ids_by_progress_token: dict[str, str] = {}

    def note_sent(self, message: JsonValue) -> None:
        """Note the request that a client's message makes or cancels, if any."""
        method = value_at(message, ["method"])
        if method == "notifications/cancelled":
            cancelled = value_at(message, ["params", "requestId"])
            self._unanswered.discard(json_text(cancelled))
            return
        id = value_at(message, ["id"])
        if method is ABSENT or id is ABSENT:
            return
        self._ids.add(json_text(id))
        self._unanswered.add(json_text(id))
        token = value_at(message, ["params", "_meta", "progressToken"])
        if token is not ABSENT:
            self._ids_by_progress_token[json_text(token)] = json_text(id)

    def note_answer(self, message: JsonValue) -> None:
        """Note the request that a server's message answers, if any."""
        if value_at(message, ["method"]) is ABSENT:
            self._unanswered.discard(json_text(value_at(message, ["id"])))

    def includes(self, id: JsonValue) -> bool:
        """Return whether the client has sent a request with this id."""
        return json_text(id) in self._ids

    def is_unanswered(self, id: JsonValue) -> bool:
        """Return whether a request has neither been answered nor cancelled."""
        return json_text(id) in self._unanswered

    def any_unanswered(self) -> bool:
        """Return whether any request has neither been answered nor cancelled."""
        return len(self._unanswered) > 0

    def only_unanswered(self) -> str | None:
        """Return the id, as JSON, of the only request without an answer, if any."""
        if len(self._unanswered) != 1:
            return None
        return next(iter(self._unanswered))

    def request_of(self, message: JsonValue) -> str | None:
        """Return the id, as JSON, of the request that a server's message belongs to.

        An answer has the id of its request, and a notification may have its progress
        token or the id of its subscription.
        """
        if value_at(message, ["method"]) is ABSENT:
            id = json_text(value_at(message, ["id"]))
            return id if id in self._ids else None
        token = value_at(message, ["params", "progressToken"])
        if token is not ABSENT:
            return self._ids_by_progress_token.get(json_text(token))
        subscription = value_at(message, ["params", "_meta", SUBSCRIPTION_ID])
        if subscription is ABSENT:
            return None
        return json_text(subscription)


class ServerIds:
    """The identifiers that the server chose: those in the trace, and in this run."""

    def __init__(self) -> None:
        self._current: dict[str, JsonValue] = {}
        self._recorded: dict[str, JsonValue] = {}
        # By path in the trace: the path in this run.
        self._current_paths: dict[str, str] = {}

    def to_recorded(self, value: JsonValue) -> JsonValue:
        """Return the trace's identifier for one of this run, or the value itself."""
        return self._recorded.get(json_text(value), value)

    def learn(
        self, recorded: Json, received: Json, requests: ClientRequests
    ) -> list[Location]:
        """Store the identifiers of this run in a line. Returns their locations."""
        found = []
        for location in _chosen_in_line(recorded, requests):
            old = value_at(recorded, location)
            new = value_at(received, location)
            if old is ABSENT or not isinstance(new, str | int):
                continue
            found.append(location)
            if location == _ENDPOINT:
                self._learn_endpoint(str(old), str(new))
            elif old != new:
                self._current[json_text(old)] = new
                self._recorded[json_text(new)] = old
        return found

    def with_current_ids(self, line: Line) -> Line:
        """Replace recorded identifiers in a client's line by those of this run.

        A line without any is returned unchanged, byte by byte.
        """
        if line.http:
            line = structs.replace(line, http=self._http_with_current_ids(line.http))
        content = line.content
        messages = content if isinstance(content, list) else [content]
        is_changed = False
        for message in messages:
            for location in repeated_by_client(message):
                repeated = json_text(value_at(message, location))
                if repeated in self._current:
                    *parents, key = location
                    value_at(message, parents)[key] = self._current[repeated]
                    is_changed = True
        if is_changed:
            line = structs.replace(line, message=Raw(msgspec.json.encode(content)))
        return line

    def _http_with_current_ids(self, http: Http) -> Http:
        headers = {}
        for name, value in http.headers.items():
            headers[name] = self._current.get(json_text(value), value)
        path = self._current_paths.get(http.path, http.path)
        return structs.replace(http, path=path, headers=headers)

    def _learn_endpoint(self, recorded: str, received: str) -> None:
        """Store the path that the client posts to, on HTTP+SSE."""
        self._current_paths[_path_of(recorded)] = _path_of(received)


def _path_of(endpoint: str) -> str:
    """Return the path and the query of an endpoint, which may be relative or a URL."""
    return target_of(urljoin("http://localhost/", endpoint))


def repeated_by_client(message: JsonValue) -> Iterator[Location]:
    """Yield the locations where a client's message may repeat a server's identifier."""
    yield "params", "cursor"
    yield "params", "requestState"
    yield "params", "taskId"
    yield from _listened_tasks(message)
    if value_at(message, ["method"]) is ABSENT:
        # An answer repeats the id of the server's request.
        yield ("id",)


def _chosen_in_line(line: Json, requests: ClientRequests) -> Iterator[Location]:
    """Yield the locations in a server's line of identifiers that the server chose."""
    yield "http", "headers", "mcp-session-id"
    yield "event", "id"
    if value_at(line, ["event", "event"]) == "endpoint":
        yield _ENDPOINT
    for location in _chosen_by_server(line.get("message"), requests):
        yield "message", *location


def _chosen_by_server(
    message: JsonValue, requests: ClientRequests
) -> Iterator[Location]:
    """Yield the locations in a message of identifiers that the server chose."""
    if isinstance(message, list):
        for index, part in enumerate(message):
            for location in _chosen_by_server(part, requests):
                yield index, *location
        return
    method = value_at(message, ["method"])
    is_answer = method is ABSENT and requests.includes(value_at(message, ["id"]))
    if not is_answer:
        yield ("id",)
    if method == "notifications/cancelled":
        yield "params", "requestId"
    yield "result", "nextCursor"
    yield "result", "requestState"
    yield "result", "taskId"
    yield "params", "taskId"
    yield from _listened_tasks(message)


def _listened_tasks(message: JsonValue) -> Iterator[Location]:
    """Yield the locations of task ids in a filter of subscriptions."""
    ids = value_at(message, ["params", "notifications", "taskIds"])
    if isinstance(ids, list):
        for index in range(len(ids)):
            yield "params", "notifications", "taskIds", index
