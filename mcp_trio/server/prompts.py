"""Prompts, and the completion of their arguments and of URI variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..protocol.model import (
    CONTENT_TYPES,
    Completion,
    Icon,
    Json,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptResult,
    Text,
)
from .context import Context
from .docstrings import parse
from .functions import Function, as_arguments, name_of, only_strings
from .schema import Parameters

if TYPE_CHECKING:
    from .dispatch import Request

MAX_VALUES = 100
"""The most values that a completion may have, as the specification says."""


class ServerPrompt:
    """A prompt that can be listed and filled in."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        meta: Json | None = None,
    ) -> None:
        name = name or name_of(function)
        self._label = f"prompt {name}"
        parameters = Parameters(function, injected=Context)
        only_strings(parameters, self._label)
        self._function = Function(function, parameters)
        required = parameters.schema.get("required", [])
        arguments = [
            PromptArgument(name=key, description=schema.get("description"), required=key in required)
            for key, schema in parameters.schema.get("properties", {}).items()
        ]
        self.listed = Prompt(
            name=name,
            title=title,
            description=description if description is not None else parse(function.__doc__).summary or None,
            arguments=arguments or None,
            icons=icons,
            meta=meta,
        )

    async def fill(self, request: Request, raw: bytes) -> PromptResult:
        """The prompt with these arguments. Raises InvalidArguments."""
        arguments = as_arguments(self._function.parameters, raw, self._label)
        value = await self._function.call(request, arguments)
        if isinstance(value, PromptResult):
            return value
        items = value if isinstance(value, list) else [value]
        return PromptResult([self._message(item) for item in items], description=self.listed.description)

    def _message(self, item: Any) -> PromptMessage:
        if isinstance(item, PromptMessage):
            return item
        if isinstance(item, str):
            return PromptMessage("user", Text(item))
        if isinstance(item, CONTENT_TYPES):
            return PromptMessage("user", item)
        raise TypeError(f"{self._label}: returned {item!r}; str, content, PromptMessage or a list of those is wanted")


class Completer:
    """A function that completes one argument: from what is typed so far, and, if it likes, the other arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = Parameters(function, injected=Context)
        self._names = list(parameters.schema.get("properties", {}))
        if len(self._names) not in (1, 2):
            raise TypeError("a completer takes the value so far, and may take a dict of the other arguments")
        self._function = Function(function, parameters)

    async def complete(self, request: Request, value: str, others: dict[str, str]) -> Completion:
        """What the value may become."""
        arguments = dict(zip(self._names, (value, others), strict=False))
        found = await self._function.call(request, arguments)
        by_hand = isinstance(found, Completion)
        values = found.values if by_hand else list(found)
        if isinstance(found, str) or not all(isinstance(item, str) for item in values):
            raise TypeError(f"a completer returned {found!r}; a list of strings or a Completion is wanted")
        total, more = (found.total, found.has_more) if by_hand else (len(values), False)
        return Completion(values[:MAX_VALUES], total, more or len(values) > MAX_VALUES)
