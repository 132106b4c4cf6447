"""The params of requests and notifications: one struct for each shape.

A struct is decoded in one pass, together with `_meta`. The revisions' tables define
which revision has which method.

`params`, `_meta`, `cursor`, `arguments` and the context of a completion may be null,
because Go clients encode absent maps and pointers as null. The arguments of tools and
prompts stay encoded here; `Feature.decode` accepts null for them.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field, json

from .jsonrpc import Id

LogLevel = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]

# The prefix of the protocol's own keys in `_meta`.
VENDOR = "io.modelcontextprotocol/"


# The maximum length of a URI, and the maximum number of URIs in one subscription.
MAX_URI = 8 * 1024
MAX_URIS = 1_000

Uri = Annotated[str, msgspec.Meta(max_length=MAX_URI)]


# What every request may carry


class ClientCapabilities(Struct, frozen=True):
    """The client's capabilities, as far as the server uses them.

    `extensions` stays encoded: see `mcp_trio.protocol.extensions`.
    """

    sampling: dict[str, Any] | UnsetType = UNSET
    roots: dict[str, Any] | UnsetType = UNSET
    elicitation: dict[str, Any] | UnsetType = UNSET
    extensions: Raw | UnsetType = UNSET


NO_CAPABILITIES = ClientCapabilities()

# The flags within each capability that the server knows.
_FLAGS = {
    "sampling": ("context", "tools"),
    "roots": ("listChanged",),
    "elicitation": ("form", "url"),
}


def known_flags(capabilities: ClientCapabilities) -> ClientCapabilities:
    """Return a client's capabilities with only the known flags, for a session to keep.

    A flag is a boolean or an object. An object is replaced with an empty one.
    """
    kept: dict[str, Any] = {}
    for name, flags in _FLAGS.items():
        given = getattr(capabilities, name)
        if given is not UNSET:
            kept[name] = {
                flag: given[flag] if isinstance(given[flag], bool) else {}
                for flag in flags
                if flag in given
            }
    return msgspec.structs.replace(capabilities, **kept)


# The characters of a client's name and version that are kept.
MAX_CLIENT_INFO = 200


class ClientInfo(Struct, frozen=True):
    """The client's name and version. Only the name is required."""

    name: str
    version: str = ""


@lru_cache(256)
def _client_info(name: str, version: str) -> ClientInfo:
    return ClientInfo(name, version)


def shared_client_info(client: ClientInfo) -> ClientInfo:
    """Return the client's truncated name and version. Equal clients share an object."""
    return _client_info(client.name[:MAX_CLIENT_INFO], client.version[:MAX_CLIENT_INFO])


class Meta(Struct, frozen=True, omit_defaults=True):
    """The keys of a request's `_meta` that the protocol defines."""

    progress_token: int | str | UnsetType = field(default=UNSET, name="progressToken")
    version: str | UnsetType = field(default=UNSET, name=VENDOR + "protocolVersion")
    capabilities: ClientCapabilities | UnsetType = field(
        default=UNSET, name=VENDOR + "clientCapabilities"
    )
    client: ClientInfo | UnsetType = field(default=UNSET, name=VENDOR + "clientInfo")
    log_level: LogLevel | UnsetType = field(default=UNSET, name=VENDOR + "logLevel")


NO_META = Meta()


class Params(Struct):
    """The params that every method has.

    `meta` is never None after decoding.
    """

    meta: Meta | None = field(default=NO_META, name="_meta")


# The params of each method


class InitializeParams(Params, kw_only=True, rename="camel"):
    """The params of `initialize`."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: ClientInfo


class ListParams(Params):
    """The params of a request for one page of a list."""

    cursor: str | None = None


class RetriableParams(Params, rename="camel"):
    """The params of a request that the server may answer with questions.

    The client then repeats the request, with its answers and the server's state.
    """

    input_responses: dict[str, Raw] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class CallParams(RetriableParams, kw_only=True):
    """The params of `tools/call` and `prompts/get`."""

    name: str
    arguments: Raw = Raw(b"{}")


class ResourceParams(RetriableParams, kw_only=True):
    """The params of reading a resource and of subscribing to its updates."""

    uri: Uri


class SetLevelParams(Params, kw_only=True):
    """The params of `logging/setLevel`."""

    level: LogLevel


class PromptReference(Struct, tag_field="type", tag="ref/prompt"):
    """Completion of an argument of a prompt."""

    name: str


class ResourceReference(Struct, tag_field="type", tag="ref/resource"):
    """Completion of a variable of a resource template."""

    uri: Uri


class CompletionArgument(Struct):
    """The argument to complete, and what the user has typed."""

    name: str
    value: str


class CompletionContext(Struct):
    """The arguments that already have values."""

    arguments: dict[str, str] | None = None


class CompleteParams(Params, kw_only=True):
    """The params of `completion/complete`."""

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Filter(Struct, rename="camel", omit_defaults=True):
    """The notifications that a client subscribes to."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: Annotated[list[Uri], msgspec.Meta(max_length=MAX_URIS)] = []


class ListenParams(Params, kw_only=True):
    """The params of `subscriptions/listen`."""

    notifications: Filter


class CancelledParams(Params, kw_only=True, rename="camel"):
    """The params of `notifications/cancelled`."""

    request_id: Id
    reason: str = ""


# Decoding

# Method -> its params. Other methods only have `_meta`.
_PARAMS_OF: dict[str, type[Params]] = {
    "initialize": InitializeParams,
    "tools/list": ListParams,
    "tools/call": CallParams,
    "prompts/list": ListParams,
    "prompts/get": CallParams,
    "resources/list": ListParams,
    "resources/templates/list": ListParams,
    "resources/read": ResourceParams,
    "resources/subscribe": ResourceParams,
    "resources/unsubscribe": ResourceParams,
    "logging/setLevel": SetLevelParams,
    "completion/complete": CompleteParams,
    "subscriptions/listen": ListenParams,
    "notifications/cancelled": CancelledParams,
}

# Params -> their decoder, which is created when it is first needed.
_decoder = cache(json.Decoder)


def decode_params(
    method: str, raw: Raw, extensions: Mapping[str, type[Params]] | None = None
) -> Any:
    """Decode the params of a method. Raises msgspec.ValidationError.

    `extensions` maps the methods of extensions to their params. The path in the error
    begins with `$`.
    """
    kind = _PARAMS_OF.get(method)
    if kind is None:
        kind = Params if extensions is None else extensions.get(method, Params)
    decoded = _decoder(kind).decode(raw)
    if decoded.meta is None:
        decoded.meta = NO_META
    return decoded


def decode_meta(raw: Raw) -> Params:
    """Decode only the `_meta` of any params. Raises msgspec.ValidationError."""
    decoded: Params = _decoder(Params).decode(raw)
    if decoded.meta is None:
        decoded.meta = NO_META
    return decoded
