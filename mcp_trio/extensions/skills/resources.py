"""The resources of skills.

Manifests are listed as resources. All other files share one resource template, because
a skill may have hundreds of them.
"""

from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from ...protocol.errors import ResourceNotFound
from ...protocol.types import BlobContents, Resource, TextContents
from ...server.app import Server
from ...server.features.resources import ServerResource
from ...server.features.uri_template import UriTemplate
from ...server.include import without_stand_ins
from .folder import SCHEME, Skill, SkillFile, read_skills, skill_uri

FILES = SCHEME + "{+path}"
FOLDER_TYPE = "inode/directory"


class SkillResource(ServerResource):
    """The manifest of a skill."""

    def __init__(self, skill: Skill, folder: Path) -> None:
        self.skill = skill
        self.folder = folder
        manifest = skill.files[skill.uri]

        async def read_manifest() -> TextContents | BlobContents:
            return manifest.contents

        super().__init__(
            skill.uri,
            read_manifest,
            name=skill.frontmatter["name"],
            description=skill.frontmatter["description"],
            mime_type=manifest.mime_type,
            size=manifest.size,
        )


class SkillFiles(ServerResource):
    """All files of the skills of a server and of included servers."""

    # A server that includes this server adds its own template.
    is_includable = False

    def __init__(self, server: Server[Any]) -> None:
        async def read_file(path: str) -> TextContents | BlobContents:
            uri = skill_uri(PurePosixPath(path))
            file = find_file(server, uri)
            if file is None:
                raise ResourceNotFound(uri)
            return file.contents

        super().__init__(
            FILES,
            read_file,
            name="skill-files",
            description="The files of the server's skills.",
        )
        self.template = _SkillUris(server)


class _SkillUris(UriTemplate):
    """Matches the URIs of existing files."""

    def __init__(self, server: Server[Any]) -> None:
        super().__init__(FILES)
        self._server = server

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the path of a file, or None if it does not exist."""
        variables = super().match(uri)
        if variables is None:
            return None
        served = skill_uri(PurePosixPath(variables["path"]))
        return variables if find_file(self._server, served) else None


def skill_resources(server: Server[Any]) -> list[SkillResource]:
    """Return the skills of a server, and of the servers that it includes."""
    return [skill for _, skill in numbered_skills(server)]


def numbered_skills(server: Server[Any]) -> list[tuple[int, SkillResource]]:
    """Return the skills of a server, each with its number in this server."""
    skills = []
    for item in list(server.resources.values()):
        skill = without_stand_ins(item)
        if isinstance(skill, SkillResource):
            skills.append((item.number, skill))
    return skills


def find_file(server: Server[Any], uri: str) -> SkillFile | None:
    """Return the file with this URI, or None."""
    for item in skill_resources(server):
        if uri in item.skill.files:
            return item.skill.files[uri]
    return None


def list_folder(server: Server[Any], uri: str) -> list[Resource] | None:
    """Return the children of a folder, or None if it does not exist."""
    start = f"{uri}/"
    children: dict[str, Resource] = {}
    is_folder = False
    for item in skill_resources(server):
        skill = item.skill
        is_folder = is_folder or uri in skill.folders
        for file in skill.files.values():
            if file.uri.startswith(start) and "/" not in file.uri[len(start) :]:
                children[file.uri] = _listed_file(server, file)
        for folder in skill.folders:
            if folder.startswith(start) and "/" not in folder[len(start) :]:
                name = unquote(folder[len(start) :])
                children[folder] = Resource(folder, name, mime_type=FOLDER_TYPE)
    if not children and not is_folder:
        return None
    return [children[child] for child in sorted(children)]


def _listed_file(server: Server[Any], file: SkillFile) -> Resource:
    """Return the entry of a file in a list."""
    item = server.resources.get(file.uri)
    if item is not None and isinstance(item.listed, Resource):
        return item.listed
    return Resource(file.uri, file.name, mime_type=file.mime_type, size=file.size)


def add_folder(server: Server[Any], folder: Path) -> None:
    """Serve the skills in a folder. Raises SkillError."""
    root = folder.resolve()
    for skill in read_skills(folder):
        server.resources.add(SkillResource(skill, root))
    server.watched[root] = partial(read_folder_again, server, root)


def add_skill_files(server: Server[Any]) -> None:
    """Add the template for the files of skills, unless it exists."""
    if FILES not in server.templates:
        server.templates.add(SkillFiles(server))


def read_folder_again(server: Server[Any], root: Path) -> None:
    """Serve the current skills of a folder.

    If this raises SkillError, nothing has changed.
    """
    fresh = {skill.uri: SkillResource(skill, root) for skill in read_skills(root)}
    held = {item.name: item for item in skill_resources(server) if item.folder == root}
    for uri in held.keys() - fresh.keys():
        server.remove_resource(uri)
    for uri, item in fresh.items():
        before = held.get(uri)
        if before is None:
            server.resources.add(item)
        elif before.skill != item.skill:
            _replace(server, before, item)


def _replace(server: Server[Any], before: SkillResource, item: SkillResource) -> None:
    """Replace a skill that has changed, and notify the subscribers of its files."""
    if before.listed == item.listed:
        # Keep the entry and its number, so that cursors remain valid.
        server.resources.replace(item)
    else:
        server.resources.remove(item.name)
        server.resources.add(item)
    files = before.skill.files | item.skill.files
    for uri in files:
        if before.skill.files.get(uri) != item.skill.files.get(uri):
            server.resource_updated(uri)
