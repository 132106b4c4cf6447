"""Prompts, and the completion of their arguments and of URI variables."""

from __future__ import annotations

from typing import Any

from ..protocol.model import CONTENT_TYPES, Completion, Prompt, PromptArgument, PromptMessage, PromptResult, Text
from .dispatch import Request
from .functions import Called, Function, described

MAX_VALUES = 100
"""The most values that a completion may have, as the specification says."""


class ServerPrompt(Function):
    """A prompt that can be listed and filled in."""

    def __init__(self, function: Called, **listed: Any) -> None:
        listed = described(function, **listed)
        super().__init__(function, "prompt", listed["name"])
        self.must_take_strings()
        required = self.parameters.schema.get("required", [])
        arguments = [
            PromptArgument(key, description=schema.get("description"), required=key in required)
            for key, schema in self.properties.items()
        ]
        self.listed = Prompt(**listed, arguments=arguments or None)

    async def fill(self, request: Request, raw: bytes) -> PromptResult:
        """The prompt with these arguments. Raises InvalidArguments."""
        value = await self.call(request, self.arguments(raw))
        if isinstance(value, PromptResult):
            return value
        items = value if isinstance(value, list) else [value]
        return PromptResult([self._message(item) for item in items], description=self.listed.description)

    def _message(self, item: Any) -> PromptMessage:
        if isinstance(item, PromptMessage):
            return item
        if not isinstance(item, (str, *CONTENT_TYPES)):
            wanted = "str, content, PromptMessage or a list of those is wanted"
            raise TypeError(f"{self.label}: returned {item!r}; {wanted}")
        return PromptMessage("user", Text(item) if isinstance(item, str) else item)


class Completer(Function):
    """A function that completes one argument: from what is typed so far, and, if it likes, the other arguments."""

    def __init__(self, function: Called, name: str) -> None:
        super().__init__(function, "complete", name)
        if len(self.properties) not in (1, 2):
            raise TypeError("a completer takes the value so far, and may take a dict of the other arguments")

    async def complete(self, request: Request, value: str, others: dict[str, str]) -> Completion:
        """What the value may become."""
        found = await self.call(request, dict(zip(self.properties, (value, others), strict=False)))
        by_hand = isinstance(found, Completion)
        values = found.values if by_hand else list(found)
        if isinstance(found, str) or not all(isinstance(item, str) for item in values):
            raise TypeError(f"a completer returned {found!r}; a list of strings or a Completion is wanted")
        total, more = (found.total, found.has_more) if by_hand else (len(values), False)
        return Completion(values[:MAX_VALUES], total, more or len(values) > MAX_VALUES)
