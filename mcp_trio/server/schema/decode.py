"""Differences between msgspec and JSON Schema: whole numbers."""

import re
from decimal import Decimal, InvalidOperation

import msgspec

# The exceptions for an invalid value. The errors of msgspec and of Unicode are
# ValueErrors. A set with unhashable items raises TypeError.
DECODE_ERRORS = (ValueError, TypeError, RecursionError)


def _parse_float(text: str) -> int | Decimal:
    """Return a number with a fraction or an exponent, as an int if it is whole."""
    try:
        number = Decimal(text)
        return int(number) if float(text).is_integer() else number
    except InvalidOperation:
        raise ValueError("number out of range") from None


_decode_numbers = msgspec.json.Decoder(float_hook=_parse_float).decode
_encode_numbers = msgspec.json.Encoder(decimal_format="number").encode


# The messages of msgspec and pydantic for 1.0 in place of an integer. For a union,
# msgspec also names the other types.
_NOT_AN_INTEGER = r"Expected `.*\bint\b.*`, got `float`|should be a valid integer"
# The limits of JSON that is decoded again, because rewriting its numbers takes many
# times as long as decoding it.
MOST_BYTES = 2**20
MOST_VALUES = 1_000


def with_whole_numbers(encoded: bytes, error: Exception) -> bytes:
    """Return the same JSON with `1` in place of `1.0`, to decode it again.

    In JSON Schema, both are integers, but msgspec does not decode `1.0` as one. `error`
    is the error of the first attempt. It is raised if it has another cause, or if the
    JSON is too large to decode it twice.
    """
    is_small = len(encoded) <= MOST_BYTES and _count_values(encoded) <= MOST_VALUES
    if not is_small or not re.search(_NOT_AN_INTEGER, str(error)):
        try:
            raise error
        finally:
            # Otherwise the error and this frame keep each other, and megabytes of JSON.
            del error
    return _encode_numbers(_decode_numbers(encoded))


def _count_values(encoded: bytes) -> int:
    """Estimate the number of values in JSON. Punctuation in strings counts too."""
    return encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")
