"""Asking the client: for a user's input (elicitation), for a model's words (sampling), for its folders (roots).

One call serves both eras. Where the revision lets a server ask, the question travels at once and the function waits
for the answer. Where it does not, the function ends here with `Unanswered`, the request is answered with the open
questions and a sealed state, and when the client comes back with both, the function runs again from its top: what
was answered before is found in the state, and `once` keeps a step from being done twice.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from ..protocol import jsonrpc
from ..protocol.errors import InvalidParams, MissingClientCapability
from ..protocol.model import Audio, Content, Image, Json, PromptMessage, Text, Tool
from .elicitation import form_schema
from .failures import AskFailed, Unanswered

if TYPE_CHECKING:
    from ..protocol.params import ClientCapabilities
    from ..protocol.revisions import Revision
    from .dispatch import Request

T = TypeVar("T")
STATE_LIFETIME = 3600
"""Seconds within which a client has to come back with its answers."""


class Elicited(Struct, Generic[T]):
    """A user's answer to a form: `content` is what was entered, None unless the user accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user has answered."""
        return self.action == "accept"


class Sampled(Struct, rename="camel"):
    """What the client's model said; `content` is one piece of content, or several, as the client sent it."""

    role: str
    content: Any
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text in it, joined."""
        pieces = self.content if isinstance(self.content, list) else [self.content]
        return "".join(piece["text"] for piece in pieces if piece.get("type") == "text")


class Root(Struct):
    """A folder (or another place) that the client lets the server work in."""

    uri: str
    name: str | None = None


class _Roots(Struct):
    roots: list[Root]


class Question(Generic[T]):
    """Something to ask of the client. `key` names it where questions travel in results; by default a key is made."""

    method: str
    capability: str

    def __init__(self, *, key: str | None = None) -> None:
        self.key = key

    def params(self, revision: Revision) -> Json:
        """The question as the revision has it. Raises ValueError where it cannot be put."""
        raise NotImplementedError

    @property
    def required(self) -> Json:
        """The capability, as the client would declare it."""
        return {self.capability: {}}

    def allowed_by(self, capabilities: ClientCapabilities) -> bool:
        """Whether the client can be asked this."""
        return isinstance(getattr(capabilities, self.capability), dict)

    def read(self, answer: Raw) -> T:
        """What the client's result says. Raises msgspec.ValidationError or ValueError."""
        raise NotImplementedError


class Elicit(Question[Elicited[T]]):
    """A form for the user: its fields are those of `schema`, a flat dataclass, Struct or TypedDict."""

    method = "elicitation/create"
    capability = "elicitation"

    def __init__(self, message: str, schema: type[T], *, key: str | None = None) -> None:
        super().__init__(key=key)
        self.message = message
        self.schema: Any = schema

    def params(self, revision: Revision) -> Json:
        schema = form_schema(self.schema, lists=revision.elicits_lists)
        return {"mode": "form", "message": self.message, "requestedSchema": schema}

    def allowed_by(self, capabilities: ClientCapabilities) -> bool:
        offered = capabilities.elicitation
        return isinstance(offered, dict) and ("form" in offered or "url" not in offered)

    def read(self, answer: Raw) -> Elicited[T]:
        elicited = msgspec.json.decode(answer, type=Elicited[Any])
        if not elicited.accepted:
            return Elicited(elicited.action)
        return Elicited("accept", msgspec.convert(elicited.content or {}, self.schema))


class ElicitUrl(Question[Elicited[None]]):
    """A page for the user to visit, for what must not pass through the client: a login, a payment."""

    method = "elicitation/create"
    capability = "elicitation"

    def __init__(self, message: str, url: str, id: str, *, key: str | None = None) -> None:
        super().__init__(key=key)
        self.message = message
        self.url = url
        self.id = id

    def params(self, revision: Revision) -> Json:
        if not revision.elicits_urls:
            raise ValueError(f"protocol revision {revision.name} cannot send a user to a page")
        return {"mode": "url", "message": self.message, "url": self.url, "elicitationId": self.id}

    @property
    def required(self) -> Json:
        return {self.capability: {"url": {}}}

    def allowed_by(self, capabilities: ClientCapabilities) -> bool:
        return isinstance(capabilities.elicitation, dict) and "url" in capabilities.elicitation

    def read(self, answer: Raw) -> Elicited[None]:
        return Elicited(msgspec.json.decode(answer, type=Elicited[Any]).action)


