"""URI templates, such as `notes://{id}`."""

import re
from urllib.parse import unquote

_VARIABLE = re.compile(r"\{(\+?)(\w+)\}")


class UriTemplate:
    """A URI with variables.

    `{name}` matches text without a slash, not even a percent-encoded one; `{+name}`
    matches any text. Matching looks for each fixed part once, from left to right, so
    its time is linear in the length of the URI.
    """

    def __init__(self, template: str) -> None:
        # Fixed text, the variable's sign, its name, fixed text, and so on.
        pieces = _VARIABLE.split(template)
        literals = pieces[::3]
        signs = pieces[1::3]
        self.names = pieces[2::3]
        if re.search("[{}]", "".join(literals)):
            raise ValueError(
                f"resource {template!r}: variables are written {{name}} or {{+name}}"
            )
        if len(set(self.names)) < len(self.names):
            raise ValueError(
                f"resource {template!r}: each variable needs a name of its own"
            )
        if not all(literals[1:-1]):
            raise ValueError(
                f"resource {template!r}: expected something fixed between two variables"
            )
        self._within_one_segment = [
            name for name, sign in zip(self.names, signs, strict=True) if not sign
        ]
        self._pattern = _pattern(literals)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables' decoded values, or None if the URI does not match."""
        found = self._pattern.match(uri)
        if found is None:
            return None
        values = {}
        for name, value in zip(self.names, found.groups(), strict=True):
            values[name] = unquote(value)
        for name in self._within_one_segment:
            if "/" in values[name]:
                return None
        return values


def _pattern(literals: list[str]) -> re.Pattern[str]:
    """Return a pattern of this fixed text, with a group for each variable between."""
    fixed = [re.escape(literal) for literal in literals]
    fixed[-1] += r"\Z"
    # Atomic groups: once a literal is found, no other place is tried for it.
    groups = [f"(?>(.+?){literal})" for literal in fixed[1:]]
    return re.compile(fixed[0] + "".join(groups), re.DOTALL)
