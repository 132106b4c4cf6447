"""mcp_trio: a minimal Model Context Protocol server on trio."""

import typing

from .protocol.errors import InvalidParams as InvalidParams
from .protocol.errors import MissingClientCapability as MissingClientCapability
from .protocol.errors import ProtocolError as ProtocolError
from .protocol.errors import ResourceNotFound as ResourceNotFound
from .protocol.errors import UrlElicitationRequired as UrlElicitationRequired
from .protocol.model import Annotations as Annotations
from .protocol.model import Audio as Audio
from .protocol.model import BlobContents as BlobContents
from .protocol.model import Completion as Completion
from .protocol.model import EmbeddedResource as EmbeddedResource
from .protocol.model import Icon as Icon
from .protocol.model import Image as Image
from .protocol.model import PromptMessage as PromptMessage
from .protocol.model import PromptResult as PromptResult
from .protocol.model import ResourceLink as ResourceLink
from .protocol.model import Text as Text
from .protocol.model import TextContents as TextContents
from .protocol.model import Tool as Tool
from .protocol.model import ToolAnnotations as ToolAnnotations
from .protocol.model import ToolResult as ToolResult
from .server.access import Access as Access
from .server.access import Principal as Principal
from .server.app import Server as Server
from .server.context import AskFailed as AskFailed
from .server.context import Context as Context
from .server.context import ToolError as ToolError
from .server.limits import Limits as Limits

if typing.TYPE_CHECKING:
    from .server.ask import Elicit as Elicit
    from .server.ask import Elicited as Elicited
    from .server.ask import ElicitUrl as ElicitUrl
    from .server.ask import Question as Question
    from .server.ask import Root as Root
    from .server.ask import Roots as Roots
    from .server.ask import Sample as Sample
    from .server.ask import Sampled as Sampled
    from .server.jwts import jwt as jwt
    from .server.tokens import token_file as token_file

__version__ = "0.1.0"

# What most servers do without is imported, from these rooms of the server's, when it is first named.
_LATER = {
    **dict.fromkeys(("Elicit", "ElicitUrl", "Elicited", "Question", "Root", "Roots", "Sample", "Sampled"), "ask"),
    "jwt": "jwts",
    "token_file": "tokens",
}
# Public is every class that stands here.
__all__ = [*_LATER, *(name for name, thing in globals().items() if isinstance(thing, type))]


def __getattr__(name: str) -> typing.Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f".server.{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
