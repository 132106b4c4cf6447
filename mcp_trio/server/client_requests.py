"""Questions to the client: elicitation, sampling and roots.

The same call works in every revision. In some revisions a server may send requests: the
question is sent at once, and the function waits for the answer. In the others the
function ends with `Unanswered`, and its request is answered with the open questions and
a signed state. When the client comes back with the answers and the state, the function
runs again from its beginning. Answers that were given before are in the state, and
`once` keeps a step from being done twice.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, Generic, Literal, TypeVar

from msgspec import UNSET, Raw, Struct, json, structs

from ..auth.principal import Owner, Principal
from ..protocol import jsonrpc
from ..protocol.errors import InvalidParams, MissingClientCapability
from ..protocol.revisions import Revision
from ..protocol.types import Json, SamplingMessage, Tool, ToolUse, ToolUseResult
from .exceptions import AskFailed, Unanswered
from .request import Request
from .sampling import Message, Sampled, read_messages, read_tool_choice, read_tools
from .schema.forms import decode_form, form_schema
from .sealed_state import STATE_LIFETIME, RequestState, seal, unseal

T = TypeVar("T")


# Answers


class Elicited(Struct, Generic[T]):
    """A user's answer. `content` is the filled-in form, None unless it was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"


class Root(Struct):
    """A folder, or another place, that the client lets the server work in."""

    uri: str
    name: str | None = None


class _RootsResult(Struct):
    roots: list[Root]


# Questions


class Question(Struct, Generic[T], kw_only=True, rename="camel"):
    """A question to the client.

    `key` names the question where questions are part of a result; by default a name is
    made for it.
    """

    method: ClassVar[str]
    # What the client must declare within its capability.
    needs: ClassVar[Json] = {}
    key: str | None = None

    @property
    def required(self) -> Json:
        """What the client must declare to be asked, within its capability."""
        return self.needs

    def params(self, revision: Revision) -> Json:
        """Return the parameters, as the revision has them.

        Raises ValueError if the question cannot be asked in this revision.
        """
        return {}

    def allowed_by(self, capability: Json) -> bool:
        """Return whether a client that declares this capability can be asked."""
        return all(name in capability for name in self.needs)

    def read(self, answer: Raw) -> T:
        """Decode the client's result. Raises ValidationError or ValueError."""
        raise NotImplementedError


class Elicit(Question[Elicited[T]]):
    """A form for the user.

    `schema` is a flat dataclass, Struct, TypedDict or pydantic model whose fields are
    the form's.
    """

    method = "elicitation/create"
    message: str
    schema: type[T]

    def params(self, revision: Revision) -> Json:
        """Return the message and the form's schema."""
        form: Any = self.schema
        # The revision that added questions by URL also added lists to forms.
        has_lists = "url" in revision.table[self.method]
        return {
            "mode": "form",
            "message": self.message,
            "requestedSchema": form_schema(form, lists=has_lists),
        }

    def allowed_by(self, capability: Json) -> bool:
        """Return whether the client shows forms, as an empty capability says too."""
        return "form" in capability or "url" not in capability

    def read(self, answer: Raw) -> Elicited[T]:
        """Decode the form's fields."""
        elicited = json.decode(answer, type=Elicited[Any])
        if not elicited.accepted:
            return Elicited(elicited.action)
        fields = {} if elicited.content is None else elicited.content
        return Elicited("accept", decode_form(self.schema, fields))


class ElicitUrl(Question[Elicited[None]]):
    """A page for the user to visit.

    Use it where the client must not see the data, such as a login or a payment.
    """

    method = "elicitation/create"
    needs = {"url": {}}
    message: str
    url: str
    id: str

    def params(self, revision: Revision) -> Json:
        """Return the message and the page's address."""
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
        """Decode the user's action."""
        return Elicited(json.decode(answer, type=Elicited[Any]).action)


