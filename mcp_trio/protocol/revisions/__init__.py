"""The revisions that are spoken, and the choice among them."""

from ..errors import UnsupportedVersion
from ..types import Implementation
from .base import Revision as Revision
from .pocket import Pocket
from .r2024_10_07 import R2024_10_07
from .r2024_11_05 import R2024_11_05
from .r2025_03_26 import R2025_03_26
from .r2025_06_18 import R2025_06_18
from .r2025_11_25 import R2025_11_25
from .r2026_07_28 import R2026_07_28

Kinds = tuple[type[Revision], ...]

# Oldest first. A new revision is one file and one name here.
REVISIONS: Kinds = (
    R2024_10_07,
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
)

# Name of a profile -> what a server of that profile speaks, in place of REVISIONS.
PROFILES: dict[str, Kinds] = {"pocket": (Pocket,)}


class Revisions:
    """The revisions that one server speaks."""

    def __init__(
        self,
        server: Implementation,
        instructions: str | None = None,
        kinds: Kinds = REVISIONS,
    ) -> None:
        self.all = [kind(server, instructions) for kind in kinds]
        self.opening = {
            revision.name: revision for revision in self.all if revision.opens
        }
        self.stateless = {
            revision.name: revision for revision in self.all if not revision.opens
        }
        self.newest_opening = next(reversed(self.opening.values()))
        self.names = [revision.name for revision in reversed(self.all)]  # newest first

    def declared(self, requested: str) -> Revision:
        """What a request that says its revision is served by. Raises UnsupportedVersion."""
        if requested not in self.stateless:
            raise UnsupportedVersion(requested, self.names)
        return self.stateless[requested]
