"""Tools: functions that clients can list and call."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from ...auth.principal import NO_SCOPES, as_scopes
from ...protocol import types as model
from ...protocol.mirrored_headers import mirrors
from ...protocol.types import CONTENT_TYPES, Json, StructuredContent, Text, ToolResult
from ..background import TaskOptions
from ..limits import check_limits, check_seconds, read_rate
from ..request import Request
from ..schema.encode import encode_value
from ..schema.signature import AnyFunction, Returned
from ..truncate import too_large
from .feature import Feature, listed_description, listed_name

_NAME = r"[A-Za-z0-9_.-]{1,128}"


class ServerTool(Feature):
    """A tool that clients can list and call."""

    listed: model.Tool
    # The hooks of extensions that wrap calls of this tool.
    call_hooks: tuple[Callable[..., Awaitable[bytes]], ...] = ()

    def __init__(
        self,
        function: AnyFunction,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: model.ToolAnnotations | None = None,
        icons: list[model.Icon] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Json | None = None,
        timeout: float | None = None,
        rate: str | None = None,
        max_in_flight: int | None = None,
        max_result: int | None = None,
        scopes: Iterable[str] = NO_SCOPES,
        task: TaskOptions | None = None,
    ) -> None:
        check_limits(
            "server.tool",
            timeout=timeout,
            rate=rate,
            max_in_flight=max_in_flight,
            max_result=max_result,
        )
        name = listed_name("tool", name, function)
        check_tool_name(name)
        super().__init__(function, "tool", name, input_schema=input_schema)
        self._returned = Returned(
            function, output_schema=output_schema, content=(*CONTENT_TYPES, ToolResult)
        )
        self.timeout = timeout
        self.rate = read_rate(rate) if rate else None
        self.max_in_flight = max_in_flight
        self.max_result = max_result
        self.is_limited = rate is not None or max_in_flight is not None
        self.scopes = as_scopes(scopes, "server.tool(scopes)")
        self.task = task
        self.listed = model.Tool(
            name,
            title=title,
            description=listed_description(description, function),
            annotations=annotations,
            icons=icons,
            input_schema=self.parameters.schema,
            output_schema=self._returned.schema,
            meta=meta,
        )
        # The HTTP headers that repeat arguments.
        self.mirrored_arguments = tuple(mirrors(self.listed.input_schema))

    async def run(
        self, request: Request, raw: bytes
    ) -> str | StructuredContent | ToolResult:
        """Call the tool with encoded arguments. Raises InvalidArguments.

        Plain text and structured content are not wrapped in a ToolResult.
        """
        value = await self.call(request, self.decode(raw))
        if type(value) is str and self._returned.schema is None:
            return value
        return self._short_result(value, self.largest_result(request))

    def largest_result(self, request: Request) -> int:
        """Return the maximum size of a result, in bytes."""
        return self.max_result or request.environment.limits.max_result

    def as_result(self, value: Any, most: int) -> ToolResult:
        """Convert the function's return value to a result.

        Raises ToolError if its structured content is larger than `most` bytes.
        """
        result = self._short_result(value, most)
        if isinstance(result, StructuredContent):
            return result.as_tool_result()
        return result

    def _short_result(self, value: Any, most: int) -> StructuredContent | ToolResult:
        if isinstance(value, ToolResult):
            return self._checked(value, most)
        if self._returned.schema is None:
            content = _content(value, self._returned.is_content)
            if content is not None:
                return ToolResult(content)
        encoded = self._returned.encode(value)
        if len(encoded) > most:
            raise too_large(self.label, len(encoded), most)
        return StructuredContent(encoded, self._is_wrapped(encoded))

    def _checked(self, result: ToolResult, most: int) -> ToolResult:
        """Check the structured content of a ToolResult that the function returned.

        An error result need not match the output schema.
        """
        if result.structured is msgspec.UNSET:
            if self._returned.schema is not None and not result.is_error:
                raise ValueError(
                    f"{self.label}: expected structured content, because the tool has "
                    "an output schema, got a ToolResult without it"
                )
            return result
        if result.is_error:
            encoded = encode_value(result.structured)
        else:
            encoded = self._returned.encode(result.structured)
        if len(encoded) > most:
            raise too_large(self.label, len(encoded), most)
        return msgspec.structs.replace(
            result,
            structured=msgspec.json.decode(encoded),
            wrapped=self._is_wrapped(encoded),
        )

    def _is_wrapped(self, encoded: bytes) -> bool:
        """Return whether some revisions have to wrap this value in an object."""
        if self._returned.schema is None:
            return not encoded.startswith(b"{")
        return not self._returned.is_object


def check_tool_name(name: str) -> None:
    """Raise ValueError unless this is a valid tool name."""
    if not re.fullmatch(_NAME, name):
        raise ValueError(
            "server.tool(name): expected 1 to 128 characters, each of "
            f"A-Z a-z 0-9 _ - ., got {name!r}"
        )


def task_options(
    *,
    task: str | None,
    ttl: float | None,
    poll_interval: float | None,
    retry: bool,
    manual_start: bool,
) -> TaskOptions | None:
    """Return the task options of a tool, or None if `task` is None."""
    if task is None:
        for name, given in (
            ("ttl", ttl),
            ("poll_interval", poll_interval),
            ("retry", retry),
            ("manual_start", manual_start),
        ):
            if given not in (None, False):
                raise TypeError(
                    f"server.tool({name}={given!r}): this option is for tasks; add "
                    "task='optional' or task='required'"
                )
        return None
    if task not in ("optional", "required"):
        raise ValueError(
            f"server.tool(task): expected 'optional' or 'required', got {task!r}"
        )
    check_seconds(ttl, "server.tool(ttl)")
    check_seconds(poll_interval, "server.tool(poll_interval)")
    if retry and manual_start:
        raise ValueError(
            "server.tool: expected retry=True or manual_start=True, got both; a task "
            "that its function has started cannot be retried"
        )
    return TaskOptions(task == "required", ttl, poll_interval, retry, manual_start)


def app_meta(
    meta: Json | None, ui: str | None, visibility: Iterable[str] | None
) -> Json:
    """Return a tool's `_meta`, with the settings for its app."""
    if meta is not None and "ui" in meta:
        raise ValueError(
            "server.tool(meta): the key 'ui' is set by ui= and visibility=; remove it "
            "from meta"
        )
    described: Json = {}
    if ui is not None:
        if not is_page_uri(ui):
            raise ValueError(
                f"server.tool(ui): expected a URI such as 'ui://clock/main', got {ui!r}"
            )
        described["resourceUri"] = ui
    if visibility is not None:
        described["visibility"] = _checked_visibility(visibility)
    return {**(meta or {}), "ui": described}


def is_page_uri(value: object) -> bool:
    """Return whether a value is a valid URI for a page."""
    if not isinstance(value, str):
        return False
    return re.fullmatch(r"ui://[^{}]+", value) is not None


def _checked_visibility(visibility: Iterable[str]) -> list[str]:
    given = [visibility] if isinstance(visibility, str) else list(visibility)
    if not given or not {"model", "app"}.issuperset(given):
        raise ValueError(
            "server.tool(visibility): expected 'model', 'app' or both, got "
            f"{visibility!r}"
        )
    return list(dict.fromkeys(given))


def _content(value: Any, is_content: bool) -> list[model.Content] | None:
    """Convert a value to content blocks. Returns None if it is not text or content.

    None becomes an empty list, and so does an empty list if `is_content`.
    """
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    if not items and not is_content:
        return None
    blocks: list[model.Content] = []
    for item in items:
        if isinstance(item, str):
            blocks.append(Text(item))
        elif isinstance(item, CONTENT_TYPES):
            blocks.append(item)
        else:
            return None
    return blocks
