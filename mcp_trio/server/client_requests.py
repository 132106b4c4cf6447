"""Questions to the client: elicitation, sampling and roots.

The API is the same for all revisions. If the revision has server requests, the question
is sent immediately, and the function waits for the answer. Otherwise the function ends
with `Unanswered`, and the response contains the open questions and a signed state. When
the client repeats the request with its answers and the state, the function runs again
from the beginning. The state contains earlier answers, and `once` avoids repeating a
step.
"""

import logging
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
from .request import Environment, Request
from .sampling import Message, Sampled, read_messages, read_tool_choice, read_tools
from .schema.forms import decode_form, form_schema
from .sealed_state import STATE_LIFETIME, RequestState, seal, unseal

log = logging.getLogger("mcp_trio")

T = TypeVar("T")


# Answers


class Elicited(Struct, Generic[T]):
    """A user's answer to a form or a page.

    Attributes:
        action: "accept", "decline" or "cancel".
        content: The completed form. None unless the user accepted.
    """

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"


class Root(Struct):
    """A root: a folder or other location that the server may work in.

    Attributes:
        uri: Its URI, such as "file:///home/ada".
        name: Its name for people.
    """

    uri: str
    name: str | None = None


class _RootsResult(Struct):
    roots: list[Root]


# Questions


class Question(Struct, Generic[T], kw_only=True, rename="camel"):
    """A question to the client.

    `key` identifies the question in revisions whose results contain questions. The
    default is generated.
    """

    method: ClassVar[str]
    # The flags that the client must declare in its capability.
    needs: ClassVar[Json] = {}
    key: str | None = None

    @property
    def required(self) -> Json:
        """The flags that the client must declare in its capability."""
        return self.needs

    def params(self, revision: Revision) -> Json:
        """Return the params for this revision.

        Raises ValueError if the question cannot be asked in this revision.
        """
        return {}

    def allowed_by(self, capability: Json) -> bool:
        """Return whether a client with this capability supports the question."""
        return all(name in capability for name in self.needs)

    def read(self, answer: Raw) -> T:
        """Decode the client's result. Raises ValidationError or ValueError."""
        raise NotImplementedError


class Elicit(Question[Elicited[T]]):
    """A form for the user.

    Attributes:
        message: What the user is asked.
        schema: A dataclass, Struct, TypedDict or pydantic model without nesting. Its
            fields are the fields of the form.
        key: A name for the question, if the order of questions can change when the
            function runs again.
    """

    method = "elicitation/create"
    message: str
    schema: type[T]

    def params(self, revision: Revision) -> Json:
        """Return the message and the form's schema."""
        form: Any = self.schema
        # The revision that added URL elicitation also added lists to forms.
        has_lists = "url" in revision.table[self.method]
        return {
            "mode": "form",
            "message": self.message,
            "requestedSchema": form_schema(form, lists=has_lists),
        }

    def allowed_by(self, capability: Json) -> bool:
        """Return whether the client supports forms, as with an empty capability."""
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

    Use it for data that the client must not see, such as a login or a payment.

    Attributes:
        message: Why the user should visit the page.
        url: The address of the page.
        id: Identifies this visit, for your page.
        key: A name for the question, as in `Elicit`.
    """

    method = "elicitation/create"
    needs = {"url": {}}
    message: str
    url: str
    id: str

    def params(self, revision: Revision) -> Json:
        """Return the message and the page's URL."""
        if "url" not in revision.table[self.method]:
            raise ValueError(
                f"protocol revision {revision.name} does not support URL elicitation"
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

    Attributes:
        messages: A text, or a list of messages: texts, dicts with the protocol's keys,
            `SamplingMessage`, `PromptMessage`, and earlier answers (`Sampled`) with the
            results of the tools that they use.
        max_tokens: The most tokens that the model may write.
        system_prompt: The system prompt.
        temperature: How random the answer is.
        stop_sequences: Texts that end the answer.
        model_preferences: Which model to use, as the protocol defines it.
        include_context: "none", "thisServer" or "allServers".
        metadata: Anything for the provider of the model.
        tools: Tools that the model may use: `Tool` objects, or dicts with the
            protocol's keys.
        tool_choice: "auto", "required" or "none".
        key: A name for the question, as in `Elicit`.
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
        """The flags that the client must declare in its capability."""
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
        """Return the messages. In older revisions, each has a single content block."""
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
                f"protocol revision {revision.name} does not support tools in sampling"
            )
        return separate

    def allowed_by(self, capability: Json) -> bool:
        """Return whether the client supports sampling, with tools if there are any."""
        return self.tools is None or "tools" in capability

    def read(self, answer: Raw) -> Sampled:
        """Decode the model's message."""
        return json.decode(answer, type=Sampled)


