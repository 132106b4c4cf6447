"""Reads a folder of skills.

All files are read at once and kept in memory, so the contents of a file always match
the digest in the skill's entry, even if the folder changes.
"""

import hashlib
import re
from mimetypes import MimeTypes
from pathlib import Path, PurePath
from urllib.parse import quote

from msgspec import Struct

from ...protocol.sanitize import strip_controls
from ...protocol.types import BlobContents, Json, TextContents
from .frontmatter import SkillError, parse_frontmatter

MANIFEST = "SKILL.md"
SCHEME = "skill://"
# The limits of one skill, which every host accepts.
MOST_FILES = 512
MOST_BYTES = 16 * 2**20
MOST_DESCRIPTION = 1024

# Lowercase letters and digits, with single hyphens between.
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")

# Types that some versions of Python do not know.
_TYPES = {
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".sh": "text/x-shellscript",
    ".toml": "application/toml",
    ".ts": "text/x-typescript",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
# Only the types of Python itself, so that the result is the same on all machines.
_KNOWN_TYPES = MimeTypes(filenames=())


class SkillFile(Struct, frozen=True):
    """A file of a skill."""

    name: str
    contents: TextContents | BlobContents
    digest: str
    size: int

    @property
    def uri(self) -> str:
        """Its URI."""
        return self.contents.uri

    @property
    def mime_type(self) -> str:
        """Its media type."""
        return self.contents.mime_type or "application/octet-stream"


class Skill(Struct, frozen=True):
    """A skill: its manifest, and all files in its folder."""

    uri: str
    frontmatter: Json
    files: dict[str, SkillFile]  # by URI
    folders: frozenset[str]  # the URIs of its folder, subfolders and parent folders

    def entry(self) -> Json:
        """Return the entry of the skill in skills/list and skills/get."""
        resources = [
            {"uri": file.uri, "digest": file.digest, "size": file.size}
            for file in self.files.values()
        ]
        return {
            "uri": self.uri,
            "frontmatter": self.frontmatter,
            "resources": resources,
        }


def read_skills(folder: Path) -> list[Skill]:
    """Return the skills in a folder. The folder may also be a skill itself.

    Raises SkillError if one of them is invalid, or if there are none.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise SkillError(folder, "expected a folder of skills, got no such folder")
    tree = _Tree(root)
    found = [tree.skill(path) for path in tree.files if path.name == MANIFEST]
    if not found:
        raise SkillError(
            folder,
            f"expected a {MANIFEST} in this folder or a subfolder, found none; each "
            "skill is a folder with such a file",
        )
    return found


class _Tree:
    """The files in a folder and its subfolders. Each is read when it is needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.files: list[Path] = []
        self._folders: list[Path] = [root]
        self._read: dict[Path, SkillFile] = {}
        self._collect(root, (root,))
        # If the folder is a skill itself, URIs begin with its name.
        is_skill = root / MANIFEST in self.files
        self._base = root.parent if is_skill else root

    def _collect(self, folder: Path, outer: tuple[Path, ...]) -> None:
        """Collect the paths in a folder.

        `outer` are the resolved paths of the folder and its parents.
        """
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") or path.name == "__pycache__":
                continue
            target = self._resolve(path)
            if path.is_dir():
                if target in outer:
                    raise SkillError(
                        path,
                        "expected no loop, got a link to a folder that contains it",
                    )
                self._folders.append(path)
                self._collect(path, (*outer, target))
            elif path.is_file():
                self.files.append(path)
            else:
                raise SkillError(path, "expected a file or a folder")

    def _resolve(self, path: Path) -> Path:
        """Return a path without links. Raises SkillError if it is outside the root."""
        try:
            target = path.resolve()
        except (OSError, RuntimeError):  # links that lead to each other
            raise SkillError(
                path, "expected a link to a file or a folder, got a loop"
            ) from None
        if not target.is_relative_to(self._root):
            raise SkillError(
                path,
                f"expected a link within {self._root}, got one to {target}; copy the "
                "files into the folder",
            )
        return target

    def skill(self, manifest: Path) -> Skill:
        """Return the skill of a manifest. Raises SkillError."""
        folder = manifest.parent
        paths = [path for path in self.files if path.is_relative_to(folder)]
        if len(paths) > MOST_FILES:
            raise SkillError(
                folder,
                f"expected at most {MOST_FILES} files in a skill, got {len(paths)}",
            )
        size = sum(path.stat().st_size for path in paths)
        if size > MOST_BYTES:
            raise SkillError(
                folder,
                f"expected at most {MOST_BYTES:,} bytes in a skill, got {size:,}",
            )
        files = [self._file(path) for path in paths]
        # The folder, its subfolders and its parents.
        folders = [path for path in self._folders if path.is_relative_to(folder)]
        above = [path for path in folder.parents if path.is_relative_to(self._base)]
        folders += [path for path in above if path != self._base]
        return Skill(
            uri=self._uri(manifest),
            frontmatter=self._frontmatter(manifest),
            files={file.uri: file for file in files},
            folders=frozenset(self._uri(path) for path in folders),
        )

    def _file(self, path: Path) -> SkillFile:
        if path not in self._read:
            data = path.read_bytes()
            self._read[path] = SkillFile(
                name=path.name,
                contents=_contents(self._uri(path), path, data),
                digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
                size=len(data),
            )
        return self._read[path]

    def _frontmatter(self, manifest: Path) -> Json:
        """Return the frontmatter of a manifest. Raises SkillError."""
        contents = self._file(manifest).contents
        if not isinstance(contents, TextContents):
            raise SkillError(
                manifest, "expected text in UTF-8 without control characters"
            )
        frontmatter, lines = parse_frontmatter(contents.text, manifest)
        found = _problem(frontmatter, manifest.parent.name)
        if found is not None:
            key, problem = found
            raise SkillError(manifest, problem, lines.get(key, 1))
        return frontmatter

    def _uri(self, path: Path) -> str:
        try:
            return skill_uri(path.relative_to(self._base))
        except UnicodeEncodeError:
            raise SkillError(path, "expected a file name in UTF-8") from None


def skill_uri(path: PurePath) -> str:
    """Return the URI of a file or a folder, given its path in the folder of skills."""
    return SCHEME + "/".join(quote(part, safe="") for part in path.parts)


def _problem(frontmatter: Json, folder_name: str) -> tuple[str, str] | None:
    """Return the key and the description of the first problem, or None if valid."""
    for key in ("name", "description"):
        value = frontmatter.get(key)
        if not isinstance(value, str) or not value.strip():
            return key, f"expected {key} to be a non-empty string, got {value!r}"
    name = frontmatter["name"]
    if not _NAME.fullmatch(name):
        return (
            "name",
            "expected a name of at most 64 lowercase letters, digits and single "
            f"hyphens, got {name!r}",
        )
    if name != folder_name:
        return (
            "name",
            f"expected the name to be that of the folder, {folder_name!r}, got "
            f"{name!r}",
        )
    size = len(frontmatter["description"])
    if size > MOST_DESCRIPTION:
        return (
            "description",
            f"expected a description of at most {MOST_DESCRIPTION} characters, got "
            f"{size}",
        )
    return None


def _contents(uri: str, path: Path, data: bytes) -> TextContents | BlobContents:
    """Return a file's contents: text if that preserves its bytes, or else a blob."""
    suffix = path.suffix.lower()
    mime_type = _TYPES.get(suffix) or _KNOWN_TYPES.guess_type(path.name)[0]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or strip_controls(text) != text:
        mime_type = mime_type or "application/octet-stream"
        return BlobContents(uri, data, mime_type=mime_type)
    return TextContents(uri, text, mime_type=mime_type or "text/plain")
