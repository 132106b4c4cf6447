"""Encoding the values that functions return."""

import sys
from typing import Any

import msgspec

from ...protocol import jsonrpc


def encode_value(value: Any) -> bytes:
    """Encode a value as JSON on one line. pydantic's models may be anywhere in it.

    Raises TypeError or ValueError if a part of it has no JSON form.
    """
    try:
        return jsonrpc.on_one_line(_encode(value))
    except UnicodeEncodeError:
        # It has lone surrogates, which only `jsonrpc.encode` replaces.
        return jsonrpc.encode(msgspec.to_builtins(value, enc_hook=_encode_model))


def _encode_model(value: Any) -> Any:
    """Return a model of pydantic's in JSON's types.

    msgspec calls this for any object that it does not know.
    """
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encode = msgspec.json.Encoder(enc_hook=_encode_model).encode
