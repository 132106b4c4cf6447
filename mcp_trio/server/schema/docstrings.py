"""Descriptions of parameters, out of docstrings in the styles of Google, NumPy and Sphinx."""

import inspect
import re
from typing import NamedTuple

_WANTED = "args|arguments|parameters|params|keyword args|keyword arguments|other parameters|attributes"
_OTHERS = "returns?|yields?|raises?|receives|warns|warnings?|examples?|notes?|references|see also|todo|methods"
_FIELDS = "param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|yields|ytype"
_FLAGS = re.IGNORECASE | re.MULTILINE

# Each section or entry is its head and, in the last group, its text: the lines under it that are indented or blank; in
# NumPy's style, where a section is not indented, all lines up to the next underlined heading.
_INDENTED = r"(?:\n(?:[ \t].*)?)*"
_GOOGLE = re.compile(
    rf"^(?:({_WANTED})|{_OTHERS}):[ \t]*(?=\n[ \t]+\S)({_INDENTED})", _FLAGS
)
_GOOGLE_ENTRY = re.compile(
    rf"^\*{{0,2}}(\w+)[ \t]*(?:\(.*?\))?[ \t]*:(.*{_INDENTED})", _FLAGS
)
_NUMPY = re.compile(
    rf"^(?:({_WANTED})|{_OTHERS})[ \t]*\n-{{3,}}[ \t]*((?:\n(?!\S.*\n-{{3,}}[ \t]*$).*)*)",
    _FLAGS,
)
_NUMPY_ENTRY = re.compile(
    rf"^(\*{{0,2}}\w+(?:,[ ]*\*{{0,2}}\w+)*)[ \t]*(?::.*)?$({_INDENTED})", _FLAGS
)
_SPHINX = re.compile(rf"^:({_FIELDS})(?:[ \t]+([^:\n]+))?:(.*{_INDENTED})", _FLAGS)


class Docstring(NamedTuple):
    """What a docstring says: its prose, and a description for each parameter that it describes."""

    summary: str
    parameters: dict[str, str]


def parse(doc: str | None) -> Docstring:
    """Take a docstring apart. Text in no known style is all prose."""
    prose = inspect.cleandoc(doc or "")
    entries: list[tuple[str, str]] = []
    for section, entry in ((_NUMPY, _NUMPY_ENTRY), (_GOOGLE, _GOOGLE_ENTRY)):
        for wanted, text in section.findall(prose):
            entries += entry.findall(inspect.cleandoc(text)) if wanted else []
        prose = section.sub("\n", prose)
    for field, names, text in _SPHINX.findall(prose):
        if names and field.lower().startswith(("param", "arg", "key")):
            entries.append((names.split()[-1], text))
    prose = "\n".join(line.rstrip() for line in _SPHINX.sub("\n", prose).splitlines())
    parameters: dict[str, str] = {}
    for names, text in entries:
        for name in re.findall(r"\w+", names):
            if description := " ".join(text.split()):
                parameters.setdefault(name, description)
    return Docstring(re.sub(r"\n{3,}", "\n\n", prose).strip(), parameters)
