"""URI templates, such as `notes://{id}`."""

import re
from urllib.parse import unquote

_VARIABLE = re.compile(r"\{(\+?)(\w+)\}")


class UriTemplate:
    """A URI with variables.

    `{name}` matches text without a slash, percent-encoded or not; `{+name}` matches any
    text. Each literal part is searched for once, from left to right, so matching takes
    time linear in the length of the URI.
    """

    def __init__(self, template: str) -> None:
        # Literal text, a variable's sign, its name, literal text, and so on.
        pieces = _VARIABLE.split(template)
        literals = pieces[::3]
        signs = pieces[1::3]
        self.names = pieces[2::3]
        if re.search("[{}]", "".join(literals)):
            raise ValueError(
                f"resource {template!r}: expected variables such as {{name}} or "
                "{+name}, got other braces"
            )
        if len(set(self.names)) < len(self.names):
            raise ValueError(
                f"resource {template!r}: expected each variable once, got one twice"
            )
        if not all(literals[1:-1]):
            raise ValueError(
                f"resource {template!r}: expected literal text between two variables"
            )
        self._within_one_segment = [
            name for name, sign in zip(self.names, signs, strict=True) if not sign
        ]
        self._pattern = _pattern(literals)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables, or None if the URI does not match."""
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
    """Return a pattern of these literals, with a group for each variable in between."""
    fixed = [re.escape(literal) for literal in literals]
    fixed[-1] += r"\Z"
    # Atomic groups: once a literal is found, no other position is tried for it.
    groups = [f"(?>(.+?){literal})" for literal in fixed[1:]]
    return re.compile(fixed[0] + "".join(groups), re.DOTALL)