class Sample(Question[Sampled]):
    """A conversation for the client's model to continue.

    `messages` is a text, or a list of messages: texts, dicts with the protocol's keys,
    `SamplingMessage`, `PromptMessage`, and earlier answers (`Sampled`) with the results
    of the tools that they use.
    """

    method = "sampling/createMessage"
    messages: str | Sequence[Message]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    model_preferences: Json | None = None
    include_context: str | None = None
    metadata: Json | None = None
    tools: Sequence[Tool | Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None

    @property
    def required(self) -> Json:
        """What the client must declare to be asked."""
        return {} if self.tools is None else {"tools": {}}

    def params(self, revision: Revision) -> Json:
        """Return the messages and all options."""
        names = self.__struct_encode_fields__
        options = dict(zip(names, structs.astuple(self), strict=True))
        options["messages"] = self._messages_for(revision)
        options["tools"] = read_tools(self.tools)
        options["toolChoice"] = read_tool_choice(self.tool_choice)
        return options

    def _messages_for(self, revision: Revision) -> list[SamplingMessage]:
        """Return the messages; in older revisions each has one block of content."""
        messages = read_messages(self.messages)
        if ToolUse in revision.table:
            return messages
        separate = [
            SamplingMessage(message.role, block)
            for message in messages
            for block in message.blocks
        ]
        uses_tools = any(
            isinstance(message.content, ToolUse | ToolUseResult) for message in separate
        )
        if self.tools is not None or uses_tools:
            raise ValueError(
                f"protocol revision {revision.name} has no tools in sampling"
            )
        return separate

    def allowed_by(self, capability: Json) -> bool:
        """Return whether the client samples, with tools if there are any."""
        return self.tools is None or "tools" in capability

    def read(self, answer: Raw) -> Sampled:
        """Decode the model's message."""
        return json.decode(answer, type=Sampled)


class Roots(Question[list[Root]]):
    """The places that the client lets the server work in."""

    method = "roots/list"

    def read(self, answer: Raw) -> list[Root]:
        """Decode the list of places."""
        return json.decode(answer, type=_RootsResult).roots


# Asking


class ClientRequests:
    """The questions that one request asks, and the answers so far."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._revision: Any = request.call.revision
        self._count = 0
        self._open: dict[str, Json] = {}  # questions without an answer, by their keys
        self._state = RequestState(_digest(request), expires=0)
        if self._revision.opens:
            return
        params = request.call.params
        if params.request_state is not UNSET:
            self._state = self._unsealed(params.request_state)
        if params.input_responses is not UNSET:
            self._state.answers.update(params.input_responses)

    async def all(self, *questions: Question[T]) -> list[T]:
        """Return the answers, in order.

        Raises MissingClientCapability, AskFailed or Unanswered.
        """
        for question in questions:
            check_capability(question, self._request)
        if self._revision.opens:
            return [await self._ask_now(question) for question in questions]
        answers = [self._recall(question) for question in questions]
        if self._open:
            raise Unanswered(self._result)
        return answers

    async def once(self, key: str, step: Callable[[], Awaitable[T]]) -> T:
        """Do a step, or return the JSON of its result from when it was first done."""
        if key not in self._state.done:
            self._state.done[key] = Raw(json.encode(await step()))
        done: T = json.decode(self._state.done[key])
        return done

    async def _ask_now(self, question: Question[T]) -> T:
        """Send the question and wait for the answer."""
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

    def _recall(self, question: Question[Any]) -> Any:
        """Return the answer, or note that the question is open."""
        params = question.params(self._revision)
        request = self._revision.input_request(question.method, params)
        self._count += 1
        key = question.key or self._make_key(question.method, request)
        if key not in self._state.answers:
            self._open[key] = request
            return None
        try:
            return question.read(self._state.answers[key])
        except (ValueError, RecursionError) as problem:
            raise InvalidParams(
                f"Invalid params: $.params.inputResponses['{key}']: {problem}"
            ) from None

    def _make_key(self, method: str, request: Json) -> str:
        """Return a key made of the question's position and its digest.

        If the function asks something else when it runs again, the old answer is not
        taken for an answer to the new question.
        """
        capability = method.partition("/")[0]
        digest = sha256(json.encode(request)).hexdigest()[:8]
        return f"{self._count}-{capability}-{digest}"

    def _result(self) -> bytes:
        """Return the result that holds the open questions."""
        self._state.expires = time.time() + STATE_LIFETIME
        sealed = seal(self._request.environment.secret, json.encode(self._state))
        return jsonrpc.encode(self._revision.input_required(self._open, sealed))

    def _unsealed(self, sealed: str) -> RequestState:
        """Return the state that the client has brought back.

        Raises InvalidParams if it was not given for this request.
        """
        where = "Invalid params: $.params.requestState"
        try:
            content = unseal(self._request.environment.secret, sealed)
            state = json.decode(content, type=RequestState)
        except ValueError:
            raise InvalidParams(
                f"{where}: not one that this server has given"
            ) from None
        if state.digest != self._state.digest:
            raise InvalidParams(f"{where}: belongs to another request")
        if state.expires < time.time():
            raise InvalidParams(f"{where}: has expired; begin again without it")
        return state


def check_capability(question: Question[Any], request: Request) -> None:
    """Check that a request's client can be asked.

    Raises MissingClientCapability, or AskFailed if the server keeps no sessions.
    """
    revision = request.call.revision
    if revision.opens and not revision.keeps_sessions:
        raise AskFailed(
            f"{question.method} needs a session in revision {revision.name}, and this "
            "server keeps none"
        )
    # A method is named after the capability that it needs: sampling/createMessage.
    name = question.method.partition("/")[0]
    capability = getattr(request.capabilities, name)
    is_known = question.method in revision.server_requests
    if (
        not is_known
        or not isinstance(capability, dict)
        or not question.allowed_by(capability)
    ):
        raise MissingClientCapability({name: question.required})


def _digest(request: Request) -> str:
    """Return a digest that distinguishes this request from others.

    It covers the server, the revision, the principal, the method, and the tool, prompt
    or resource with its arguments. So a state that one server has signed is of no use
    at another server with the same secret.
    """
    about: Json = json.decode(request.call.raw)
    revision = request.call.revision
    parts = [
        revision.server.name,
        revision.name,
        _principal_name(request.principal),
        request.call.method,
        about.get("name"),
        about.get("uri"),
        about.get("arguments") or {},
    ]
    return sha256(json.encode(parts, order="deterministic")).hexdigest()


def _principal_name(principal: Principal | None) -> str | None:
    # The owner of a process has another name on another machine.
    if principal is None or isinstance(principal, Owner):
        return None
    return principal.name
