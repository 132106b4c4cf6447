"""Text without what a terminal would obey: for whoever shows it to a person, or writes it to a log."""

import re

# ECMA-48 in both its forms, ESC with a letter and the one character of C1. No part of a pattern can match where another
# begins, so that the time is linear. A string that is not ended loses its introducer alone: the rest is text again.
_CONTROL = re.compile(
    r"""
    (?: \x1b\[ | \x9b ) [0-?]*+ [ -/]*+ [@-~]  # a control sequence: colours, the cursor
  | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] ) [^\x00-\x08\n-\x1f\x7f-\x9f]*+ (?: \x07 | \x1b\\ | \x9c )  # a title
  | \x1b [ -/]*+ [0-~]  # any other escape sequence
  | [\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]
    """,
    re.VERBOSE,
)
_UNWANTED = [
    chr(code)
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\t\n\r"
]
_UNWANTED_ASCII = [character for character in _UNWANTED if character.isascii()]
_find_unwanted = re.compile(f"[{''.join(_UNWANTED)}]").search
# Characters up to which it is quicker to look at each than to look for each that is unwanted.
SHORT = 1000
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """A text without terminal escapes, which go as a whole, and without controls other than tab, LF and CR.

    Lone surrogates are left to the encoder. Marks of direction stay: they belong to the writing of many languages.
    """
    if len(text) > SHORT:
        is_clean = not any(
            character in text
            for character in (_UNWANTED_ASCII if text.isascii() else _UNWANTED)
        )
    else:
        is_clean = text.isprintable() or _find_unwanted(text) is None
    return text if is_clean else _CONTROL.sub("", text)


def visible(text: str) -> str:
    """A text on one line, what controls or reorders it written out: nobody can make up a line of a log by it."""
    return (
        text
        if text.isprintable()
        else _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)
    )
