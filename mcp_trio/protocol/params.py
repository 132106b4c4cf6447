"""What requests and notifications carry: one struct a method, decoded in one pass together with `_meta`."""

from functools import cache
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field, json

from .jsonrpc import Id

LogLevel = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]

VENDOR = "io.modelcontextprotocol/"


class ClientCapabilities(Struct, frozen=True):
    """What the client can do for the server; only what matters here is typed."""

    sampling: dict[str, Any] | UnsetType = UNSET
    roots: dict[str, Any] | UnsetType = UNSET
    elicitation: dict[str, Any] | UnsetType = UNSET


NO_CAPABILITIES = ClientCapabilities()


class ClientInfo(Struct):
    """Who the client says it is; a name is all that has to be said."""

    name: str
    version: str = ""


class Meta(Struct, frozen=True, omit_defaults=True):
    """`_meta` of a request: what the protocol itself reads there."""

    progress_token: int | str | UnsetType = field(default=UNSET, name="progressToken")
    version: str | UnsetType = field(default=UNSET, name=VENDOR + "protocolVersion")
    capabilities: ClientCapabilities | UnsetType = field(
        default=UNSET, name=VENDOR + "clientCapabilities"
    )
    client: ClientInfo | UnsetType = field(default=UNSET, name=VENDOR + "clientInfo")
    log_level: LogLevel | UnsetType = field(default=UNSET, name=VENDOR + "logLevel")


NO_META = Meta()


class Params(Struct):
    """What any request may carry."""

    meta: Meta = field(default=NO_META, name="_meta")


class Initialize(Params, kw_only=True, rename="camel"):
    protocol_version: str
    capabilities: ClientCapabilities
    client_info: ClientInfo


class Page(Params):
    cursor: str | UnsetType = UNSET


class Retriable(Params, rename="camel"):
    """A request that may be answered by a question, and then comes again with the answers."""

    input_responses: dict[str, Raw] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class CallTool(Retriable, kw_only=True):
    """The same of a prompt."""

    name: str
    arguments: Raw = Raw(b"{}")


class OfResource(Retriable, kw_only=True):
    """Read it, or hear of its changes."""

    uri: str


class SetLevel(Params, kw_only=True):
    level: LogLevel


class PromptReference(Struct, tag_field="type", tag="ref/prompt"):
    name: str


class ResourceReference(Struct, tag_field="type", tag="ref/resource"):
    uri: str


class Argument(Struct):
    name: str
    value: str


class CompletionContext(Struct):
    arguments: dict[str, str] = {}


class Complete(Params, kw_only=True):
    ref: PromptReference | ResourceReference
    argument: Argument
    context: CompletionContext = field(default_factory=CompletionContext)


class Filter(Struct, rename="camel", omit_defaults=True):
    """What a client wants to hear of."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []


class Listen(Params, kw_only=True):
    notifications: Filter


class Cancelled(Params, kw_only=True, rename="camel"):
    request_id: Id
    reason: str = ""


# Method -> what it carries; any other carries nothing but `_meta`. Which revision has which, the revisions say.
KINDS: dict[str, type[Params]] = {
    **dict.fromkeys(
        ("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
        Page,
    ),
    **dict.fromkeys(
        ("resources/read", "resources/subscribe", "resources/unsubscribe"), OfResource
    ),
    "initialize": Initialize,
    "tools/call": CallTool,
    "prompts/get": CallTool,
    "logging/setLevel": SetLevel,
    "completion/complete": Complete,
    "subscriptions/listen": Listen,
    "notifications/cancelled": Cancelled,
}

_decoder = cache(json.Decoder)  # of a kind of params, made when it is first needed


def decode(method: str, raw: Raw) -> Any:
    """Typed params. Raises msgspec.ValidationError with paths that start at `$`."""
    return _decoder(KINDS.get(method, Params)).decode(raw)
