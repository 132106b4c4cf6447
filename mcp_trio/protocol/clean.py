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
_UNWANTED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_UNWANTED_ASCII = bytes(byte for byte in range(128) if _UNWANTED.match(chr(byte)))
# Characters from which on a text of ASCII is looked through quicker as bytes.
_LONG = 1000
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(text: str) -> str:
    """A text without terminal escapes, which go as a whole, and without controls other than tab, LF and CR.

    Lone surrogates are left to the encoder. Marks of direction stay: they belong to the writing of many languages.
    """
    if len(text) > _LONG and text.isascii():
        is_clean = len(text.encode().translate(None, _UNWANTED_ASCII)) == len(text)
    else:
        is_clean = text.isprintable() or _UNWANTED.search(text) is None
    return text if is_clean else _CONTROL.sub("", text)


def visible(text: str) -> str:
    """A text on one line, each control character in it written out: nobody can make up a line of a log by it."""
    return text if text.isprintable() else _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)