class Sample(Question[Sampled]):
    """A turn of the client's model."""

    method = "sampling/createMessage"
    capability = "sampling"

    def __init__(
        self,
        messages: str | list[PromptMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: list[str] | None = None,
        model_preferences: Json | None = None,
        include_context: str | None = None,
        metadata: Json | None = None,
        tools: list[Tool] | None = None,
        tool_choice: Json | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(key=key)
        self.messages = [PromptMessage("user", Text(messages))] if isinstance(messages, str) else messages
        self.options: Json = {
            "maxTokens": max_tokens,
            "systemPrompt": system_prompt,
            "temperature": temperature,
            "stopSequences": stop_sequences,
            "modelPreferences": model_preferences,
            "includeContext": include_context,
            "metadata": metadata,
            "tools": tools,
            "toolChoice": tool_choice,
        }

    def params(self, revision: Revision) -> Json:
        messages = [{"role": item.role, "content": revision.content(_spoken(item.content))} for item in self.messages]
        return {"messages": messages, **self.options}

    def allowed_by(self, capabilities: ClientCapabilities) -> bool:
        offered = capabilities.sampling
        return isinstance(offered, dict) and (self.options["tools"] is None or "tools" in offered)

    def read(self, answer: Raw) -> Sampled:
        return msgspec.json.decode(answer, type=Sampled)


class Roots(Question[list[Root]]):
    """The places that the client lets the server work in."""

    method = "roots/list"
    capability = "roots"

    def params(self, revision: Revision) -> Json:
        return {}

    def read(self, answer: Raw) -> list[Root]:
        return msgspec.json.decode(answer, type=_Roots).roots


def _spoken(content: Content) -> Content:
    if not isinstance(content, Text | Image | Audio):
        raise TypeError(f"a message to sample from is Text, Image or Audio, not {type(content).__name__}")
    return content


class State(Struct):
    """What a client brings back sealed: who asked what, until when, and what is known so far."""

    principal: str | None
    digest: str
    expires: float
    answers: dict[str, Raw]
    done: dict[str, Raw]


class Asking:
    """The questions of one request."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._revision = request.call.revision
        self._count = 0
        self._open: dict[str, Json] = {}
        self._answers: dict[str, Raw] = {}
        self._done: dict[str, Raw] = {}
        if not self._revision.opens:
            self._recall()

    async def elicit(self, message: str, schema: type[T], key: str | None) -> Elicited[T]:
        """A user's answer to a form."""
        answer: Elicited[T] = (await self.ask(Elicit(message, schema, key=key)))[0]
        return answer

    async def elicit_url(self, message: str, url: str, id: str, key: str | None) -> Elicited[None]:
        """Whether a user will visit a page."""
        answer: Elicited[None] = (await self.ask(ElicitUrl(message, url, id, key=key)))[0]
        return answer

    async def sample(self, messages: str | list[PromptMessage], **options: Any) -> Sampled:
        """What the client's model says."""
        answer: Sampled = (await self.ask(Sample(messages, **options)))[0]
        return answer

    async def roots(self, key: str | None) -> list[Root]:
        """The client's roots."""
        answer: list[Root] = (await self.ask(Roots(key=key)))[0]
        return answer

    async def ask(self, *questions: Question[Any]) -> list[Any]:
        """The answers, in order. Raises MissingClientCapability, AskFailed, Unanswered."""
        for question in questions:
            self._check(question)
        if self._revision.opens:
            return [await self._ask_now(question) for question in questions]
        answers = [self._recalled(question) for question in questions]
        if self._open:
            raise Unanswered(self)
        return answers

    async def once(self, key: str, step: Callable[[], Awaitable[Any]]) -> Any:
        """What the step returned when it was done first, as JSON has it."""
        if key not in self._done:
            self._done[key] = Raw(msgspec.json.encode(await step()))
        return msgspec.json.decode(self._done[key])

    def result(self) -> bytes:
        """The result with the open questions."""
        state = State(self._principal, self._digest(), time.time() + STATE_LIFETIME, self._answers, self._done)
        sealed = self._request.server.seal.close(msgspec.json.encode(state))
        return jsonrpc.encode(self._revision.input_required(self._open, sealed))  # type: ignore[attr-defined]

    def _check(self, question: Question[Any]) -> None:
        meta = self._request.call.meta
        opened = self._request.conversation.session.capabilities
        capabilities = opened if self._revision.opens else meta.capabilities
        if question.method not in self._revision.asks or not question.allowed_by(capabilities):  # type: ignore[arg-type]
            raise MissingClientCapability(question.required)

    async def _ask_now(self, question: Question[T]) -> T:
        params = question.params(self._revision)
        answer = await self._request.conversation.ask(self._request, question.method, params)
        try:
            return question.read(answer)
        except (ValueError, RecursionError) as problem:
            raise AskFailed(f"the client's answer to {question.method} is unusable: {problem}") from None

    def _recalled(self, question: Question[T]) -> T | None:
        """The answer, if it is there; else the question is noted as open.

        A key that is made is the question's place and its digest: should the function ask otherwise when it runs
        again, an old answer does not pass for one to the new question.
        """
        self._count += 1
        request = self._revision.input_request(question.method, question.params(self._revision))
        digest = sha256(msgspec.json.encode(request)).hexdigest()[:8]
        key = question.key or f"{self._count}-{question.capability}-{digest}"
        if key not in self._answers:
            self._open[key] = request
            return None
        try:
            return question.read(self._answers[key])
        except (ValueError, RecursionError) as problem:
            raise InvalidParams(f"Invalid params: $.params.inputResponses['{key}']: {problem}") from None

    def _recall(self) -> None:
        """Take in what the client has brought back. Raises InvalidParams for a state not given for this request."""
        params = self._request.call.params
        if params.request_state is not msgspec.UNSET:
            state = self._opened(params.request_state)
            self._answers, self._done = state.answers, state.done
        if params.input_responses is not msgspec.UNSET:
            self._answers = {**self._answers, **params.input_responses}

    def _opened(self, sealed: str) -> State:
        try:
            state = msgspec.json.decode(self._request.server.seal.open(sealed), type=State)
        except ValueError:
            raise InvalidParams("Invalid params: $.params.requestState: not one that this server has given") from None
        if (state.principal, state.digest) != (self._principal, self._digest()):
            raise InvalidParams("Invalid params: $.params.requestState: belongs to another request")
        if state.expires < time.time():
            raise InvalidParams("Invalid params: $.params.requestState: has expired; begin again without it")
        return state

    @property
    def _principal(self) -> str | None:
        return self._request.principal

    def _digest(self) -> str:
        """What tells this request from others: its method, and all that its sender may choose."""
        call = self._request.call
        chosen = [call.method, getattr(call.params, "name", None), getattr(call.params, "uri", None)]
        arguments = bytes(getattr(call.params, "arguments", b""))
        canonical = msgspec.json.encode([chosen, msgspec.json.decode(arguments or b"{}")], order="deterministic")
        return sha256(canonical).hexdigest()
