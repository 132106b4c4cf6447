"""Context: the request that a tool, a resource or a prompt runs for."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf, isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import trio

from ..auth.principal import Principal
from ..protocol.extensions import APPS, renders_apps
from ..protocol.jsonrpc import encode
from ..protocol.params import NO_CAPABILITIES, ClientCapabilities
from ..protocol.revisions.base import LEVELS
from ..protocol.sanitize import strip_controls
from ..protocol.types import Json, Tool
from .headers import NO_HEADERS, Headers
from .request import Environment, Request

if TYPE_CHECKING:
    # The default makes a plain `Server` mean `Server[Any]`, and `Context` mean
    # `Context[Any]`. Type checkers know this module even if it is not installed.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from .client_requests import ClientRequests, Elicited, Question, Root
    from .sampling import Message, Sampled

    StateT = TypeVarWithDefault("StateT", default=Any)
else:
    StateT = TypeVar("StateT")

T = TypeVar("T")

# The minimum seconds between two checkpoints of a function that reports progress or
# logs in a loop. See `Context._checkpoint`.
BURST = 0.0002


class ConnectedClient(msgspec.Struct, frozen=True):
    """The client that made a request.

    The client chooses these values, so do not use them to decide who may do what.

    Attributes:
        name: The client's name.
        version: The client's version.
        capabilities: What the client supports.
        renders_apps: Whether the client shows the page that belongs to a tool.
    """

    name: str
    version: str
    capabilities: ClientCapabilities
    # Whether it shows the pages of tools.
    renders_apps: bool = False

    def supports(self, capability: str) -> bool:
        """Return whether the client has a capability.

        Args:
            capability: The name of the capability, such as "sampling".
        """
        return getattr(self.capabilities, capability, None) not in (None, msgspec.UNSET)


class Context(Generic[StateT]):
    """The request that a function runs for: its progress, its log and its client.

    A function gets it as a parameter that is annotated with this class, or with
    `Context[State]`, where `State` is the type of the lifespan's value. The parameter
    is not part of the function's schema.

    Attributes:
        revision: The name of the request's protocol revision.
        principal: The authenticated caller. Over stdio, the owner of the process; over
            HTTP without authentication, None.
        lifespan: The value that the lifespan yielded.
    """

    # The protocol revision that the request is served in.
    revision: str
    # The authenticated caller: on stdio the owner of the process, over HTTP that of the
    # token. None if the server does not require a token.
    principal: Principal | None
    # The value that the lifespan of the function's server yielded.
    lifespan: StateT
    # Set when the function first asks the client a question.
    _client_requests: "ClientRequests | None" = None
    # The latest progress that was reported.
    _progress: float = -inf
    # When the current burst of progress messages ends.
    _burst_ends: float = -inf

    def __init__(self, request: Request, environment: Environment) -> None:
        self._request = request
        self.revision = request.call.revision.name
        self.principal = request.principal
        self.lifespan = environment.lifespan_value

    @property
    def request_id(self) -> int | str:
        """The id that the client gave the request."""
        return self._request.call.id

    @property
    def session_id(self) -> str | None:
        """The id of the HTTP session, or None without a session."""
        id: bytes = getattr(self._request.conversation, "id", b"")
        return id.decode() or None

    @property
    def headers(self) -> Headers:
        """The headers of the HTTP request, without credentials. Empty on stdio."""
        headers = getattr(self._request.channel, "headers", None)
        return NO_HEADERS if headers is None else Headers(headers)

    @property
    def client(self) -> ConnectedClient | None:
        """The client's name, version and capabilities, or None if unknown."""
        call = self._request.call
        if call.revision.opens:
            session = self._request.conversation.session
            if session.client is None:
                return None
            return ConnectedClient(
                session.client.name,
                session.client.version,
                session.capabilities,
                self.renders_apps,
            )
        meta = call.params.meta
        if meta.client is msgspec.UNSET:
            return None
        capabilities = meta.capabilities or NO_CAPABILITIES
        return ConnectedClient(
            meta.client.name, meta.client.version, capabilities, self.renders_apps
        )

    @property
    def state(self) -> dict[str, Any]:
        """Values that middleware passes to functions, while the request runs."""
        if self._request.state is None:
            self._request.state = {}
        return self._request.state

    @property
    def meta(self) -> Json:
        """The request's `_meta`, as the client sent it."""
        params = msgspec.json.decode(self._request.call.raw) or {}
        return params.get("_meta") or {}

    def extension(self, identifier: str) -> Json | None:
        """Return the client's settings for an extension of this server.

        None means that the client has not declared the extension.

        Args:
            identifier: The name of the extension, such as "com.example/clock".
        """
        extensions = self._request.conversation.session.revisions.extensions
        return extensions.declared(self._request.capabilities).get(identifier)

    @property
    def renders_apps(self) -> bool:
        """Whether the client shows the pages of tools.

        Otherwise its user only sees the text of the result. Unlike `client`, this is
        also available if the client does not send its name.
        """
        return renders_apps(self.extension(APPS))

    async def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the client asked for it.

        The report is sent only if `done` has increased. A task shows the message in its
        status, or without one, how much is done.

        Args:
            done: How much is done, in any unit.
            total: How much there is to do, if that is known.
            message: What is being done, for people.
        """
        request = self._request
        task = request.task
        if task is not None and task.has_started:
            await task.report(message or _how_much(done, total))
            await trio.lowlevel.checkpoint()
            return
        token = request.call.params.meta.progress_token
        if token is not msgspec.UNSET and self._progress < done < inf:
            self._progress = done
            if total is not None and not isfinite(total):
                total = None
            report = request.call.revision.progress(token, done, total, message)
            request.send(report)
        await self._checkpoint()

    async def log(self, level: str, data: object, logger: str | None = None) -> None:
        """Send the client a log message, if it asked for messages of this level.

        Args:
            level: "debug", "info", "notice", "warning", "error", "critical", "alert" or
                "emergency".
            data: A string, or anything else that can be encoded as JSON.
            logger: The name of the logger.
        """
        if level not in LEVELS:
            known = ", ".join(LEVELS)
            raise ValueError(f"ctx.log(level): expected one of {known}, got {level!r}")
        call = self._request.call
        if call.revision.opens:
            lowest = self._request.conversation.session.log_level or "info"
        else:
            lowest = call.params.meta.log_level
        if lowest and LEVELS.index(level) >= LEVELS.index(lowest):
            if isinstance(data, str):
                data = strip_controls(data)
            # Encoded here, because `Revision.permitted` would drop null and fields.
            params = {
                "level": call.revision.levels[level],
                "logger": logger,
                "data": msgspec.Raw(encode(data)),
            }
            self._request.notify("notifications/message", params)
        await self._checkpoint()

    async def debug(self, data: object, logger: str | None = None) -> None:
        """Send a log message of the level "debug".

        Args:
            data: A string, or anything else that can be encoded as JSON.
            logger: The name of the logger.
        """
        await self.log("debug", data, logger)

    async def info(self, data: object, logger: str | None = None) -> None:
        """Send a log message of the level "info".

        Args:
            data: A string, or anything else that can be encoded as JSON.
            logger: The name of the logger.
        """
        await self.log("info", data, logger)

    async def warning(self, data: object, logger: str | None = None) -> None:
        """Send a log message of the level "warning".

        Args:
            data: A string, or anything else that can be encoded as JSON.
            logger: The name of the logger.
        """
        await self.log("warning", data, logger)

    async def error(self, data: object, logger: str | None = None) -> None:
        """Send a log message of the level "error". The function continues.

        Args:
            data: A string, or anything else that can be encoded as JSON.
            logger: The name of the logger.
        """
        await self.log("error", data, logger)

    async def elicit(
        self, message: str, schema: type[T], *, key: str | None = None
    ) -> "Elicited[T]":
        """Ask the user to fill in a form.

        Args:
            message: What the user is asked.
            schema: A dataclass, Struct, TypedDict or pydantic model without nesting.
                Its fields are the fields of the form.
            key: A name for the question, if the order of questions can change when the
                function runs again.
        """
        from .client_requests import Elicit

        question = Elicit(message, schema, key=key)
        (answer,) = await self._ask(question)
        return answer

    async def elicit_url(
        self, message: str, url: str, id: str, *, key: str | None = None
    ) -> "Elicited[None]":
        """Ask the user to visit a page.

        An accepted answer means that the user agreed to visit the page. The user may
        not have finished there.

        Args:
            message: Why the user should visit the page.
            url: The address of the page.
            id: Identifies this visit, for your page.
            key: A name for the question, as for `elicit`.
        """
        from .client_requests import ElicitUrl

        question = ElicitUrl(message, url, id, key=key)
        (answer,) = await self._ask(question)
        return answer

    async def sample(
        self,
        messages: "str | Sequence[Message]",
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: list[str] | None = None,
        model_preferences: Json | None = None,
        include_context: str | None = None,
        metadata: Json | None = None,
        tools: Sequence[Tool | Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> "Sampled":
        """Ask the client's model to continue a conversation.

        Args:
            messages: A text, or a list of messages: texts, dicts with the protocol's
                keys, `SamplingMessage`, and earlier answers with the results of the
                tools that they use.
            max_tokens: The most tokens that the model may write.
            system_prompt: The system prompt.
            temperature: How random the answer is.
            stop_sequences: Texts that end the answer.
            model_preferences: Which model to use, as the protocol defines it.
            include_context: "none", "thisServer" or "allServers".
            metadata: Anything for the provider of the model.
            tools: Tools that the model may use: `Tool` objects, or dicts with the
                protocol's keys. Run those in the answer's `tool_uses`, and ask again
                with the answer and their results.
            tool_choice: "auto", "required" or "none".
            key: A name for the question, as for `elicit`.
        """
        from .client_requests import Sample

        question = Sample(
            messages,
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=stop_sequences,
            model_preferences=model_preferences,
            include_context=include_context,
            metadata=metadata,
            tools=tools,
            tool_choice=tool_choice,
            key=key,
        )
        (answer,) = await self._ask(question)
        return answer

    async def roots(self, *, key: str | None = None) -> "list[Root]":
        """Ask the client which folders or other places the server may work in.

        Args:
            key: A name for the question, as for `elicit`.
        """
        from .client_requests import Roots

        (answer,) = await self._ask(Roots(key=key))
        return answer

    async def ask(self, *questions: "Question[Any]") -> list[Any]:
        """Ask several questions in one round. The answers are in the same order.

        Args:
            questions: `Elicit`, `ElicitUrl`, `Sample` and `Roots` objects.
        """
        return await self._ask(*questions)

    async def _ask(self, *questions: "Question[T]") -> list[T]:
        task = self._request.task
        if task is not None and task.has_started:
            answers: list[T] = await task.all(*questions)
            return answers
        return await self._questions.all(*questions)

    async def once(self, key: str, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step once, even if the function runs again after a question.

        Returns the step's result, which must be JSON. The client keeps the result until
        the request ends: it can read it, but not change it.

        Args:
            key: A name for the step, unique in the function.
            step: An async function without parameters.
        """
        return await self._questions.once(key, step)

    async def start_task(self) -> None:
        """Respond to the request now, and continue as a task.

        This is for tools with `task=` and `manual_start=True`, which may ask the client
        questions first. Clients without tasks wait for the result as usual.
        """
        task = self._request.task
        if task is None:
            raise RuntimeError(
                "ctx.start_task(): expected a tool with "
                "@server.tool(task='optional', manual_start=True)"
            )
        await task.start()

    async def close_stream(self, retry: float = 1.0) -> None:
        """Close the client's connection and continue working.

        The client reconnects to get the result. Use this for long work over HTTP. If
        the client has no way to reconnect, this does nothing.

        Args:
            retry: How many seconds the client waits before it reconnects.
        """
        # Only HTTP channels have this method.
        release_client = getattr(self._request.channel, "release_client", None)
        if release_client is not None:
            release_client(round(retry * 1000))
        await trio.lowlevel.checkpoint()

    @property
    def _questions(self) -> "ClientRequests":
        from .client_requests import ClientRequests  # most servers never ask

        if self._client_requests is None:
            self._client_requests = ClientRequests(self._request)
        return self._client_requests

    def _checkpoint(self) -> Awaitable[None]:
        """Return a checkpoint, unless there was one within `BURST` seconds.

        Reports in a burst are sent together, at the latest when the function next
        waits. A hundred reports take 30 % fewer instructions than with a checkpoint
        after each. This method is not async, because that would add a frame to every
        report.
        """
        if perf_counter() < self._burst_ends:
            return trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC105 - see above
        return self._end_burst()

    async def _end_burst(self) -> None:
        """Wait while the client reads slowly, and let other tasks run."""
        await self._request.channel.drained()
        await trio.lowlevel.checkpoint()
        self._burst_ends = perf_counter() + BURST


def _how_much(done: float, total: float | None) -> str:
    """Return the default message of a progress report."""
    return f"{done:g}" if total is None else f"{done:g} of {total:g}"
