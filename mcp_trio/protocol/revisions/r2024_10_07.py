"""Revision 2024-10-07, the first.

The result of a tool is any JSON value. Lists have no pages. The server can ask the
client for sampling only.
"""

from msgspec import UNSET

from ..errors import InvalidParams, ProtocolError
from ..sanitize import strip_controls
from ..types import Json, ToolResult
from .base import Revision, Table


class R2024_10_07(Revision):
    """Revision 2024-10-07."""

    name = "2024-10-07"
    pages = False
    table = Table().plus("""
        requests: initialize ping logging/setLevel completion/complete
        requests: tools/list tools/call prompts/list prompts/get
        requests: resources/list resources/read
        requests: resources/subscribe resources/unsubscribe
        notifications: notifications/initialized notifications/progress
        server_requests: ping sampling/createMessage
        server_notifications: notifications/progress notifications/message
        server_notifications: notifications/tools/list_changed
        server_notifications: notifications/prompts/list_changed
        server_notifications: notifications/resources/list_changed
        server_notifications: notifications/resources/updated
        capabilities: experimental logging prompts resources tools
        Implementation: name version
        Tool: name description inputSchema
        ToolResult: toolResult
        Text: text
        Image: data mimeType
        Resource: uri name description mimeType
        ResourceTemplate: uriTemplate name description mimeType
        TextContents: uri text mimeType
        BlobContents: uri blob mimeType
        Prompt: name description arguments
        PromptArgument: name description required
        PromptMessage SamplingMessage: role content
        PromptResult: messages description
        Completion: values total hasMore
        initialize: protocolVersion capabilities serverInfo
        notifications/progress: progressToken progress total
        notifications/message: level logger data
        notifications/resources/updated: uri
        sampling/createMessage: messages systemPrompt includeContext
        sampling/createMessage: temperature maxTokens stopSequences metadata
    """)
    levels = Revision.levels | {
        "notice": "info",
        "critical": "error",
        "alert": "error",
        "emergency": "error",
    }

    def tool_result(self, result: ToolResult) -> Json:
        """Return the result of tools/call, which is a single JSON value.

        The value is the structured content. Without structured content, it is the text
        if there is exactly one text block, and otherwise the list of content blocks.
        """
        value = result.structured
        if value is UNSET:
            shaped = self.shape(result.content)
            is_text = len(shaped) == 1 and shaped[0]["type"] == "text"
            value = shaped[0]["text"] if is_text else shaped or None
        return self.result({"toolResult": value}, result.meta)

    def error(self, error: ProtocolError) -> Json:
        """Return an error object. For invalid params, the reason is in `data`."""
        shaped = super().error(error)
        if shaped["code"] == InvalidParams.code:
            reason = strip_controls(error.reason).removeprefix("Invalid params: ")
            shaped["message"] = "Invalid params"
            shaped["data"] = {"reason": reason}
        return shaped
