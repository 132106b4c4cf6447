"""The handlers of methods and notifications.

A handler returns the encoded result of a request. None means an empty result.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from sys import intern
from time import perf_counter
from typing import TYPE_CHECKING, Any

import trio
from msgspec import MsgspecError

from ..protocol import params as protocol_params
from ..protocol.errors import InvalidParams, MethodNotFound, ResourceNotFound
from ..protocol.jsonrpc import encode
from ..protocol.params import VENDOR, Filter, PromptReference
from ..protocol.session import Notice
from ..protocol.types import (
    BlobContents,
    Completion,
    Json,
    PromptResult,
    StructuredContent,
    Text,
    TextContents,
    ToolResult,
)
from .accounts import account_of
from .app import Server
from .conversation import Conversation
from .ledger import Priority
from .middleware import (
    MiddlewareCall,
    call_with_middleware,
    read_with_middleware,
    render_with_middleware,
)
from .registry import Registry, View
from .request import Request
from .truncate import measure, truncate_result

if TYPE_CHECKING:
    from .extension_points import ExtensionPoints
    from .features.tools import ServerTool

log = logging.getLogger("mcp_trio")

Handler = Callable[[Server, Request], Awaitable[bytes | None]]


# Requests


async def describe_server(server: Server, request: Request) -> bytes:
    """Describe the server: its name, its revisions and its features."""
    revision = request.call.revision
    features = server.features()
    if revision.opens:
        # Interned, so that all sessions share one string.
        request.conversation.session.offered = intern(" ".join(features))
        await request.conversation.save()
    versions = request.conversation.session.revisions.names
    extensions = None
    if server.extensions is not None:
        extensions = server.extensions.advertised(request)
    return encode(
        revision.describe_server(request.call.method, features, versions, extensions)
    )


async def ping(server: Server, request: Request) -> None:
    """Answer a ping."""


async def list_items(kind: str, server: Server, request: Request) -> bytes:
    """List tools, resources, templates or prompts."""
    registry: Registry[Any] = getattr(server, kind)
    revision = request.call.revision
    cursor = request.call.params.cursor or None
    _require(server, registry.feature)
    if kind == "resources" and "resources/templates/list" not in revision.requests:
        # This revision lists templates together with resources.
        principal = request.principal
        templates = server.templates.visible_to(principal)
        items = {
            "resources": [item.listed for item in registry.visible_to(principal)],
            "resourceTemplates": [item.listed for item in templates],
        }
        return encode(revision.listing(items, None))
    key = "resourceTemplates" if kind == "templates" else kind
    if kind == "tools" and server.extensions is not None:
        return _list_tools(server, server.extensions, request, cursor)
    return registry.listing(revision, key, cursor, request.principal)


def _list_tools(
    server: Server, extensions: "ExtensionPoints", request: Request, cursor: str | None
) -> bytes:
    """List tools, filtered and changed by extensions."""
    revision = request.call.revision
    hooks = extensions.list_hooks(request)

    def show(tool: "ServerTool") -> Any:
        return extensions.listed_tool(tool, revision, hooks)

    return server.tools.listing(
        revision, "tools", cursor, request.principal, view=View(hooks, show)
    )


async def call_tool(server: Server, request: Request) -> bytes:
    """Call a tool."""
    tool = server.tools.find(request.call.params.name, request.principal)
    request.target = tool.name
    limiter = server.limiter
    if limiter.total or tool.is_limited:
        if server.shared_limiter is None:
            limiter.admit(request, tool)
        else:
            await server.shared_limiter.admit(request, tool)
    if tool.call_hooks:
        return await call_with_hooks(server, request, tool)
    if server.middleware_stack:
        return await run_tool(server, request, tool)
    # Not with `run_tool`, which would add a frame to every call.
    result = await tool.run(request, request.call.params.arguments)
    if request.scope is not None:
        await _wait_for_turn(server, request, result)
    return _encode_tool_result(request, tool, result)


def call_with_hooks(
    server: Server, request: Request, tool: "ServerTool"
) -> Awaitable[bytes]:
    """Call a tool within the hooks of extensions. The first is outermost."""
    proceed: Callable[[], Awaitable[bytes]] = partial(run_tool, server, request, tool)
    for call_hook in reversed(tool.call_hooks):
        proceed = partial(call_hook, request, tool, proceed)
    return proceed()


async def run_tool(server: Server, request: Request, tool: "ServerTool") -> bytes:
    """Run a tool within the middleware, and encode its result."""
    result: str | StructuredContent | ToolResult
    if server.middleware_stack:
        raw = request.call.params.arguments
        call = MiddlewareCall(
            "tools/call", tool.name, request, raw, request.environment
        )
        result = await call_with_middleware(server.middleware_stack, call, tool)
    else:
        result = await tool.run(request, request.call.params.arguments)
    if request.scope is not None:
        await _wait_for_turn(server, request, result)
    return _encode_tool_result(request, tool, result)


async def _wait_for_turn(server: Server, request: Request, result: Any) -> None:
    """Let others go first, if the client has used up its turn.

    This is for requests that have waited: many of one client may go on together, and to
    encode their results may take long.
    """
    if server.turns.lines:
        account = account_of(request.conversation, request.principal)
        if server.turns.must_wait(account):
            holding = server.ledger.hold(
                account,
                "requests",
                measure(result),
                Priority.REQUEST,
                request.give_up,
            )
            try:
                await server.turns.wait(account)
            finally:
                holding.release()
    request.turn_began = perf_counter()


def _encode_tool_result(
    request: Request,
    tool: "ServerTool",
    result: str | StructuredContent | ToolResult,
) -> bytes:
    revision = request.call.revision
    most = tool.max_result or request.environment.limits.max_result
    if isinstance(result, str):
        # A character takes at least one byte, so a longer text need not be encoded.
        if len(result) <= most:
            encoded = revision.encode_text(result)
            if len(encoded) <= most:
                return encoded
        result = ToolResult([Text(result)])
    elif isinstance(result, StructuredContent):
        encoded = revision.encode_structured(result)
        if len(encoded) <= most:
            return encoded
        result = result.as_tool_result()
    if result.is_error:
        request.outcome = "tool_error"

    def write(result: ToolResult) -> bytes:
        return encode(revision.tool_result(result))

    return truncate_result(result, write, most, tool.label)


async def read_resource(server: Server, request: Request) -> bytes:
    """Read a resource."""
    _require(server, "resources")
    uri = request.call.params.uri
    revision = request.call.revision
    server.limiter.check(request)
    resource = server.find_resource(uri, request.principal)
    if server.middleware_stack:
        call = MiddlewareCall(
            "resources/read", uri, request, b"{}", request.environment
        )
        contents = await read_with_middleware(server.middleware_stack, call, resource)
    else:
        contents = await resource.read(request, uri)
    if request.scope is not None:
        await _wait_for_turn(server, request, contents)

    def write(contents: list[TextContents | BlobContents]) -> bytes:
        shaped = {"contents": revision.shape(contents)}
        return encode(revision.result(shaped, cacheable=True))

    most = request.environment.limits.max_result
    return truncate_result(list(contents), write, most, f"resource {uri}")


async def subscribe(server: Server, request: Request) -> None:
    """Subscribe the client to a resource's updates."""
    uri = request.call.params.uri
    server.find_resource(uri, request.principal)
    server.subscriptions.subscribe(request.conversation, uri)
    await request.conversation.save()


