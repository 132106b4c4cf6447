"""Asking the client: for a user's input (elicitation), for a model's words (sampling), for its folders (roots).

One call serves both eras. Where the revision lets a server ask, the question travels at once and the function waits
for the answer. Where it does not, the function ends here with `Unanswered`, the request is answered with the open
questions and a sealed state, and when the client comes back with both, the function runs again from its top: what
was answered before is found in the state, and `once` keeps a step from being done twice.
"""

import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, ClassVar, Generic, Literal, TypeVar

from msgspec import UNSET, Raw, Struct, convert, json, structs

from ..auth.principal import Owner
from ..protocol import jsonrpc
from ..protocol.errors import InvalidParams, MissingClientCapability
from ..protocol.revisions import Revision
from ..protocol.types import Audio, Image, Json, PromptMessage, Text, Tool
from .exceptions import AskFailed, Unanswered
from .request import Request
from .schema.forms import form_schema
from .sealed_state import STATE_LIFETIME, State, seal, unseal

T = TypeVar("T")


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
    content: Json | list[Json]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text in it, joined."""
        pieces = self.content if isinstance(self.content, list) else [self.content]
        return "".join(piece["text"] for piece in pieces if piece.get("type") == "text")

    def __post_init__(self) -> None:
        pieces = self.content if isinstance(self.content, list) else [self.content]
        if not all(
            isinstance(piece.get("text"), str)
            for piece in pieces
            if piece.get("type") == "text"
        ):
            raise ValueError("$.content: the text of a text is no string")


class Root(Struct):
    """A folder (or another place) that the client lets the server work in."""

    uri: str
    name: str | None = None


class _Roots(Struct):
    roots: list[Root]


class Question(Struct, Generic[T], kw_only=True, rename="camel"):
    """Something to ask of the client. `key` names it where questions travel in results; by default a key is made."""

    method: ClassVar[str]
    # What the client has to offer within the capability.
    needs: ClassVar[Json] = {}
    key: str | None = None

    def params(self, revision: Revision) -> Json:
        """The question as the revision has it. Raises ValueError where it cannot be put."""
        return {}

    def allowed_by(self, offered: Json) -> bool:
        """Whether a client that offers this within the capability can be asked."""
        return all(name in offered for name in self.needs)

    def read(self, answer: Raw) -> T:
        """What the client's result says. Raises msgspec.ValidationError or ValueError."""
        raise NotImplementedError


class Elicit(Question[Elicited[T]]):
    """A form for the user: its fields are those of `schema`, a flat dataclass, Struct or TypedDict."""

    method = "elicitation/create"
    message: str
    schema: type[T]

    def params(self, revision: Revision) -> Json:
        form: Any = self.schema
        # Lists, and defaults in forms, came in one revision with questions by address.
        asked = form_schema(form, lists="url" in revision.table[self.method])
        return {"mode": "form", "message": self.message, "requestedSchema": asked}

    def allowed_by(self, offered: Json) -> bool:
        return "form" in offered or "url" not in offered

    def read(self, answer: Raw) -> Elicited[T]:
        elicited = json.decode(answer, type=Elicited[Any])
        if not elicited.accepted:
            return Elicited(elicited.action)
        return Elicited(
            "accept",
            convert({} if elicited.content is None else elicited.content, self.schema),
        )


class ElicitUrl(Question[Elicited[None]]):
    """A page for the user to visit, for what must not pass through the client: a login, a payment."""

    method = "elicitation/create"
    needs = {"url": {}}
    message: str
    url: str
    id: str

    def params(self, revision: Revision) -> Json:
        if "url" not in revision.table[self.method]:
            raise ValueError(
                f"protocol revision {revision.name} cannot send a user to a page"
            )
        return {
            "mode": "url",
            "message": self.message,
            "url": self.url,
            "elicitationId": self.id,
        }

    def read(self, answer: Raw) -> Elicited[None]:
        return Elicited(json.decode(answer, type=Elicited[Any]).action)


class Sample(Question[Sampled]):
    """A turn of the client's model."""

    method = "sampling/createMessage"
    messages: str | list[PromptMessage]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    model_preferences: Json | None = None
    include_context: str | None = None
    metadata: Json | None = None
    tools: list[Tool] | None = None
    tool_choice: Json | None = None

    def params(self, revision: Revision) -> Json:
        said = (
            [PromptMessage("user", Text(self.messages))]
            if isinstance(self.messages, str)
            else self.messages
        )
        if wrong := [
            message.content
            for message in said
            if not isinstance(message.content, Text | Image | Audio)
        ]:
            raise TypeError(
                f"a message to sample from is Text, Image or Audio, not {type(wrong[0]).__name__}"
            )
        return {
            **dict(
                zip(self.__struct_encode_fields__, structs.astuple(self), strict=True)
            ),
            "messages": said,
        }

    def allowed_by(self, offered: Json) -> bool:
        return self.tools is None or "tools" in offered

    def read(self, answer: Raw) -> Sampled:
        return json.decode(answer, type=Sampled)


