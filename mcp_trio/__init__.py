"""mcp_trio: a minimal Model Context Protocol server on trio."""

from typing import TYPE_CHECKING

from .auth.access import Access as Access
from .auth.principal import Principal as Principal
from .protocol.errors import InvalidParams as InvalidParams
from .protocol.errors import MissingClientCapability as MissingClientCapability
from .protocol.errors import ProtocolError as ProtocolError
from .protocol.errors import ResourceNotFound as ResourceNotFound
from .protocol.errors import UrlElicitationRequired as UrlElicitationRequired
from .protocol.types import Annotations as Annotations
from .protocol.types import Audio as Audio
from .protocol.types import BlobContents as BlobContents
from .protocol.types import Completion as Completion
from .protocol.types import EmbeddedResource as EmbeddedResource
from .protocol.types import Icon as Icon
from .protocol.types import Image as Image
from .protocol.types import PromptMessage as PromptMessage
from .protocol.types import PromptResult as PromptResult
from .protocol.types import ResourceLink as ResourceLink
from .protocol.types import SamplingMessage as SamplingMessage
from .protocol.types import Text as Text
from .protocol.types import TextContents as TextContents
from .protocol.types import Tool as Tool
from .protocol.types import ToolAnnotations as ToolAnnotations
from .protocol.types import ToolResult as ToolResult
from .protocol.types import ToolUse as ToolUse
from .protocol.types import ToolUseResult as ToolUseResult
from .serve import Server as Server
from .server.context import ConnectedClient as ConnectedClient
from .server.context import Context as Context
from .server.exceptions import AskFailed as AskFailed
from .server.exceptions import ToolError as ToolError
from .server.headers import Headers as Headers
from .server.limits import Limits as Limits

if TYPE_CHECKING:
    from .auth.jwt import jwt as jwt
    from .auth.token_file import token_file as token_file
    from .server.client_requests import Elicit as Elicit
    from .server.client_requests import Elicited as Elicited
    from .server.client_requests import ElicitUrl as ElicitUrl
    from .server.client_requests import Question as Question
    from .server.client_requests import Root as Root
    from .server.client_requests import Roots as Roots
    from .server.client_requests import Sample as Sample
    from .server.middleware import MiddlewareCall as MiddlewareCall
    from .server.middleware import Proceed as Proceed
    from .server.sampling import Sampled as Sampled

__version__ = "0.2.0"

__all__ = [
    "Access",
    "Annotations",
    "AskFailed",
    "Audio",
    "BlobContents",
    "Completion",
    "ConnectedClient",
    "Context",
    "Elicit",
    "ElicitUrl",
    "Elicited",
    "EmbeddedResource",
    "Headers",
    "Icon",
    "Image",
    "InvalidParams",
    "Limits",
    "MiddlewareCall",
    "MissingClientCapability",
    "Principal",
    "Proceed",
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
    "SamplingMessage",
    "Server",
    "Text",
    "TextContents",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "ToolUseResult",
    "UrlElicitationRequired",
    "jwt",
    "token_file",
]

# Public names that most servers do not use -> their modules. They are imported when
# they are first used.
_DEFERRED = {
    "Elicit": "server.client_requests",
    "ElicitUrl": "server.client_requests",
    "Elicited": "server.client_requests",
    "Question": "server.client_requests",
    "Root": "server.client_requests",
    "Roots": "server.client_requests",
    "Sample": "server.client_requests",
    "Sampled": "server.sampling",
    "MiddlewareCall": "server.middleware",
    "Proceed": "server.middleware",
    "jwt": "auth.jwt",
    "token_file": "auth.token_file",
}

# Type checkers must not see this function: to them, every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a deferred name when it is first used."""
        if name not in _DEFERRED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(f".{_DEFERRED[name]}", __name__)
        return getattr(module, name)
