"""Encodes the values that functions return."""

import sys
from typing import Any

import msgspec

from ...protocol import jsonrpc


def encode_value(value: Any) -> bytes:
    """Encode a value, which may contain pydantic models, as JSON on one line.

    Raises TypeError or ValueError if it cannot be encoded.
    """
    try:
        return jsonrpc.on_one_line(_encode(value))
    except UnicodeEncodeError:
        # It has lone surrogates, which `jsonrpc.encode` replaces.
        return jsonrpc.encode(msgspec.to_builtins(value, enc_hook=_encode_model))


def _encode_model(value: Any) -> Any:
    """Convert a pydantic model to types that msgspec can encode.

    msgspec calls this for objects of other types.
    """
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encode = msgspec.json.Encoder(enc_hook=_encode_model).encode
