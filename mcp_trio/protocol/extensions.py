"""What a server's extensions add to the protocol, as a session sees it.

The revisions' tables of methods are closed. A method that is not in them exists if an
extension of the server has it, and the client has declared that extension.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .jsonrpc import encode
from .params import ClientCapabilities, Params, known_flags
from .types import Json

APPS = "io.modelcontextprotocol/ui"
SKILLS = "io.modelcontextprotocol/skills"
TASKS = "io.modelcontextprotocol/tasks"
APP_MIME_TYPE = "text/html;profile=mcp-app"

# The size of one extension's settings, in bytes. A client whose settings are larger
# counts as one that has not declared the extension.
MAX_SETTINGS = 4096

# How many declarations of clients are kept, and the bytes of each.
MAX_SEEN = 64
MAX_SEEN_BYTES = 1024

_decode_settings = msgspec.json.Decoder(dict[str, Raw]).decode


class ExtensionMethod(Struct, frozen=True, kw_only=True):
    """A method that an extension adds.

    `named_by` is the attribute of `params` that the HTTP header `Mcp-Name` repeats.
    `in_sessions` says whether the revisions that begin with `initialize` have the
    method too, and `needs_declaration` whether the client must have declared the
    extension.
    """

    extension: str
    params: type[Params] = Params
    named_by: str | None = None
    in_sessions: bool = True
    needs_declaration: bool = True


class ExtensionTable:
    """The extensions of one server. Extensions may be added at any time."""

    def __init__(self) -> None:
        self.identifiers: set[str] = set()
        self.methods: dict[str, ExtensionMethod] = {}
        # The params of each method.
        self.params: dict[str, type[Params]] = {}
        # The attribute of those params that `Mcp-Name` repeats, if any.
        self.named_by: dict[str, str] = {}
        # What clients declared lately, as they wrote it, and the extensions in it.
        self._seen: dict[bytes, frozenset[str]] = {}

    def add(self, identifier: str, methods: Mapping[str, ExtensionMethod]) -> None:
        """Add an extension and its methods."""
        self.identifiers.add(identifier)
        self._seen.clear()
        for name, method in methods.items():
            self.methods[name] = method
            self.params[name] = method.params
            if method.named_by is not None:
                self.named_by[name] = method.named_by

    def declares(
        self, capabilities: ClientCapabilities | UnsetType, identifier: str
    ) -> bool:
        """Return whether a client with these capabilities has declared an extension.

        A client declares the same with each request, so what was read is kept.
        """
        if capabilities is UNSET or capabilities.extensions is UNSET:
            return False
        written = bytes(capabilities.extensions)
        found = self._seen.get(written)
        if found is None:
            found = frozenset(self.declared(capabilities))
            if len(written) <= MAX_SEEN_BYTES:
                if len(self._seen) >= MAX_SEEN:
                    self._seen.clear()
                self._seen[written] = found
        return identifier in found

    def declared(self, capabilities: ClientCapabilities | UnsetType) -> dict[str, Json]:
        """Return the client's settings for each extension that it has declared.

        Extensions that the server does not have are left out, and so are settings that
        are not an object.
        """
        if capabilities is UNSET or capabilities.extensions is UNSET:
            return {}
        try:
            given = _decode_settings(capabilities.extensions)
        except msgspec.MsgspecError:  # not an object
            return {}
        found: dict[str, Json] = {}
        for identifier in self.identifiers & given.keys():
            settings = _decode(given[identifier])
            if isinstance(settings, dict):
                found[identifier] = settings
        return found

    def bounded(self, capabilities: ClientCapabilities) -> ClientCapabilities:
        """Return the part of a client's capabilities that a session keeps.

        A session lasts, so it must not keep whatever a client sends.
        """
        capabilities = known_flags(capabilities)
        if capabilities.extensions is UNSET:
            return capabilities
        kept = self.declared(capabilities)
        extensions = Raw(encode(kept)) if kept else UNSET
        return msgspec.structs.replace(capabilities, extensions=extensions)


def renders_apps(settings: Json | None) -> bool:
    """Return whether a client with these settings for apps renders their pages."""
    if settings is None:
        return False
    mime_types = settings.get("mimeTypes")
    return isinstance(mime_types, list) and APP_MIME_TYPE in mime_types


def _decode(settings: Raw) -> Any:
    """Return settings, or None if they are too large."""
    if len(bytes(settings)) > MAX_SETTINGS:
        return None
    try:
        return msgspec.json.decode(settings)
    except (msgspec.MsgspecError, RecursionError):
        return None