class Roots(Question[list[Root]]):
    """The roots: the folders that the server may work in.

    Attributes:
        key: A name for the question, as in `Elicit`.
    """

    method = "roots/list"

    def read(self, answer: Raw) -> list[Root]:
        """Decode the list of roots."""
        return json.decode(answer, type=_RootsResult).roots


# Asking


class ClientRequests:
    """The questions of one request, and the answers so far."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._revision: Any = request.call.revision
        self._count = 0
        self._open: dict[str, Json] = {}  # key -> a question without an answer
        self._state = RequestState(_digest(request), expires=0)
        if self._revision.opens:
            return
        params = request.call.params
        if params.request_state is not UNSET:
            self._state = self._unsealed(params.request_state)
        if params.input_responses is not UNSET:
            self._state.answers.update(params.input_responses)

    async def all(self, *questions: Question[T]) -> list[T]:
        """Ask the questions, and return the answers in order.

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
        """Run a step, or return its earlier result from the state."""
        if key not in self._state.done:
            self._state.done[key] = Raw(json.encode(await step()))
        done: T = json.decode(self._state.done[key])
        return done

    async def _ask_now(self, question: Question[T]) -> T:
        """Send a question, and wait for the answer."""
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
        """Return the answer from the state, or note that the question is open."""
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
        """Return a key that consists of the question's position and digest.

        So if the function asks a different question when it runs again, the old answer
        is not used for it.
        """
        capability = method.partition("/")[0]
        digest = sha256(json.encode(request)).hexdigest()[:8]
        return f"{self._count}-{capability}-{digest}"

    def _result(self) -> bytes:
        """Return the result with the open questions."""
        self._state.expires = time.time() + STATE_LIFETIME
        sealed = seal(self._request.environment.secret, json.encode(self._state))
        return jsonrpc.encode(self._revision.input_required(self._open, sealed))

    def _unsealed(self, sealed: str) -> RequestState:
        """Return the state that the client has sent back.

        Raises InvalidParams if it does not belong to this request.
        """
        where = "Invalid params: $.params.requestState"
        try:
            content = unseal(self._request.environment.secret, sealed)
            state = json.decode(content, type=RequestState)
        except ValueError:
            _log_unknown_state(self._request.environment)
            raise InvalidParams(
                f"{where}: not one that this server has given"
            ) from None
        if state.digest != self._state.digest:
            raise InvalidParams(f"{where}: belongs to another request")
        if state.expires < time.time():
            raise InvalidParams(f"{where}: has expired; begin again without it")
        return state


def _log_unknown_state(environment: Environment) -> None:
    """Log that a state has an invalid signature: once, as any client can send one."""
    if not environment.has_logged_unknown_state:
        environment.has_logged_unknown_state = True
        log.warning(
            "a client has sent a requestState that this process has not signed. If "
            "several processes serve the same clients, or if the server was "
            "restarted, set MCP_TRIO_SECRET to the same value for all of them"
        )


def check_capability(question: Question[Any], request: Request) -> None:
    """Check that a request's client supports a question.

    Raises MissingClientCapability, or AskFailed if the server has no sessions.
    """
    revision = request.call.revision
    if revision.opens and not revision.keeps_sessions:
        raise AskFailed(
            f"{question.method} needs a session in revision {revision.name}, but this "
            "server is stateless"
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
    """Return a digest that identifies this request.

    It covers the server, the revision, the principal, the method, and the tool, prompt
    or resource with its arguments. So a signed state cannot be used for another
    request, or at another server with the same secret.
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
    # The owner of a process may have a different name on another machine.
    if principal is None or isinstance(principal, Owner):
        return None
    return principal.name
