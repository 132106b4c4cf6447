"""What `--reload` does: when a file changes, the SPEC is loaded afresh, and the running server offers what it says now.

What runs meanwhile goes on with the functions that it was begun with. The lifespan and the options of Server(...) stay
as they were at the start.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import CodeType, ModuleType
from typing import Any

import trio

from ..load_spec import UsageError, folder_of, load
from ..server.app import Server
from ..server.registry import Registry

KINDS = ("tools", "resources", "templates", "prompts")


class Reloader:
    """Keeps a server that was just loaded from a SPEC as the SPEC's files say. Raises UsageError: there is no watching."""

    def __init__(self, server: Server, spec: str) -> None:
        try:
            import watchfiles
        except ImportError:
            raise UsageError(
                "--reload watches files by watchfiles, which is missing: pip install 'mcp_trio[reload]'"
            ) from None
        self._changes = watchfiles.awatch
        self._server, self._spec, self._folder = server, spec, folder_of(spec)
        self._from_file = _names(server)
        self._at_start = _at_start(server)
        if not self._modules():
            raise UsageError(
                f"--reload has nothing of yours to watch in {spec}; it wants a file, as in run server.py"
            )

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """While it is entered, reload whenever a file changes."""
        async with trio.open_nursery() as nursery:
            stop = (
                trio.Event()
            )  # seen by the thread that watches, which a cancellation would wait for
            nursery.start_soon(self._watch, stop)
            try:
                yield
            finally:
                stop.set()

    async def _watch(self, stop: trio.Event) -> None:
        try:
            while not stop.is_set():
                folders = self._folders()
                async for _ in self._changes(
                    *folders, watch_filter=_is_source, recursive=False, stop_event=stop
                ):
                    self._reload_and_say()
                    if self._folders() != folders:
                        break
        except (
            OSError,
            RuntimeError,
        ) as error:  # there are only so many folders that a system watches
            _say(f"Nothing is reloaded any more: {error}")

    def _reload_and_say(self) -> None:
        try:
            changed = self.reload()
        except UsageError as problem:
            _say(f"Not reloaded: {problem}\nWhat was served before goes on.")
        else:
            _say(
                f"Reloaded {self._spec}: {', '.join(changed) or 'the lists are the same'}"
            )

    def reload(self) -> list[str]:
        """Load the SPEC afresh and take over what it offers; the lists that have changed. Raises UsageError: none has."""
        before = self._modules()
        self._forget()
        try:
            fresh = load(self._spec)
        except BaseException:
            self._forget()
            sys.modules.update(before)
            raise
        if _at_start(fresh) != self._at_start:
            _say(
                "The lifespan or an option of Server(...) has changed: that takes effect with the next start."
            )
        known, self._from_file = self._from_file, _names(fresh)
        changed = [
            kind
            for kind in KINDS
            if _take_over(getattr(self._server, kind), getattr(fresh, kind), known)
        ]
        self._server.completers.clear()
        self._server.completers.update(fresh.completers)
        fresh.__dict__ = (
            self._server.__dict__
        )  # what the file calls its server is the one that runs
        return changed

    def _modules(self) -> dict[str, ModuleType]:
        """The modules that lie in the SPEC's folder, and neither in an environment there nor in this package."""
        found = {}
        for name, module in list(sys.modules.items()):
            within = (
                os.path.relpath(file, self._folder)
                if (file := getattr(module, "__file__", None))
                else ".."
            )
            if (
                not within.startswith(".")
                and "site-packages" not in within
                and name.partition(".")[0] != "mcp_trio"
            ):
                found[name] = module
        return found

    def _folders(self) -> set[str]:
        return {self._folder} | {
            os.path.dirname(str(module.__file__)) for module in self._modules().values()
        }

    def _forget(self) -> None:
        for name in self._modules():
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.checkcache()


def _take_over(held: Registry[Any], fresh: Registry[Any], from_file: set[str]) -> bool:
    """Hold what is fresh, and of the rest what the file never had, as it came later; whether the list is another."""
    later = [
        item
        for name, item in held.items()
        if name not in from_file and name not in fresh
    ]
    items = [*fresh.values(), *later]
    if [(item.listed, item.scopes) for item in items] == [
        (item.listed, item.scopes) for item in held.values()
    ]:
        for item in items:
            item.number = held[item.name].number
            held[item.name] = item
        return False
    for name in list(held):
        held.remove(name)
    for item in items:
        held.add(item)
    return True


def _names(server: Server) -> set[str]:
    return {name for kind in KINDS for name in getattr(server, kind)}


def _at_start(server: Server) -> tuple[Any, ...]:
    """What holds from the start on: some options, and what the lifespan does."""
    lifespan = inspect.unwrap(getattr(server._lifespan, "func", server._lifespan))
    code = getattr(lifespan, "__code__", None)
    does = code and (
        code.co_code,
        code.co_names,
        [each for each in code.co_consts if not isinstance(each, CodeType)],
    )
    return (
        server.info,
        server.instructions,
        server.access is None,
        server.limits,
        server.grace,
        does,
    )


def _is_source(change: object, path: str) -> bool:
    return path.endswith(".py")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
