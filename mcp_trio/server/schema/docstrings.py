"""Descriptions of parameters in docstrings of the Google, NumPy and Sphinx styles."""

import inspect
import re
from typing import NamedTuple

# Sections that describe parameters, whose title is a group, and other sections.
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
# The same, with the rest of the first line.
_REST = r"(.*(?:\n(?:[ \t].*)?)*)"
# In NumPy's style, sections are not indented. Their text ends where the next begins.
_NUMPY_TEXT = r"((?:\n(?!\S.*\n-{3,}[ \t]*$).*)*)"


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


_GOOGLE_SECTION = _compile(_SECTION + r":[ \t]*(?=\n[ \t]+\S)" + _TEXT)
_GOOGLE_ENTRY = _compile(r"^\*{0,2}(\w+)[ \t]*(?:\(.*?\))?[ \t]*:" + _REST)
_NUMPY_SECTION = _compile(_SECTION + r"[ \t]*\n-{3,}[ \t]*" + _NUMPY_TEXT)
_NUMPY_ENTRY = _compile(
    r"^(\*{0,2}\w+(?:,[ ]*\*{0,2}\w+)*)[ \t]*(?::.*)?$" + _TEXT,
)
_SPHINX_FIELD = _compile(_FIELD + r"(?:[ \t]+([^:\n]+))?:" + _REST)

# The names in an entry, and their description.
_Entry = tuple[str, str]


class Docstring(NamedTuple):
    """A docstring's prose, and its descriptions of parameters by name."""

    summary: str
    parameters: dict[str, str]


def parse(doc: str | None) -> Docstring:
    """Take a docstring apart. Text in an unknown style is prose."""
    prose = inspect.cleandoc(doc or "")
    prose, numpy_entries = _take_sections(prose, _NUMPY_SECTION, _NUMPY_ENTRY)
    prose, google_entries = _take_sections(prose, _GOOGLE_SECTION, _GOOGLE_ENTRY)
    prose, sphinx_entries = _take_fields(prose)
    prose = "\n".join(line.rstrip() for line in prose.splitlines())
    prose = re.sub(r"\n{3,}", "\n\n", prose).strip()
    entries = [*numpy_entries, *google_entries, *sphinx_entries]
    return Docstring(prose, _descriptions(entries))


def _take_sections(
    prose: str, section: re.Pattern[str], entry: re.Pattern[str]
) -> tuple[str, list[_Entry]]:
    """Return the prose without the sections of one style, and their entries."""
    entries: list[_Entry] = []
    for parameters, text in section.findall(prose):
        if parameters:
            entries += entry.findall(inspect.cleandoc(text))
    return section.sub("\n", prose), entries


def _take_fields(prose: str) -> tuple[str, list[_Entry]]:
    """Return the prose without Sphinx's fields, and those that describe parameters."""
    entries = []
    for field, words, text in _SPHINX_FIELD.findall(prose):
        if words and field.lower().startswith(("param", "arg", "key")):
            # The words are optionally a type, and the name.
            entries.append((words.split()[-1], text))
    return _SPHINX_FIELD.sub("\n", prose), entries


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
