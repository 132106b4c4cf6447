"""Prompts: functions that clients can list and get."""

from collections.abc import Iterable
from typing import Any

from ...auth.principal import NO_SCOPES, as_scopes
from ...protocol import types as model
from ...protocol.types import Json, PromptMessage, PromptResult, Text
from ..request import Request
from ..schema.signature import AnyFunction
from .feature import Feature, listed_description, listed_name


class ServerPrompt(Feature):
    """A prompt that clients can list and get."""

    listed: model.Prompt

    def __init__(
        self,
        function: AnyFunction,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[model.Icon] | None = None,
        meta: Json | None = None,
        scopes: Iterable[str] = NO_SCOPES,
    ) -> None:
        name = listed_name("prompt", name, function)
        super().__init__(function, "prompt", name, strings=True)
        self.scopes = as_scopes(scopes, "server.prompt(scopes)")
        self.listed = model.Prompt(
            name,
            title=title,
            description=listed_description(description, function),
            icons=icons,
            meta=meta,
            arguments=self._listed_arguments() or None,
        )

    def _listed_arguments(self) -> list[model.PromptArgument]:
        required = self.parameters.schema.get("required", [])
        arguments = []
        for name, schema in self.properties.items():
            argument = model.PromptArgument(
                name,
                description=schema.get("description"),
                required=name in required,
            )
            arguments.append(argument)
        return arguments

    async def render(self, request: Request, raw: bytes) -> PromptResult:
        """Render the prompt with encoded arguments. Raises InvalidArguments."""
        return self.as_result(await self.call(request, self.decode(raw)))

    def as_result(self, value: Any) -> PromptResult:
        """Convert the function's return value to a result."""
        if isinstance(value, PromptResult):
            return value
        items = value if isinstance(value, list) else [value]
        messages = [_message(item) for item in items]
        return PromptResult(messages, description=self.listed.description)


def _message(item: str | model.Content | PromptMessage) -> PromptMessage:
    """Return a message. Text and content become messages of the user."""
    if isinstance(item, PromptMessage):
        return item
    content = Text(item) if isinstance(item, str) else item
    return PromptMessage("user", content)