async def unsubscribe(server: Server, request: Request) -> None:
    """Unsubscribe the client from a resource's updates."""
    uri = request.call.params.uri
    server.subscriptions.unsubscribe(request.conversation, uri)
    await request.conversation.save()


async def get_prompt(server: Server, request: Request) -> bytes:
    """Render a prompt."""
    _require(server, "prompts")
    params = request.call.params
    revision = request.call.revision
    prompt = server.prompts.find(params.name, request.principal)
    request.target = prompt.name
    server.limiter.check(request)
    if server.middleware_stack:
        call = MiddlewareCall(
            "prompts/get", prompt.name, request, params.arguments, request.environment
        )
        rendered = await render_with_middleware(server.middleware_stack, call, prompt)
    else:
        rendered = await prompt.render(request, params.arguments)
    if request.scope is not None:
        await _wait_for_turn(server, request, rendered)

    def write(rendered: PromptResult) -> bytes:
        return encode(revision.result(revision.shape(rendered), rendered.meta))

    return truncate_result(
        rendered, write, request.environment.limits.max_result, prompt.label
    )


async def complete(server: Server, request: Request) -> bytes:
    """Complete an argument. Without a completer, there are no completions."""
    params = request.call.params
    revision = request.call.revision
    name = _completed_item(server, request)
    completer = server.find_completer(name, params.argument.name)
    completion = Completion([])
    if completer is not None:
        server.limiter.check(request)
        others = params.context.arguments if params.context is not None else None
        completion = await completer.complete(
            request, params.argument.value, others or {}
        )

    def write(completion: Completion) -> bytes:
        return encode(revision.result({"completion": revision.shape(completion)}))

    most = request.environment.limits.max_result
    return truncate_result(completion, write, most, f"the completion of {name}")


