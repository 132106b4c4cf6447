"""Method -> what answers it: from a request to its encoded result; to none where there is nothing to say in it."""

from collections.abc import Awaitable, Callable
from functools import partial
from sys import intern
from typing import TYPE_CHECKING, Any

from ..protocol.errors import InvalidParams, MethodNotFound, ResourceNotFound
from ..protocol.jsonrpc import encode
from ..protocol.model import BlobContents, Completion, PromptResult, Text, TextContents, ToolResult
from ..protocol.params import VENDOR, PromptReference
from .fitting import fitted
from .registry import Registry

if TYPE_CHECKING:
    from .dispatch import Request


async def introduce(request: "Request") -> bytes:
    """Say what is spoken and offered."""
    call, features, versions = request.call, request.server.features(), request.server.revisions.names
    if call.revision.opens:
        request.conversation.session.offered = intern(" ".join(features))  # one for all sessions
    return encode(call.revision.introduction(call.method, features, versions))


async def ping(request: "Request") -> None:
    """Be there."""


async def list_items(what: str, request: "Request") -> bytes:
    """List what the server has of a kind; where templates have no list of their own, they stand beside resources."""
    registry: Registry[Any] = getattr(request.server, what)
    revision, cursor = request.call.revision, request.call.params.cursor or None
    _offered(request, registry.feature)
    if what == "resources" and "resources/templates/list" not in revision.requests:
        templates = [item.listed for item in list(request.server.templates.values())]
        resources = [item.listed for item in list(registry.values())]
        return encode(revision.listing({what: resources, "resourceTemplates": templates}, None))
    key = "resourceTemplates" if what == "templates" else what
    return registry.listing(revision, key, cursor, request.principal)


async def call_tool(request: "Request") -> bytes:
    """Call a tool."""
    params, revision, server = request.call.params, request.call.revision, request.server
    tool, keeper = server.tools.find(params.name, request.principal), server.keeper
    if keeper.total or keeper.rate or tool.is_limited:
        keeper.admit(request, tool)
    result = await tool.run(request, params.arguments)
    most = tool.max_result or server.limits.max_result
    if isinstance(result, str):
        if len(encoded := revision.encode_text(result)) <= most:
            return encoded
        result = ToolResult([Text(result)])
    return fitted(result, lambda made: encode(revision.tool_result(made)), most, tool.label)


async def read_resource(request: "Request") -> bytes:
    """Read a resource."""
    _offered(request, "resources")
    uri, revision = request.call.params.uri, request.call.revision
    request.server.keeper.check(request)
    contents = await request.server.find_resource(uri).read(request, uri)

    def write(contents: list[TextContents | BlobContents]) -> bytes:
        return encode(revision.result({"contents": revision.shape(contents)}, cacheable=True))

    return fitted(list(contents), write, request.server.limits.max_result, f"resource {uri}")


async def subscribe(request: "Request") -> None:
    """Have the client hear of a resource's changes."""
    uri = request.call.params.uri
    request.server.find_resource(uri)
    request.server.subscriptions.subscribe(request.conversation, uri)


async def unsubscribe(request: "Request") -> None:
    """Have it hear no more."""
    request.server.subscriptions.unsubscribe(request.conversation, request.call.params.uri)


async def get_prompt(request: "Request") -> bytes:
    """Fill in a prompt."""
    _offered(request, "prompts")
    params, revision = request.call.params, request.call.revision
    prompt = request.server.prompts.find(params.name)
    request.server.keeper.check(request)
    filled = await prompt.fill(request, params.arguments)

    def write(filled: PromptResult) -> bytes:
        return encode(revision.result(revision.shape(filled), filled.meta))

    return fitted(filled, write, request.server.limits.max_result, prompt.label)


async def complete(request: "Request") -> bytes:
    """Complete an argument; one that nothing is known of has no completions."""
    server, params, revision = request.server, request.call.params, request.call.revision
    if isinstance(params.ref, PromptReference):
        name = server.prompts.find(params.ref.name).name
    elif (name := params.ref.uri) not in server.templates and name not in server.resources:
        raise ResourceNotFound(name)
    completion = Completion([])
    if (completer := server.completers.get(name, {}).get(params.argument.name)) is not None:
        server.keeper.check(request)
        completion = await completer.complete(request, params.argument.value, params.context.arguments)

    def write(completion: Completion) -> bytes:
        return encode(revision.result({"completion": revision.shape(completion)}))

    return fitted(completion, write, server.limits.max_result, f"the completion of {name}")


async def set_level(request: "Request") -> None:
    """Set from which level on the client wants log messages."""
    level = request.call.params.level
    if level not in (known := sorted(set(request.call.revision.levels.values()))):
        raise InvalidParams(f"Invalid params: $.params.level: {level!r} is none of {', '.join(known)}")
    request.conversation.session.log_level = level


async def listen(request: "Request") -> bytes:
    """Tell the client what it wants to hear of, until either side ends it."""
    wanted, features = request.call.params.notifications, request.server.features()
    if "prompts" not in features:
        wanted.prompts_list_changed = False
    if "resources" not in features:
        wanted.resources_list_changed, wanted.resource_subscriptions = False, []
    request.server.keeper.check(request)
    await request.server.subscriptions.listen(request, wanted)
    return encode(request.call.revision.result({}, {VENDOR + "subscriptionId": request.call.id}))


def _offered(request: "Request", feature: str) -> None:
    if feature not in request.server.features():
        reason = f"Server does not support the {feature} capability"
        raise MethodNotFound(f"{feature.capitalize()} not supported", data={"reason": reason})


HANDLERS: dict[str, Callable[["Request"], Awaitable[bytes | None]]] = {
    "initialize": introduce,
    "server/discover": introduce,
    "ping": ping,
    "tools/list": partial(list_items, "tools"),
    "tools/call": call_tool,
    "resources/list": partial(list_items, "resources"),
    "resources/templates/list": partial(list_items, "templates"),
    "resources/read": read_resource,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "prompts/list": partial(list_items, "prompts"),
    "prompts/get": get_prompt,
    "completion/complete": complete,
    "logging/setLevel": set_level,
    "subscriptions/listen": listen,
}
