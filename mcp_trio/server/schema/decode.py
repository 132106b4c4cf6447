"""Differences between msgspec and JSON Schema in decoding."""

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


def normalize_integers(raw: bytes) -> bytes:
    """Return the same JSON with `1` in place of `1.0`.

    In JSON Schema both are integers; msgspec does not decode `1.0` as one.
    """
    return _encode_numbers(_decode_numbers(raw))
