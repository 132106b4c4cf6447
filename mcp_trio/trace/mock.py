"""A mock server, which replies to a client as the server of a trace did.

A request gets the reply to the same request in the trace: the one with the same method
and the same params, apart from `_meta`. Requests that open a conversation only need the
same method.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Struct

from ..load_spec import UsageError
from ..protocol.types import Json
from .compare import ABSENT, json_text, value_at
from .format import Http, JsonValue, Trace
from .identifiers import SUBSCRIPTION_ID

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_INVALID_REQUEST = -32600
# Requests whose params describe the client, which may be a different one.
_OPENING_METHODS = ("initialize", "server/discover", "ping")
# The most params that are listed in an error, and their longest text.
_MAX_PARAMS = 5
_MAX_PARAMS_TEXT = 200
_PROGRESS_TOKEN = ("params", "_meta", "progressToken")


class MockMessage(NamedTuple):
    """A message to the client.

    `request` is the id of the client's request that it belongs to, or ABSENT. `is_last`
    is true if it is the last message of that request.
    """

    request: JsonValue
    message: Json
    is_last: bool = False


class _Exchange(Struct):
    """A recorded request or notification, and the messages that it led to."""

    message: Json
    replies: list[Json] = []


class _Remaining(NamedTuple):
    """The messages of an exchange that were not sent yet."""

    request: JsonValue
    exchange: _Exchange
    token: JsonValue
    replies: list[Json]


class MockScript:
    """The recorded exchanges of a trace, which all clients of a mock share."""

    def __init__(self, trace: Trace) -> None:
        self.name = str(trace.path or "the trace")
        self.revision = trace.header.revision
        self.streams_answers = _streams_answers(trace)
        self.exchanges: list[_Exchange] = []
        # The exchanges of the requests that have no answer yet, the latest last.
        self._open: list[_Exchange] = []
        for line in trace.lines:
            if not line.message:
                continue
            for message in line.parts:
                if isinstance(message, dict):
                    self._add(line.sender, message)
        # The exchanges of each message, by its identity.
        self.by_key: dict[str, list[_Exchange]] = defaultdict(list)
        for exchange in self.exchanges:
            self.by_key[_key(exchange.message)].append(exchange)
        if not self.exchanges:
            raise UsageError(f"{self.name}: nothing to serve: the client sends nothing")

    def _add(self, sender: str, message: Json) -> None:
        if sender == "client":
            if "method" in message:
                exchange = _Exchange(message)
                self.exchanges.append(exchange)
                if "id" in message:
                    self._open.append(exchange)
            return
        owner = self._owner(message)
        if owner is None:
            return
        owner.replies.append(message)
        if "method" not in message and owner in self._open:
            self._open.remove(owner)

    def _owner(self, message: Json) -> _Exchange | None:
        """Return the exchange that a server's message belongs to.

        This is the exchange of the request that it answers or names. Any other message
        belongs to the latest open request, or else to the latest message of the client.
        """
        for exchange in reversed(self._open):
            if _belongs_to(message, exchange.message):
                return exchange
        if "method" not in message:
            return None
        if self._open:
            return self._open[-1]
        return self.exchanges[-1] if self.exchanges else None

    def methods(self) -> list[str]:
        """Return the methods of all requests."""
        names = [one.message["method"] for one in self.exchanges if "id" in one.message]
        return list(dict.fromkeys(names))


def _belongs_to(message: Json, request: Json) -> bool:
    if "method" not in message:
        return message.get("id") == request.get("id")
    token = value_at(message, ["params", "progressToken"])
    if token is not ABSENT:
        return json_text(token) == json_text(value_at(request, _PROGRESS_TOKEN))
    subscription = value_at(message, ["params", "_meta", SUBSCRIPTION_ID])
    return subscription is not ABSENT and subscription == request.get("id")


def _streams_answers(trace: Trace) -> bool:
    """Return whether the server has answered POST requests with event streams."""
    posts = set()
    for line in trace.lines:
        if not isinstance(line.http, Http) or line.stream is UNSET:
            continue
        type = line.http.headers.get("content-type", "")
        if line.http.method == "POST":
            posts.add(line.stream)
        elif line.stream in posts and type.startswith("text/event-stream"):
            return True
    return False


class MockConversation:
    """One client of a mock."""

    def __init__(self, script: MockScript) -> None:
        self._script = script
        # How often this client has sent each request, by the text of the request.
        self._times: dict[str, int] = {}
        # By the id of a question to the client: the messages after its answer.
        self._after_answers: dict[str, _Remaining] = {}

    def receive(self, data: bytes) -> list[MockMessage]:
        """Receive a message or a batch, and return the messages to send."""
        try:
            message = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return [_error(None, -32700, "expected a JSON-RPC message, got no JSON")]
        replies: list[MockMessage] = []
        for part in message if isinstance(message, list) else [message]:
            replies.extend(self._receive_one(part))
        return replies

    def _receive_one(self, message: JsonValue) -> Iterator[MockMessage]:
        if not isinstance(message, dict):
            yield _error(None, _INVALID_REQUEST, "expected a JSON-RPC message")
        elif "method" not in message:
            remaining = self._after_answers.pop(json_text(message.get("id")), None)
            if remaining is not None:
                yield from self._play(remaining)
        elif "id" in message:
            yield from self._reply(message)
        else:
            yield from self._react(message)

    def _reply(self, request: Json) -> Iterator[MockMessage]:
        """Yield the recorded messages for a request, or an error."""
        exchange = self._find(request)
        if exchange is not None:
            token = value_at(request, _PROGRESS_TOKEN)
            yield from self._play(
                _Remaining(request["id"], exchange, token, exchange.replies)
            )
        elif request["method"] == "ping":
            pong = {"jsonrpc": "2.0", "id": request["id"], "result": {}}
            yield MockMessage(request["id"], pong, is_last=True)
        else:
            yield self._refuse(request)

    def _react(self, notification: Json) -> Iterator[MockMessage]:
        """Yield the recorded messages after a notification."""
        exchange = self._find(notification)
        if exchange is not None:
            remaining = _Remaining(ABSENT, exchange, ABSENT, exchange.replies)
            yield from self._play(remaining)

    def _find(self, message: Json) -> _Exchange | None:
        """Return the exchange for a message.

        If there are several, they are used in order, and the last one repeatedly.
        """
        key = _key(message)
        found = self._script.by_key.get(key)
        if not found:
            return None
        times = self._times.get(key, 0)
        self._times[key] = times + 1
        return found[min(times, len(found) - 1)]

    def _play(self, remaining: _Remaining) -> Iterator[MockMessage]:
        """Yield the remaining messages of an exchange, up to a question."""
        request, exchange, token, replies = remaining
        recorded_id = exchange.message.get("id")
        is_over = False
        for position, message in enumerate(replies, 1):
            is_answer = "method" not in message
            if is_answer:
                yield MockMessage(request, {**message, "id": request}, is_last=True)
                is_over = True
                continue
            current = _with_current_ids(message, recorded_id, request, token)
            # Messages after the answer belong to no request.
            yield MockMessage(ABSENT if is_over else request, current)
            if "id" in message:
                later = remaining._replace(replies=replies[position:])
                self._after_answers[json_text(message["id"])] = later
                return

    def _refuse(self, request: Json) -> MockMessage:
        method = request["method"]
        methods = self._script.methods()
        if method not in methods:
            text = (
                f"{self._script.name}: expected a recorded method "
                f"({', '.join(methods)}), got {method}"
            )
            return _error(request["id"], _METHOD_NOT_FOUND, text)
        params = [
            _params_text(exchange.message)
            for exchange in self._script.exchanges
            if exchange.message["method"] == method
        ]
        known = list(dict.fromkeys(params))
        listed = "; ".join(known[:_MAX_PARAMS])
        if len(known) > _MAX_PARAMS:
            listed += f"; and {len(known) - _MAX_PARAMS} more"
        text = (
            f"{self._script.name}: expected {method} with recorded params ({listed}), "
            f"got {_params_text(request)}"
        )
        return _error(request["id"], _INVALID_PARAMS, text)


def _key(message: Json) -> str:
    """Return a text that is equal for messages that a mock treats as the same."""
    method = message["method"]
    if method in _OPENING_METHODS:
        return str(method)
    order = msgspec.json.encode([method, _params(message)], order="deterministic")
    return order.decode()


def _params(message: Json) -> JsonValue:
    params = message.get("params")
    if not isinstance(params, dict):
        return params or {}
    return {key: value for key, value in params.items() if key != "_meta"}


def _params_text(message: Json) -> str:
    text = json_text(_params(message))
    if len(text) > _MAX_PARAMS_TEXT:
        return text[:_MAX_PARAMS_TEXT] + "…"
    return text


def _with_current_ids(
    message: Json, recorded_id: JsonValue, id: JsonValue, token: JsonValue
) -> Json:
    """Return a message of the server with this client's progress token and id."""
    params = message.get("params")
    if not isinstance(params, dict):
        return message
    params = dict(params)
    if "progressToken" in params and token is not ABSENT:
        params["progressToken"] = token
    meta = params.get("_meta")
    if isinstance(meta, dict) and meta.get(SUBSCRIPTION_ID) == recorded_id:
        params["_meta"] = {**meta, SUBSCRIPTION_ID: id}
    return {**message, "params": params}


def _error(id: JsonValue, code: int, text: str) -> MockMessage:
    error = {"code": code, "message": text}
    return MockMessage(id, {"jsonrpc": "2.0", "id": id, "error": error}, is_last=True)
