"""TODO"""

from decimal import Decimal, InvalidOperation

import msgspec

# What decoding raises for what does not fit: msgspec's errors and Unicode's are ValueErrors; a TypeError comes of a set
# whose items cannot be hashed.
_UNFIT = (ValueError, TypeError, RecursionError)


# Decoding


def _whole(text: str) -> int | Decimal:
    try:
        return int(Decimal(text)) if float(text).is_integer() else Decimal(text)
    except InvalidOperation:
        raise ValueError("number out of range") from None


_whole_decode = msgspec.json.Decoder(float_hook=_whole).decode
_whole_encode = msgspec.json.Encoder(decimal_format="number").encode


def _with_whole_numbers(raw: bytes) -> bytes:
    """The same JSON with `1.0` as `1`: to JSON Schema both are integers, to msgspec only the second."""
    return _whole_encode(_whole_decode(raw))
