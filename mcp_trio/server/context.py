"""What a tool, a resource or a prompt sees of the request that runs it, and how it may end but by returning."""

from collections.abc import Awaitable, Callable
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from ..auth.principal import Principal
from ..protocol.jsonrpc import encode
from ..protocol.revisions.base import LEVELS
from ..protocol.sanitize import clean
from ..protocol.types import Json, PromptMessage
from .request import Request

if TYPE_CHECKING:
    from .client_requests import ClientRequests, Elicited, Question, Root, Sampled

T = TypeVar("T")


class Context:
    """A request's own: how far it is, what it has to say, whom it can ask.

    A function gets one by a parameter annotated with this class; the parameter is no part of its schema. `revision` is
    the protocol revision that serves the request; `lifespan`, what the server's lifespan has yielded; `principal`, on
    whose behalf it comes: the owner of the process, or over HTTP whose token it is, and None where none is asked for.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._progress = -inf
        self.revision: str = request.call.revision.name
        self.principal: Principal | None = request.principal
        self.lifespan: Any = request.environment.lifespan_value

    @property
    def meta(self) -> Json:
        """The request's `_meta`, as it came."""
        meta: Json = msgspec.json.decode(self._request.call.raw).get("_meta", {})
        return meta

    async def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far the request is, if it wants to know. What does not increase is not told."""
        token = self._request.call.params.meta.progress_token
        if token is not msgspec.UNSET and self._progress < done < inf:
            self._progress = done
            known = total if total is not None and isfinite(total) else None
            params = {
                "progressToken": token,
                "progress": done,
                "total": known,
                "message": message,
            }
            self._request.tell("notifications/progress", params)
        await self._let_others()

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send the client a log message (any JSON), if it wants those of this level."""
        if level not in LEVELS:
            raise ValueError(f"log level {level!r}: it is one of {', '.join(LEVELS)}")
        call, session = self._request.call, self._request.conversation.session
        wanted = (
            (session.log_level or "info")
            if call.revision.opens
            else call.params.meta.log_level
        )
        if wanted and LEVELS.index(level) >= LEVELS.index(wanted):
            # Any JSON goes out as it is: null too, and a user's own structs.
            said = msgspec.Raw(encode(clean(data) if isinstance(data, str) else data))
            params = {
                "level": call.revision.levels[level],
                "logger": logger,
                "data": said,
            }
            self._request.tell("notifications/message", params)
        await self._let_others()

    async def elicit(
        self, message: str, schema: type[T], *, key: str | None = None
    ) -> "Elicited[T]":
        """Ask the user to fill in a form with the fields of a flat dataclass, Struct or TypedDict."""
        from .client_requests import Elicit

        return (await self._questions.all(Elicit(message, schema, key=key)))[0]

    async def elicit_url(
        self, message: str, url: str, id: str, *, key: str | None = None
    ) -> "Elicited[None]":
        """Ask the user to visit a page. Accepted means that the user has agreed to, not that it is done."""
        from .client_requests import ElicitUrl

        return (await self._questions.all(ElicitUrl(message, url, id, key=key)))[0]

    async def sample(
        self, messages: str | list[PromptMessage], *, max_tokens: int, **options: Any
    ) -> "Sampled":
        """Have the client's model say something; `options` are those of `Sample`."""
        from .client_requests import Sample

        return (
            await self._questions.all(
                Sample(messages, max_tokens=max_tokens, **options)
            )
        )[0]

    async def roots(self, *, key: str | None = None) -> "list[Root]":
        """The places that the client lets the server work in."""
        from .client_requests import Roots

        return (await self._questions.all(Roots(key=key)))[0]

    async def ask(self, *questions: "Question[Any]") -> list[Any]:
        """Ask several things in one round; the answers come in the same order."""
        return await self._questions.all(*questions)

    async def once(self, key: str, step: Callable[[], Awaitable[T]]) -> T:
        """Do a step that must not be done twice, though the function may run again when an answer has come.

        Its result has to be JSON; it is kept, signed but readable, by the client until the request ends.
        """
        return await self._questions.once(key, step)

    async def close_stream(self, retry: float = 1.0) -> None:
        """Let the client's connection end and work on: it comes back for the result, after so many seconds.

        That is for long work over HTTP. Where a client cannot come back, nothing happens.
        """
        # Only the channels of HTTP have it.
        release_client = getattr(self._request.channel, "release_client", None)
        if release_client is not None:
            release_client(round(retry * 1000))
        await self._let_others()

    @cached_property
    def _questions(self) -> "ClientRequests":
        from .client_requests import ClientRequests  # most servers never ask

        return ClientRequests(self._request)

    async def _let_others(self) -> None:
        await self._request.channel.drained()
        await trio.lowlevel.checkpoint()
