"""Reloading a served SPEC when one of its files changes, for `run --reload`.

Pages and folders of skills are read again without reloading the SPEC.

Running requests continue with the functions that they started with. Changes to the
lifespan and to the options of Server(...) need a restart.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import trio

from ..load_spec import UsageError, folder_of, load
from ..server.app import Server
from ..server.registry import Registry

KINDS = ("tools", "resources", "templates", "prompts")


class Reloader:
    """Updates a server when the files of its SPEC change.

    The server must have just been loaded from the SPEC. Without a SPEC, only the pages
    and skills of the server are watched. Raises UsageError if there is no file to
    watch.
    """

    def __init__(self, server: Server, spec: str | None) -> None:
        try:
            import watchfiles
        except ImportError:
            raise UsageError("--reload needs: pip install 'mcp_trio[reload]'") from None
        self._watch_files = watchfiles.awatch
        self._server = server
        self._spec = spec
        self._folder = None if spec is None else folder_of(spec)
        self._updated = UpdatedServer(server)
        self._fixed = _fixed_at_start(server)
        if spec is not None and not self.modules():
            raise UsageError(
                f"--reload: found no file of yours to watch in {spec}; expected a "
                "file, as in run server.py"
            )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Reload whenever a file changes, inside this block."""
        async with trio.open_nursery() as nursery:
            # Files are watched in a thread, which only this event stops at once.
            stop = trio.Event()
            nursery.start_soon(self._watch, self._watch_source_files, stop)
            nursery.start_soon(self._watch, self._watch_trees, stop)
            try:
                yield
            finally:
                stop.set()

    async def _watch(
        self, watch: Callable[[trio.Event], Awaitable[None]], stop: trio.Event
    ) -> None:
        try:
            while not stop.is_set():
                await watch(stop)
        except (OSError, RuntimeError) as error:
            # The number of folders that can be watched is limited.
            _print(f"Reloading stopped: {error}")

    async def _watch_source_files(self, stop: trio.Event) -> None:
        """Reload when a file changes, until there are other folders to watch."""
        folders = self.folders()
        if not folders:
            await stop.wait()
            return
        changes = self._watch_files(
            *folders, watch_filter=self._is_source, recursive=False, stop_event=stop
        )
        async for changed in changes:
            paths = [Path(path) for _, path in changed]
            if any(path.suffix == ".py" for path in paths):
                self.reload_and_print()
            else:
                self.reread_and_print(paths)
            if self.folders() != folders:
                return

    async def _watch_trees(self, stop: trio.Event) -> None:
        """Read a folder again when something in it or its subfolders changes."""
        folders = self._trees()
        if not folders:
            await stop.wait()
            return
        changes = self._watch_files(
            *folders, watch_filter=None, recursive=True, stop_event=stop
        )
        async for changed in changes:
            self.reread_and_print([Path(path) for _, path in changed])
            if self._trees() != folders:
                return

    def reread_and_print(self, paths: Iterable[Path]) -> None:
        """Read files and folders that changed again, and print the outcome."""
        paths = list(paths)
        for watched, read in self._watched().items():
            if not any(path.is_relative_to(watched) for path in paths):
                continue
            try:
                read()
            except (OSError, ValueError) as problem:
                _print(
                    f"Not reloaded: {problem}\nThe previous version is still served."
                )
            else:
                _print(f"Reloaded {watched}")

    def reload_and_print(self) -> None:
        """Reload, and print the changes or the problem."""
        try:
            changed = self.reload()
        except UsageError as problem:
            _print(f"Not reloaded: {problem}\nThe previous version is still served.")
            return
        lists = ", ".join(changed) or "the lists are unchanged"
        _print(f"Reloaded {self._spec}: {lists}")

    def reload(self) -> list[str]:
        """Load the SPEC again, update the server, and return the lists that changed.

        Raises UsageError, and then nothing has changed.
        """
        assert self._spec is not None  # without one, no source file is watched
        fresh = self._load_again()
        if _fixed_at_start(fresh) != self._fixed:
            _print(
                "The lifespan or an option of Server(...) has changed; restart the "
                "server to apply it."
            )
        changed = self._updated.update(fresh)
        return [kind for kind in KINDS if kind in changed]

    def _watched(self) -> dict[Path, Callable[[], object]]:
        """Return the pages and folders that the server serves."""
        return self._updated.watched()

    def _load_again(self) -> Server:
        assert self._spec is not None
        before = self.modules()
        self._forget_modules()
        try:
            return load(self._spec)
        except BaseException:
            self._forget_modules()
            sys.modules.update(before)
            raise

    def modules(self) -> dict[str, ModuleType]:
        """Return the loaded modules that belong to the SPEC."""
        modules = list(sys.modules.items())
        return {name: module for name, module in modules if self._owns(name, module)}

    def _owns(self, name: str, module: ModuleType) -> bool:
        """Return whether a module is in the SPEC's folder and not a library."""
        file = getattr(module, "__file__", None)
        package, _, _ = name.partition(".")
        if file is None or package == "mcp_trio" or self._folder is None:
            return False
        within = os.path.relpath(file, self._folder)
        # Environments are usually in folders such as .venv.
        return not within.startswith(".") and "site-packages" not in within

    def folders(self) -> set[str]:
        """Return the folders of the SPEC's modules and of the files that it reads."""
        folders = set()
        if self._folder is not None:
            folders.add(self._folder)
        for path in self._watched():
            if not path.is_dir():
                folders.add(str(path.parent))
        for module in self.modules().values():
            folders.add(os.path.dirname(str(module.__file__)))
        return folders

    def _trees(self) -> set[str]:
        """Return the folders that are watched with their subfolders."""
        return {str(path) for path in self._watched() if path.is_dir()}

    def _is_source(self, change: object, path: str) -> bool:
        return path.endswith(".py") or Path(path) in self._watched()

    def _forget_modules(self) -> None:
        for name in self.modules():
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.checkcache()