class Roots(Question[list[Root]]):
    """The places that the client lets the server work in."""

    method = "roots/list"

    def read(self, answer: Raw) -> list[Root]:
        return json.decode(answer, type=_Roots).roots


class ClientRequests:
    """The questions of one request."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._revision: Any = request.call.revision
        self._count = 0
        self._open: dict[str, Json] = {}
        about: Json = {"arguments": {}, **json.decode(request.call.raw)}
        # What tells this request from others: on whose behalf it comes, its method, and what it is about.
        who = request.principal
        name = (
            None if who is None or isinstance(who, Owner) else who.name
        )  # an owner is called otherwise elsewhere
        chosen = [
            name,
            request.call.method,
            *map(about.get, ("name", "uri", "arguments")),
        ]
        self._state = State(
            sha256(json.encode(chosen, order="deterministic")).hexdigest(), expires=0
        )
        params, session = request.call.params, request.conversation.session
        self._capabilities = (
            session.capabilities if self._revision.opens else params.meta.capabilities
        )
        if not self._revision.opens and params.request_state is not UNSET:
            self._state = self._opened(params.request_state)
        if not self._revision.opens and params.input_responses is not UNSET:
            self._state.answers.update(params.input_responses)

    async def all(self, *questions: Question[T]) -> list[T]:
        """The answers, in order. Raises MissingClientCapability, AskFailed, Unanswered."""
        for question in questions:
            capability = question.method.partition("/")[
                0
            ]  # methods are named after theirs
            offered = getattr(self._capabilities, capability)
            asks = question.method in self._revision.asks and isinstance(offered, dict)
            if not asks or not question.allowed_by(offered):
                raise MissingClientCapability({capability: question.needs})
        if self._revision.opens:
            return [await self._ask_now(question) for question in questions]
        answers = [self._recalled(question) for question in questions]
        if self._open:
            raise Unanswered(self._result)
        return answers

    async def once(self, key: str, step: Callable[[], Awaitable[T]]) -> T:
        """What the step returned when it was done first, as JSON has it."""
        if key not in self._state.done:
            self._state.done[key] = Raw(json.encode(await step()))
        done: T = json.decode(self._state.done[key])
        return done

    async def _ask_now(self, question: Question[T]) -> T:
        params = question.params(self._revision)
        answer = await self._request.conversation.ask(
            question.method, params, self._request.channel, self._revision
        )
        try:
            return question.read(answer)
        except (ValueError, RecursionError) as problem:
            raise AskFailed(
                f"the client's answer to {question.method} is unusable: {problem}"
            ) from None

    def _recalled(self, question: Question[Any]) -> Any:
        """The answer, if it is there; else the question is noted as open.

        A key that is made is the question's place and its digest: should the function ask otherwise when it runs
        again, an old answer does not pass for one to the new question.
        """
        self._count += 1
        request = self._revision.input_request(
            question.method, question.params(self._revision)
        )
        digest = sha256(json.encode(request)).hexdigest()[:8]
        key = (
            question.key
            or f"{self._count}-{question.method.partition('/')[0]}-{digest}"
        )
        if key not in self._state.answers:
            self._open[key] = request
            return None
        try:
            return question.read(self._state.answers[key])
        except (ValueError, RecursionError) as problem:
            raise InvalidParams(
                f"Invalid params: $.params.inputResponses['{key}']: {problem}"
            ) from None

    def _result(self) -> bytes:
        """The result with the open questions."""
        self._state.expires = time.time() + STATE_LIFETIME
        sealed = seal(self._request.environment.secret, json.encode(self._state))
        return jsonrpc.encode(self._revision.input_required(self._open, sealed))

    def _opened(self, sealed: str) -> State:
        """What the client has brought back. Raises InvalidParams for a state that was not given for this request."""
        where = "Invalid params: $.params.requestState"
        try:
            state = json.decode(
                unseal(self._request.environment.secret, sealed), type=State
            )
        except ValueError:
            raise InvalidParams(
                f"{where}: not one that this server has given"
            ) from None
        if state.digest != self._state.digest:
            raise InvalidParams(f"{where}: belongs to another request")
        if state.expires < time.time():
            raise InvalidParams(f"{where}: has expired; begin again without it")
        return state
