"""mcp_trio: a minimal Model Context Protocol server on trio."""

from typing import TYPE_CHECKING, Any

from .protocol.errors import (
    InvalidParams,
    MissingClientCapability,
    ProtocolError,
    ResourceNotFound,
    UrlElicitationRequired,
)
from .protocol.model import (
    Annotations,
    Audio,
    BlobContents,
    Completion,
    EmbeddedResource,
    Icon,
    Image,
    PromptMessage,
    PromptResult,
    ResourceLink,
    Text,
    TextContents,
    Tool,
    ToolAnnotations,
    ToolResult,
)
from .server.app import Server
from .server.context import AskFailed, Context, ToolError

if TYPE_CHECKING:
    from .server.ask import Elicit, Elicited, ElicitUrl, Question, Root, Roots, Sample, Sampled

__version__ = "0.1.0"
__all__ = [
    "Annotations",
    "AskFailed",
    "Audio",
    "BlobContents",
    "Completion",
    "Context",
    "Elicit",
    "ElicitUrl",
    "Elicited",
    "EmbeddedResource",
    "Icon",
    "Image",
    "InvalidParams",
    "MissingClientCapability",
    "PromptMessage",
    "PromptResult",
    "ProtocolError",
    "Question",
    "ResourceLink",
    "ResourceNotFound",
    "Root",
    "Roots",
    "Sample",
    "Sampled",
    "Server",
    "Text",
    "TextContents",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "UrlElicitationRequired",
]


def __getattr__(name: str) -> Any:
    """The questions, which most servers do not ask, are imported when they are first named."""
    if name in __all__:
        from .server import ask

        return getattr(ask, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
