"""TODO"""

import re
from urllib.parse import unquote

_VARIABLE = re.compile(r"\{(\+?)(\w+)\}")


class UriTemplate:
    """A URI with variables: `{name}` matches up to the next slash, however that is written, `{+name}` anything.

    Matching looks for each fixed part once, from left to right, so its time is linear in the URI's length.
    """

    def __init__(self, template: str) -> None:
        pieces = _VARIABLE.split(template)
        literals, self.names = pieces[::3], pieces[2::3]
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
                f"resource {template!r}: something fixed is wanted between two variables"
            )
        self._within_one_segment = [
            name
            for name, sign in zip(self.names, pieces[1::3], strict=True)
            if not sign
        ]
        fixed = [re.escape(literal) for literal in literals]
        fixed[-1] += r"\Z"
        # Atomic groups: once a fixed part is found, no other place is tried for it.
        self._pattern = re.compile(
            fixed[0] + "".join(f"(?>(.+?){after})" for after in fixed[1:]), re.DOTALL
        )

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables' values, percent-decoded; None for a URI of another form."""
        if (found := self._pattern.match(uri)) is None:
            return None
        values = dict(zip(self.names, map(unquote, found.groups()), strict=True))
        return (
            None
            if any("/" in values[name] for name in self._within_one_segment)
            else values
        )
