"""TODO"""

from typing import Any

from ...protocol import types as model
from ...protocol.types import (
    PromptMessage,
    PromptResult,
    Text,
)
from ..request import Request
from ..schema.signature import AnyFunction
from .feature import Feature, described


class ServerPrompt(Feature):
    """A prompt that can be listed and filled in."""

    def __init__(self, function: AnyFunction, **listed: Any) -> None:
        listed = described(model.Prompt, function, **listed)
        super().__init__(function, "prompt", listed["name"])
        self.must_take_strings()
        required = self.parameters.schema.get("required", [])
        arguments = [
            model.PromptArgument(
                key, description=taken.get("description"), required=key in required
            )
            for key, taken in self.properties.items()
        ]
        self.listed = model.Prompt(**listed, arguments=arguments or None)

    async def fill(self, request: Request, raw: bytes) -> PromptResult:
        """The prompt with these arguments. Raises InvalidArguments."""
        value = await self.call(request, self.parameters.decode(raw))
        if isinstance(value, PromptResult):
            return value
        items = value if isinstance(value, list) else [value]
        said = [Text(item) if isinstance(item, str) else item for item in items]
        messages = [
            item if isinstance(item, PromptMessage) else PromptMessage("user", item)
            for item in said
        ]
        return PromptResult(messages, description=self.listed.description)
