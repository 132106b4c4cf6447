"""The methods that a server's extensions add to the protocol.

A method that is not in a revision's table exists if one of the server's extensions has
it and the client has declared that extension.
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

# The maximum size of one extension's settings, in bytes. A declaration with larger
# settings is ignored.
MAX_SETTINGS = 4096

# How many declarations are cached, and the maximum size of each in bytes.
MAX_SEEN = 64
MAX_SEEN_BYTES = 1024

_decode_settings = msgspec.json.Decoder(dict[str, Raw]).decode


class ExtensionMethod(Struct, frozen=True, kw_only=True):
    """A method that an extension adds.

    `named_by` is the attribute of `params` that is repeated in the HTTP header
    `Mcp-Name`. `in_sessions` says whether the method also exists in revisions that
    begin with `initialize`. `needs_declaration` says whether the client must have
    declared the extension.
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
        # The attribute of those params that is repeated in `Mcp-Name`, if any.
        self.named_by: dict[str, str] = {}
        # Cache: an encoded declaration -> the extensions in it.
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

        Clients repeat their declaration with each request, so it is decoded once.
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

        Extensions that the server does not have are left out, and so are declarations
        whose settings are not an object.
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

        Sessions are long-lived, so they must not keep arbitrary data from a client.
        """
        kept = self.declared(capabilities)
        extensions = Raw(encode(kept)) if kept else UNSET
        return msgspec.structs.replace(known_flags(capabilities), extensions=extensions)


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
