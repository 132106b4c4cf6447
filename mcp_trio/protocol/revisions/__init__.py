"""The supported protocol revisions."""

from ..errors import UnsupportedVersion
from ..extensions import ExtensionTable
from ..types import Implementation
from .base import Revision as Revision
from .pocket import Pocket
from .r2024_10_07 import R2024_10_07
from .r2024_11_05 import R2024_11_05
from .r2025_03_26 import R2025_03_26
from .r2025_06_18 import R2025_06_18
from .r2025_11_25 import R2025_11_25
from .r2026_07_28 import R2026_07_28
from .sessionless import sessionless

Kinds = tuple[type[Revision], ...]

# Oldest first. To add a revision, write its module and list it here.
REVISIONS: Kinds = (
    R2024_10_07,
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
)

# Profile -> the revisions of a server that uses it.
PROFILES: dict[str, Kinds] = {"pocket": (Pocket,)}


class Revisions:
    """The revisions that one server supports."""

    def __init__(
        self,
        server: Implementation,
        instructions: str | None = None,
        kinds: Kinds = REVISIONS,
        extensions: ExtensionTable | None = None,
    ) -> None:
        self.extensions = ExtensionTable() if extensions is None else extensions
        self._server = server
        self._instructions = instructions
        # Oldest first.
        self.all = [kind(server, instructions) for kind in kinds]
        # The revisions with and without `initialize`, by name.
        self.opening: dict[str, Revision] = {}
        self.stateless: dict[str, Revision] = {}
        for revision in self.all:
            family = self.opening if revision.opens else self.stateless
            family[revision.name] = revision
        self.newest_opening = next(reversed(self.opening.values()))
        # Newest first.
        self.names = [revision.name for revision in reversed(self.all)]

    def without_sessions(self) -> "Revisions":
        """Return sessionless variants of the revisions that support them."""
        kinds = tuple(
            sessionless(type(revision))
            for revision in self.all
            if revision.resumes or not revision.opens
        )
        return Revisions(self._server, self._instructions, kinds, self.extensions)

    def serves(self, revision: Revision, method: str) -> bool:
        """Return whether a method exists in a revision, its own or an extension's."""
        if method in revision.requests:
            return True
        added = self.extensions.methods.get(method)
        return added is not None and (added.in_sessions or not revision.opens)

    def declared(self, requested: str) -> Revision:
        """Return the stateless revision with this name. Raises UnsupportedVersion."""
        if requested not in self.stateless:
            raise UnsupportedVersion(requested, self.names)
        return self.stateless[requested]
