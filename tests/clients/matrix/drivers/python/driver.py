"""The common part of the drivers of clients in Python.

    python DRIVER.py TRANSPORT TARGET REVISION FEATURE...

TRANSPORT is `stdio`, `http`, `sse` or `ws`. TARGET is a URL, or for stdio a command as
a JSON array. For each feature, a line of JSON says what the client saw: `{"feature":
..., "saw": ...}`. If the client does not have the feature, the line has `unsupported`
with the reason instead. If the feature failed, it has `error`.

A driver defines a subclass of `Driver`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

SECONDS = 30
TRIP = {"city": "Oslo", "stops": [{"name": "Bergen", "nights": 2}]}


class Unsupported(Exception):
    """The client does not have the feature. The message names its alternative."""


@dataclass
class Target:
    """The address of the server."""

    transport: str
    url: str
    command: list[str]
    revision: str

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a server on stdio.

        By default, clients pass on only a few variables.
        """
        return dict(os.environ)


@dataclass
class Result:
    """The result of a call."""

    text: str = ""
    is_error: bool = False
    structured: Any = None
    types: list[str] = field(default_factory=list)


class Driver:
    """Uses the features of a client.

    `list_tools` and `call_tool` are enough for most of them.
    """

    no_structured = "gives programs the text only"
    no_types = "does not give programs the content as the server sent it"

    def __init__(self, target: Target) -> None:
        self.target = target

    def connect(self) -> AbstractAsyncContextManager[Any]:
        """Connect to the target, and set up the objects that the methods use."""
        raise NotImplementedError

    async def list_tools(self) -> list[str]:
        raise NotImplementedError

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        raise NotImplementedError

    # Features

    async def tools(self) -> Any:
        return sorted(await self.list_tools())

    async def call(self) -> Any:
        return (await self.call_tool("greet", {"name": "Zoë 🎉"})).text

    async def no_arguments(self) -> Any:
        return (await self.call_tool("revision", {})).text

    async def nested_arguments(self) -> Any:
        arguments = {"trip": TRIP, "tags": ["by train", "cheap"]}
        return (await self.call_tool("plan", arguments)).text

    async def parallel_calls(self) -> Any:
        calls = [self.call_tool("greet", {"name": str(n)}) for n in range(10)]
        return [result.text for result in await asyncio.gather(*calls)]

    async def structured_results(self) -> Any:
        result = await self.call_tool("measure", {"city": "Oslo"})
        if result.structured is None:
            raise Unsupported(self.no_structured)
        return result.structured

    async def content_types(self) -> Any:
        result = await self.call_tool("show", {})
        if not result.types:
            raise Unsupported(self.no_types)
        return result.types

    async def tool_errors(self) -> Any:
        result = await self.call_tool("fail", {})
        return result.text if result.is_error else f"no error: {result.text}"

    async def pagination(self) -> Any:
        return sorted(await self.list_tools())

    # Called without a connection.

    async def reconnect(self) -> Any:
        texts = []
        for name in ("first", "second"):
            driver = type(self)(self.target)
            async with driver.connect():
                texts.append((await driver.call_tool("greet", {"name": name})).text)
        return texts


def main(driver: type[Driver]) -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    transport, target, revision, *features = sys.argv[1:]
    if transport == "stdio":
        place = Target(transport, "", json.loads(target), revision)
    else:
        place = Target(transport, target, [], revision)
    asyncio.run(run(driver(place), features))


async def run(driver: Driver, features: list[str]) -> None:
    connected = [name for name in features if name != "reconnect"]
    try:
        async with driver.connect():
            for name in connected:
                await report(driver, name)
    except Exception:
        # The runner reports the features that are left as failed.
        traceback.print_exc()
    if "reconnect" in features:
        await report(driver, "reconnect")


async def report(driver: Driver, name: str) -> None:
    print(json.dumps({"feature": name, **await outcome(driver, name)}), flush=True)


async def outcome(driver: Driver, name: str) -> dict[str, Any]:
    check: Callable[[], Awaitable[Any]] | None = getattr(driver, name, None)
    if check is None:
        return {"unsupported": "has no such feature"}
    try:
        async with asyncio.timeout(SECONDS):
            return {"saw": await check()}
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except TimeoutError:
        return {"error": f"not done after {SECONDS} s"}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}
