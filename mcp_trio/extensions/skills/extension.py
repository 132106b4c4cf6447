"""Skills: the extension's methods."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from ...protocol.errors import InvalidParams
from ...protocol.extensions import SKILLS
from ...protocol.jsonrpc import encode
from ...protocol.params import ListParams, Params
from ...protocol.types import Json, Resource
from ..base import Extension, ExtensionContext, method
from .resources import (
    SkillResource,
    find_file,
    list_folder,
    numbered_skills,
    skill_resources,
)

IDENTIFIER = SKILLS


class SkillParams(Params, kw_only=True):
    """The params of skills/get."""

    uri: str


class FolderParams(Params, kw_only=True):
    """The params of resources/directory/read."""

    uri: str
    cursor: str | UnsetType = UNSET


class Skills(Extension):
    """Skills, which clients find by their manifests, and read as resources.

    A server with skills declares this extension automatically: see `Server.skills`. The
    skills are the resources of the server that are manifests.
    """

    identifier = IDENTIFIER
    # Clients use it if the server advertises it.
    needs_declaration = False

    def __init__(self) -> None:
        self.settings = {"directoryRead": True}

    @method("skills/list")
    async def list_skills(self, params: ListParams, ctx: ExtensionContext) -> bytes:
        """List the skills, with all of their files."""
        revision = ctx.protocol_revision
        items: Sequence[SkillResource] = skill_resources(self.server)
        next_cursor = None
        if revision.pages:
            numbered = numbered_skills(self.server)
            cursor = params.cursor or None
            items, next_cursor = self.server.paginate(numbered, cursor)
        entries = [item.skill.entry() for item in items]
        return encode(revision.listing({"skills": entries}, next_cursor))

    @method("skills/get")
    async def get_skill(self, params: SkillParams, ctx: ExtensionContext) -> bytes:
        """Return one skill, with all of its files."""
        for item in skill_resources(self.server):
            if item.name == params.uri:
                shaped = {"skill": item.skill.entry()}
                return encode(ctx.protocol_revision.result(shaped, cacheable=True))
        raise InvalidParams(
            "Invalid params: $.params.uri: expected the URI of a skill's SKILL.md, got "
            f"{params.uri}"
        )

    @method("resources/directory/read")
    async def read_folder(self, params: FolderParams, ctx: ExtensionContext) -> Json:
        """List the files and folders directly in a folder of a skill."""
        found = list_folder(self.server, params.uri)
        if found is None:
            is_file = find_file(self.server, params.uri) is not None
            got = f"a file, {params.uri}" if is_file else params.uri
            raise InvalidParams(
                f"Invalid params: $.params.uri: expected a skill's directory, got {got}"
            )
        revision = ctx.protocol_revision
        children: Sequence[Resource] = found
        next_cursor = None
        if revision.pages:
            cursor = params.cursor or None
            numbered = list(enumerate(found, 1))
            children, next_cursor = self.server.paginate(numbered, cursor)
        result: Json = {"resources": revision.shape(list(children))}
        if next_cursor is not None:
            result["nextCursor"] = next_cursor
        return result