class UpdatedServer:
    """A running server that can be updated, with the servers that it includes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._names_in_file = _names(server)
        self._watched_in_file = set(server.watched)
        self._included = [
            UpdatedServer(inclusion.server) for inclusion in server.inclusions
        ]

    def watched(self) -> dict[Path, Callable[[], object]]:
        """Return the pages and folders that the servers serve."""
        found = dict(self._server.watched)
        for included in self._included:
            found.update(included.watched())
        return found

    def update(self, fresh: Server) -> set[str]:
        """Update the server from a newly loaded one. Returns the lists that changed."""
        changed: set[str] = set()
        if _inclusions(fresh) == _inclusions(self._server):
            pairs = zip(self._included, fresh.inclusions, strict=True)
            for included, inclusion in pairs:
                changed |= included.update(inclusion.server)
        names_before = self._names_in_file
        self._names_in_file = _names(fresh)
        for kind in KINDS:
            registry = getattr(self._server, kind)
            if _update(registry, getattr(fresh, kind), names_before):
                changed.add(kind)
        self._server.refresh_call_hooks()
        self._update_watched(fresh)
        self._server.use_completers(fresh.completers)
        # Make the object in the reloaded module behave as the running server.
        fresh.__dict__ = self._server.__dict__
        return changed

    def _update_watched(self, fresh: Server) -> None:
        """Watch the files of the SPEC, and those added to the running server."""
        for path in self._watched_in_file:
            del self._server.watched[path]
        self._watched_in_file = set(fresh.watched)
        self._server.watched.update(fresh.watched)


def _update(
    registry: Registry[Any], fresh: Registry[Any], names_before: set[str]
) -> bool:
    """Update a registry from a newly loaded one. Returns whether its list changed.

    Features that were added while the server was running are kept.
    """
    items = _direct_features(fresh)
    served = _direct_features(registry)
    for item in served:
        if item.name not in names_before and item.name not in fresh:
            items.append(item)
    if _listing(items) == _listing(served):
        for item in items:
            registry.replace(item)
        return False
    for item in served:
        registry.remove(item.name)
    for item in items:
        registry.add(item)
    return True


def _direct_features(registry: Registry[Any]) -> list[Any]:
    """Return the features that do not come from an included server."""
    return [item for item in registry.values() if item.original is None]


def _inclusions(server: Server) -> list[tuple[str, str]]:
    """Return the names and prefixes of the servers that a server includes."""
    return [
        (inclusion.server.info.name, inclusion.prefix)
        for inclusion in server.inclusions
    ]


def _listing(items: Any) -> list[tuple[Any, Any]]:
    """Return the part of the items that clients see."""
    return [(item.listed, item.scopes) for item in items]


def _names(server: Server) -> set[str]:
    names: set[str] = set()
    for kind in KINDS:
        names.update(item.name for item in _direct_features(getattr(server, kind)))
    return names


def _fixed_at_start(server: Server) -> tuple[Any, ...]:
    """Return the settings that cannot change while the server is running."""
    return (
        server.info,
        server.instructions,
        server.access is None,
        server.limits,
        server.grace,
        server.extensions is None or server.extensions.identifiers,
        _lifespan_code(server),
        _inclusions(server),
        [_fixed_at_start(inclusion.server) for inclusion in server.inclusions],
    )


def _lifespan_code(server: Server) -> tuple[Any, ...] | None:
    """Return the code of a lifespan, without its line numbers."""
    # asynccontextmanager wraps the user's function.
    lifespan = inspect.unwrap(getattr(server._lifespan, "func", server._lifespan))
    code = getattr(lifespan, "__code__", None)
    if code is None:
        return None
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    return (code.co_code, code.co_names, constants)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