def _completed_item(server: Server, request: Request) -> str:
    """Return the name of the prompt or the URI of the resource to complete."""
    reference = request.call.params.ref
    principal = request.principal
    if isinstance(reference, PromptReference):
        return server.prompts.find(reference.name, principal).name
    uri: str = reference.uri
    template = server.templates.get_for(principal, uri)
    if template is None and server.resources.get_for(principal, uri) is None:
        raise ResourceNotFound(uri)
    return uri


async def set_level(server: Server, request: Request) -> None:
    """Set the minimum level of log messages that the client gets."""
    level = request.call.params.level
    known = sorted(set(request.call.revision.levels.values()))
    if level not in known:
        expected = ", ".join(known)
        raise InvalidParams(
            f"Invalid params: $.params.level: {level!r} is none of {expected}"
        )
    request.conversation.session.log_level = level
    await request.conversation.save()


async def listen(server: Server, request: Request) -> bytes:
    """Notify the client of the changes that it subscribes to, until either side ends.

    Clients of stateless revisions subscribe with this request.
    """
    wanted = request.call.params.notifications
    features = server.features()
    if "prompts" not in features:
        wanted.prompts_list_changed = False
    if "resources" not in features:
        wanted.resources_list_changed = False
        wanted.resource_subscriptions = []
    server.limiter.check(request)
    if server.extensions is None:
        await server.subscriptions.listen(request, wanted)
    else:
        await _listen_to_extensions(server, server.extensions, request, wanted)
    meta = {VENDOR + "subscriptionId": request.call.id}
    return encode(request.call.revision.result({}, meta))


async def _listen_to_extensions(
    server: Server, extensions: "ExtensionPoints", request: Request, wanted: Filter
) -> None:
    """Listen to changes of the server and of its extensions."""
    followed = await extensions.listen(request)
    accepted: Json = {}
    for listening in followed:
        accepted |= listening.accepted
    async with trio.open_nursery() as nursery:

        def follow() -> None:
            for listening in followed:
                nursery.start_soon(listening.run)

        await server.subscriptions.listen(request, wanted, accepted, follow)
        nursery.cancel_scope.cancel()


def answer_by_extension(server: Server, request: Request) -> Awaitable[bytes | None]:
    """Call the handler of a method that an extension has added."""
    assert server.extensions is not None  # or the session would have refused it
    if server.limiter.total:
        server.limiter.check(request)
    return server.extensions.handlers[request.call.method](request)


def _require(server: Server, feature: str) -> None:
    """Raise MethodNotFound if this server does not have a feature."""
    if feature not in server.features():
        reason = f"Server does not support the {feature} capability"
        message = f"{feature.capitalize()} not supported"
        raise MethodNotFound(message, data={"reason": reason})


HANDLERS: dict[str, Handler] = {
    "initialize": describe_server,
    "server/discover": describe_server,
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


# Notifications


def handle_notification(
    server: Server, conversation: Conversation, notice: Notice
) -> None:
    """Act on a notification from the client. Most need no action."""
    if notice.method == "notifications/initialized":
        server.subscriptions.add_session(conversation)
    elif notice.method == "notifications/cancelled":
        _cancel(conversation, notice)


def _cancel(conversation: Conversation, notice: Notice) -> None:
    """Cancel a request. As specified, ignore unknown and malformed ones."""
    try:
        params = protocol_params.decode_params(notice.method, notice.raw)
    except MsgspecError:
        return
    scope = conversation.cancel_scopes.get(params.request_id)
    if scope is None:
        conversation.cancel_elsewhere(params.request_id)
        return
    log.debug(
        "request %r cancelled by the client: %s", params.request_id, params.reason
    )
    scope.cancel()
