"""Method -> what answers it: from a request to its encoded result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..protocol.errors import InvalidParams, MethodNotFound, ResourceNotFound
from ..protocol.jsonrpc import encode
from ..protocol.model import Completion
from ..protocol.params import PromptReference

if TYPE_CHECKING:
    from .dispatch import Request
    from .registry import Registry


MOST_SUBSCRIPTIONS = 1_000
"""Resources that one session may subscribe to: a template matches as many URIs as a client can think of."""


async def initialize(request: Request) -> bytes:
    """Agree on a revision."""
    return encode(request.call.revision.initialize_result(request.server.features()))


async def discover(request: Request) -> bytes:
    """Say what is spoken and offered."""
    server = request.server
    revision: Any = request.call.revision  # of a kind that has this method
    return encode(revision.discover_result(server.features(), server.revisions.names))


async def ping(request: Request) -> bytes:
    """Be there."""
    return encode(request.call.revision.empty_result())


async def list_tools(request: Request) -> bytes:
    """List the tools."""
    return _list(request, "tools", request.server.tools)


async def call_tool(request: Request) -> bytes:
    """Call a tool."""
    params, revision = request.call.params, request.call.revision
    result = await request.server.tools.find(params.name).run(request, params.arguments)
    return revision.encode_text(result) if isinstance(result, str) else revision.encode_tool_result(result)


async def list_resources(request: Request) -> bytes:
    """List the resources; in the revision whose list it is part of, the templates too."""
    server, revision = request.server, request.call.revision
    if "resources/templates/list" in revision.requests:
        return _list(request, "resources", server.resources)
    _offered(request, "resources")
    resources = [item.listed for item in server.resources]
    templates = [item.listed for item in server.templates]
    return encode(revision.listing({"resources": resources, "resourceTemplates": templates}, None))


async def list_templates(request: Request) -> bytes:
    """List the resource templates."""
    return _list(request, "resourceTemplates", request.server.templates)


async def read_resource(request: Request) -> bytes:
    """Read a resource."""
    _offered(request, "resources")
    uri = request.call.params.uri
    contents = await request.server.find_resource(uri).read(request, uri)
    return encode(request.call.revision.read_result(contents))


async def subscribe(request: Request) -> bytes:
    """Have the client hear of a resource's changes."""
    uri, subscribed = request.call.params.uri, request.conversation.subscribed
    request.server.find_resource(uri)
    if len(subscribed) >= MOST_SUBSCRIPTIONS:
        raise InvalidParams(f"{MOST_SUBSCRIPTIONS} resources are subscribed to; unsubscribe from some first")
    subscribed.add(uri)
    return encode(request.call.revision.empty_result())


async def unsubscribe(request: Request) -> bytes:
    """Have it hear no more."""
    request.conversation.subscribed.discard(request.call.params.uri)
    return encode(request.call.revision.empty_result())


async def list_prompts(request: Request) -> bytes:
    """List the prompts."""
    return _list(request, "prompts", request.server.prompts)


async def get_prompt(request: Request) -> bytes:
    """Fill in a prompt."""
    _offered(request, "prompts")
    params = request.call.params
    filled = await request.server.prompts.find(params.name).fill(request, params.arguments)
    return encode(request.call.revision.prompt_result(filled))


async def complete(request: Request) -> bytes:
    """Complete an argument; one that nothing is known of has no completions."""
    server, params = request.server, request.call.params
    if isinstance(params.ref, PromptReference):
        name = server.prompts.find(params.ref.name).name
    elif (name := params.ref.uri) not in server.templates and name not in server.resources:
        raise ResourceNotFound(name)
    completion = Completion([])
    if (completer := server.completers.get((name, params.argument.name))) is not None:
        completion = await completer.complete(request, params.argument.value, params.context.arguments)
    return encode(request.call.revision.completion_result(completion))


async def set_level(request: Request) -> bytes:
    """Set from which level on the client wants log messages."""
    revision, level = request.call.revision, request.call.params.level
    known = set(revision.levels.values())
    if level not in known:
        raise InvalidParams(f"Invalid params: $.params.level: {level!r} is none of {', '.join(sorted(known))}")
    request.conversation.session.log_level = level
    return encode(revision.empty_result())


async def listen(request: Request) -> bytes:
    """Tell the client what it wants to hear of, until either side ends it."""
    wanted, features = request.call.params.notifications, request.server.features()
    if "prompts" not in features:
        wanted.prompts_list_changed = False
    if "resources" not in features:
        wanted.resources_list_changed, wanted.resource_subscriptions = False, []
    await request.server.subscriptions.listen(request, wanted)
    revision: Any = request.call.revision  # of a kind that has this method
    return encode(revision.listen_result(request.call.id))


def _offered(request: Request, feature: str) -> None:
    if feature not in request.server.features():
        reason = f"Server does not support the {feature} capability"
        raise MethodNotFound(f"{feature.capitalize()} not supported", data={"reason": reason})


def _list(request: Request, key: str, registry: Registry[Any]) -> bytes:
    _offered(request, registry.feature)
    return registry.listing(request.call.revision, key, request.call.params.cursor or None)


HANDLERS: dict[str, Callable[[Request], Awaitable[bytes]]] = {
    "initialize": initialize,
    "server/discover": discover,
    "ping": ping,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
    "logging/setLevel": set_level,
    "subscriptions/listen": listen,
}
