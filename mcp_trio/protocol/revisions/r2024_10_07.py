"""2024-10-07: the first. A tool's result is any JSON, lists come whole, only the client is asked to sample."""

from msgspec import UNSET

from ..errors import InvalidParams, ProtocolError
from ..sanitize import clean
from ..types import Json, ToolResult
from .base import Revision, Table


class R2024_10_07(Revision):
    name = "2024-10-07"
    pages = False
    table = Table().plus("""
        requests: initialize ping tools/list tools/call prompts/list prompts/get completion/complete logging/setLevel
        requests: resources/list resources/read resources/subscribe resources/unsubscribe
        notifications: notifications/initialized notifications/progress
        asks: ping sampling/createMessage
        tells: notifications/progress notifications/message notifications/resources/updated
        tells: notifications/tools/list_changed notifications/prompts/list_changed notifications/resources/list_changed
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
        PromptMessage: role content
        PromptResult: messages description
        Completion: values total hasMore
        initialize: protocolVersion capabilities serverInfo
        notifications/progress: progressToken progress total
        notifications/message: level logger data
        notifications/resources/updated: uri
        sampling/createMessage: messages systemPrompt includeContext temperature maxTokens stopSequences metadata
    """)
    levels = Revision.levels | {
        "notice": "info",
        "critical": "error",
        "alert": "error",
        "emergency": "error",
    }

    def tool_result(self, result: ToolResult) -> Json:
        """The structured value; else the text, where there is one text alone; else the list of content."""
        value = result.structured
        if value is UNSET:
            shaped = self.shape(result.content)
            is_text = len(shaped) == 1 and shaped[0]["type"] == "text"
            value = shaped[0]["text"] if is_text else shaped or None
        return self.result({"toolResult": value}, result.meta)

    def error(self, error: ProtocolError) -> Json:
        shaped = super().error(error)
        if shaped["code"] == InvalidParams.code:
            reason = clean(error.reason).removeprefix("Invalid params: ")
            return {**shaped, "message": "Invalid params", "data": {"reason": reason}}
        return shaped
