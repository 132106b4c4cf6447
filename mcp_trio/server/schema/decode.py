"""Differences between msgspec and JSON Schema in decoding."""

import re
from decimal import Decimal, InvalidOperation

import msgspec

# The exceptions for a value that does not fit. The errors of msgspec and of Unicode are
# ValueErrors. A set whose items cannot be hashed raises TypeError.
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


# What msgspec and pydantic say of a number such as 1.0 where they expect an integer. In
# a union msgspec names the other types too.
_NOT_AN_INTEGER = r"Expected `.*\bint\b.*`, got `float`|should be a valid integer"
# The largest JSON that is decoded again, and the most values in it. To rewrite its
# numbers takes many times as long as to decode it.
MOST_BYTES = 2**20
MOST_VALUES = 1_000


def with_whole_numbers(encoded: bytes, error: Exception) -> bytes:
    """Return the same JSON with `1` in place of `1.0`, to be decoded again.

    In JSON Schema both are integers; msgspec does not decode `1.0` as one. Raises the
    error with which decoding failed if that has another reason, or if the JSON is so
    large that nobody should wait for it to be decoded twice.
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
    """Return at least how many values JSON has. Punctuation in strings counts too."""
    return encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")
