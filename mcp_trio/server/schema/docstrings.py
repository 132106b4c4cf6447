"""Parses the descriptions of parameters in Google, NumPy and Sphinx docstrings."""

import inspect
import re
from typing import NamedTuple

# The titles of sections: in a group if they describe parameters, and others.
_SECTION = (
    "^(?:"
    "(args|arguments|parameters|params"
    "|keyword args|keyword arguments|other parameters|attributes)"
    "|returns?|yields?|raises?|receives|warns|warnings?"
    "|examples?|notes?|references|see also|todo|methods"
    ")"
)
# The names of Sphinx's fields.
_FIELD = (
    "^:"
    "(param|parameter|arg|argument|key|keyword|type"
    "|returns?|rtype|raises?|except|exception|yields|ytype)"
)
# The text of a section or an entry: the following lines that are indented or blank.
_TEXT = r"((?:\n(?:[ \t].*)?)*)"
# The same, including the end of the first line.
_REST = r"(.*(?:\n(?:[ \t].*)?)*)"
# In the NumPy style, sections are not indented. Their text ends at the next section.
_NUMPY_TEXT = r"((?:\n(?!\S.*\n-{3,}[ \t]*$).*)*)"


_GOOGLE_SECTION = _SECTION + r":[ \t]*(?=\n[ \t]+\S)" + _TEXT
_GOOGLE_ENTRY = r"^\*{0,2}(\w+)[ \t]*(?:\(.*?\))?[ \t]*:" + _REST
_NUMPY_SECTION = _SECTION + r"[ \t]*\n-{3,}[ \t]*" + _NUMPY_TEXT
_NUMPY_ENTRY = r"^(\*{0,2}\w+(?:,[ ]*\*{0,2}\w+)*)[ \t]*(?::.*)?$" + _TEXT
_SPHINX_FIELD = _FIELD + r"(?:[ \t]+([^:\n]+))?:" + _REST
# All sections and fields contain one of these. Most docstrings do not, so no pattern is
# compiled. Compiling takes as long as everything else for a server's first tool.
_SIGNS = (":", "---")

# The names in an entry, and their description.
_Entry = tuple[str, str]


class Docstring(NamedTuple):
    """A docstring's prose, and its descriptions of parameters by name."""

    summary: str
    parameters: dict[str, str]


def parse(doc: str | None) -> Docstring:
    """Parse a docstring. Text in an unknown style is prose."""
    prose = inspect.cleandoc(doc or "")
    entries: list[_Entry] = []
    if any(sign in prose for sign in _SIGNS):
        prose, entries = _take_entries(prose)
    prose = "\n".join(line.rstrip() for line in prose.splitlines())
    prose = re.sub(r"\n{3,}", "\n\n", prose).strip()
    return Docstring(prose, _descriptions(entries))


def _take_entries(prose: str) -> tuple[str, list[_Entry]]:
    """Return the prose without sections and fields, and their entries."""
    prose, numpy_entries = _take_sections(prose, _NUMPY_SECTION, _NUMPY_ENTRY)
    prose, google_entries = _take_sections(prose, _GOOGLE_SECTION, _GOOGLE_ENTRY)
    prose, sphinx_entries = _take_fields(prose)
    return prose, [*numpy_entries, *google_entries, *sphinx_entries]


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, with the cache of `re`."""
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def _take_sections(
    prose: str, section_pattern: str, entry_pattern: str
) -> tuple[str, list[_Entry]]:
    """Return the prose without the sections of one style, and their entries."""
    section = _compile(section_pattern)
    entries: list[_Entry] = []
    for parameters, text in section.findall(prose):
        if parameters:
            entries += _compile(entry_pattern).findall(inspect.cleandoc(text))
    return section.sub("\n", prose), entries


def _take_fields(prose: str) -> tuple[str, list[_Entry]]:
    """Return the prose without Sphinx's fields, and those that describe parameters."""
    sphinx_field = _compile(_SPHINX_FIELD)
    entries = []
    for field, words, text in sphinx_field.findall(prose):
        if words and field.lower().startswith(("param", "arg", "key")):
            # The words are the name, optionally after a type.
            entries.append((words.split()[-1], text))
    return sphinx_field.sub("\n", prose), entries


def _descriptions(entries: list[_Entry]) -> dict[str, str]:
    """Return the first description of each name, on one line."""
    found: dict[str, str] = {}
    for names, text in entries:
        description = " ".join(text.split())
        if not description:
            continue
        for name in re.findall(r"\w+", names):
            found.setdefault(name, description)
    return found
