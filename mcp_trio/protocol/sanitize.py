"""Text that is safe to show to a person, on a terminal or in a log.

`strip_controls` removes control functions of a terminal. `visible` escapes them.
"""

import re
from functools import cache

# Patterns are compiled when they are first needed, because compiling is slow.

# Control functions of ECMA-48 in both forms: ESC with a letter, and single C1
# characters. No part of a pattern matches where the next part begins, so matching takes
# linear time. An unterminated control string loses only its introducer.
_CONTROL = r"""(?x)
    # A control sequence: a color, a movement of the cursor.
    (?: \x1b\[ | \x9b ) [0-?]*+ [ -/]*+ [@-~]
    # A control string, such as the title of a window.
  | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] )
    [^\x00-\x08\n-\x1f\x7f-\x9f]*+
    (?: \x07 | \x1b\\ | \x9c )
    # Any other escape sequence.
  | \x1b [ -/]*+ [0-~]
    # Any other control character.
  | [\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]
    """
_ALLOWED_CONTROLS = "\t\n\r"
_CONTROL_CHARACTERS = [
    character
    for character in map(chr, (*range(0x20), *range(0x7F, 0xA0)))
    if character not in _ALLOWED_CONTROLS
]
_ASCII_CONTROL_CHARACTERS = [
    character for character in _CONTROL_CHARACTERS if character.isascii()
]
_ANY_CONTROL = f"[{''.join(_CONTROL_CHARACTERS)}]"

# Up to this length, checking each character is faster than searching for each control
# character.
SHORT = 1000

# Control characters, line separators, bidirectional marks, and lone surrogates.
_HIDDEN = r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, with a faster cache than that of `re`."""
    return re.compile(pattern)


def strip_controls(text: str) -> str:
    """Remove escape sequences and control characters, except tab, LF and CR.

    Lone surrogates are left to the encoder. Bidirectional marks are kept, because many
    languages need them.
    """
    if len(text) <= SHORT:
        if text.isprintable() or _compiled(_ANY_CONTROL).search(text) is None:
            return text
    else:
        controls = _ASCII_CONTROL_CHARACTERS if text.isascii() else _CONTROL_CHARACTERS
        if not any(character in text for character in controls):
            return text
    return _compiled(_CONTROL).sub("", text)


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot represent, with U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def visible(text: str) -> str:
    r"""Return a text on one line, with invisible characters escaped.

    A line feed becomes `\n`, so that a client cannot forge a line of the log.
    """
    if text.isprintable():
        return text
    return _compiled(_HIDDEN).sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
