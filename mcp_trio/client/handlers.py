"""The functions that handle a server's requests and notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from ..protocol.types import Json
from .errors import RemoteError
from .forms import with_defaults

# Answers any request: takes a method and its params, returns a result.
AnswerCallback = Callable[[str, Json], Awaitable[Json]]
# Fills in a form: takes the message and all params, returns the form's content, or None
# to decline. If the params have a `url`, the user is asked to visit it; {} accepts.
ElicitationHandler = Callable[[str, Json], Awaitable[Json | None]]
# Continues a conversation: takes its messages and all params, returns the model's text,
# or a whole result.
SamplingHandler = Callable[[list[Json], Json], Awaitable[str | Json]]
# The URIs of the folders that the server may work in.
Roots = Sequence[str]
# Called with the progress, the total if it is known, and a message.
ProgressHandler = Callable[[float, float | None, str | None], object]
# Called with the level of a log message, its data and its logger.
LogHandler = Callable[[str, Any, str | None], object]

# The name of the model in the results of a SamplingHandler that returns only text.
MODEL = "unknown"


class Handlers(Struct, frozen=True, kw_only=True):
    """The functions that a client calls."""

    answer: AnswerCallback | None = None
    elicitation: ElicitationHandler | None = None
    sampling: SamplingHandler | None = None
    roots: Roots | None = None
    progress: ProgressHandler | None = None
    log: LogHandler | None = None

    def capabilities(self) -> Json:
        """Return the capabilities that these functions imply."""
        capabilities: Json = {}
        if self.elicitation is not None:
            capabilities["elicitation"] = {"form": {}, "url": {}}
        if self.sampling is not None:
            capabilities["sampling"] = {}
        if self.roots is not None:
            capabilities["roots"] = {}
        return capabilities

    async def respond(self, method: str, params: Json) -> Json:
        """Return the result of a request from the server. Raises RemoteError."""
        if method == "ping":
            return {}
        if method == "elicitation/create":
            return with_defaults(await self._elicit(params), params)
        if method == "sampling/createMessage" and self.sampling is not None:
            return await _continue(self.sampling, params)
        if method == "roots/list" and self.roots is not None:
            return {"roots": [{"uri": uri} for uri in self.roots]}
        return await self._answer(method, params)

    async def _elicit(self, params: Json) -> Json:
        if self.elicitation is not None:
            return await _fill_in(self.elicitation, params)
        return await self._answer("elicitation/create", params)

    async def _answer(self, method: str, params: Json) -> Json:
        if self.answer is not None:
            return await self.answer(method, params)
        raise RemoteError({"code": -32601, "message": f"Method not found: {method}"})

    def handle_notification(self, notification: Json) -> None:
        """Pass a notification to its handler, if there is one."""
        params = notification.get("params") or {}
        method = notification["method"]
        if method == "notifications/progress" and self.progress is not None:
            self.progress(
                params.get("progress", 0), params.get("total"), params.get("message")
            )
        elif method == "notifications/message" and self.log is not None:
            self.log(params.get("level", ""), params.get("data"), params.get("logger"))


NO_HANDLERS = Handlers()


async def _fill_in(handler: ElicitationHandler, params: Json) -> Json:
    content = await handler(params.get("message", ""), params)
    if content is None:
        return {"action": "decline"}
    if "url" in params:
        return {"action": "accept"}
    return {"action": "accept", "content": content}


async def _continue(handler: SamplingHandler, params: Json) -> Json:
    reply = await handler(params.get("messages", []), params)
    if not isinstance(reply, str):
        return reply
    return {
        "role": "assistant",
        "content": {"type": "text", "text": reply},
        "model": MODEL,
        "stopReason": "endTurn",
    }
