"""JSON-RPC 2.0 envelopes: decoding, with an error that says what and where; encoding.

Of two equal keys in one object the last one counts, keys are compared exactly, and numbers with a fraction or
null are no ids.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .errors import InvalidRequest, ParseError, ProtocolError

Id = int | str
T = TypeVar("T")

# The largest message that is taken, in bytes.
MAX_MESSAGE = 4 * 2**20

# The most messages that a batch may have: small ones cost far more to answer than to send.
MAX_BATCH = 10_000


class Envelope(Struct):
    """One message, its params not looked into."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    id: int | str | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    result: Raw = Raw()
    error: Raw = Raw()


class BadMessage(Exception):
    """A message that is none: the error to answer with, and the id to answer to, where one could be read."""

    def __init__(
        self, error: ProtocolError, id: Id | UnsetType = UNSET, *, silent: bool = False
    ) -> None:
        self.error = error
        self.id = id
        self.silent = silent


_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_encoder = msgspec.json.Encoder()


def decode(data: bytes) -> Envelope:
    """One message's envelope. Raises BadMessage."""
    return _read(_decode_envelope, data)


def decode_batch(data: bytes) -> list[bytes]:
    """The messages of an array, still encoded. Raises BadMessage."""
    raws = _read(_decode_raws, data)
    if len(raws) > MAX_BATCH:
        wrong = InvalidRequest(
            f"Invalid request: a batch of {len(raws)} messages; at most {MAX_BATCH} are taken"
        )
        raise BadMessage(wrong)
    return [bytes(raw) for raw in raws]


def _read(decoder: Callable[[bytes], T], data: bytes) -> T:
    try:
        if not data.isascii():
            data.decode()  # msgspec passes over what stays raw without a look at its UTF-8
        return decoder(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _explain(data, problem) from None


def _explain(data: bytes, problem: Exception) -> BadMessage:
    if isinstance(problem, RecursionError):
        return BadMessage(ParseError("Parse error: nested too deeply"))
    if isinstance(problem, UnicodeDecodeError):
        return BadMessage(ParseError(f"Parse error: not UTF-8 (byte {problem.start})"))
    if not isinstance(problem, msgspec.ValidationError):
        return BadMessage(ParseError(f"Parse error: {problem}"))
    try:
        message = msgspec.json.decode(data)
    except msgspec.ValidationError:  # a number beyond all bounds
        message = None
    except (msgspec.DecodeError, RecursionError) as further_on:
        return _explain(data, further_on)
    message = message if isinstance(message, dict) else {}
    id = message.get("id", UNSET)
    readable = id if isinstance(id, int | str) and not isinstance(id, bool) else UNSET
    # JSON-RPC 2.0, section 4.1: a notification is not answered, not even with an error.
    silent = (
        "id" not in message
        and message.get("jsonrpc") == "2.0"
        and isinstance(message.get("method"), str)
    )
    # An error is not answered with an error: two that did so would never end.
    silent = silent or ("error" in message and "method" not in message)
    return BadMessage(
        InvalidRequest(f"Invalid request: {explain(problem)}"), readable, silent=silent
    )


_PROBLEM = re.compile(r"(.*?)(?: - at (`key` in )?`\$(.*)`)?", re.DOTALL)
_JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def explain(problem: Exception, root: str = "$") -> str:
    """What msgspec says, in JSON's words and with the place first: `$.id: expected integer or string, got null`.

    What says its place already stays as it is.
    """
    if isinstance(problem, RecursionError):
        return f"{root}: nested too deep"
    parts = _PROBLEM.fullmatch(str(problem))
    assert parts is not None  # the pattern matches any text
    what, in_key, path = parts.groups(default="")
    if what.startswith("$"):
        return str(problem)
    if missing := re.fullmatch(r"Object missing required field `(.+)`", what):
        return f"{root}{path}.{missing[1]}: missing"
    what = re.sub(r"`([^`]*)`", _in_json_words, what)
    return f"{root}{path}: {'a key: ' if in_key else ''}{what[:1].lower()}{what[1:]}"


def _in_json_words(quoted: re.Match[str]) -> str:
    return " or ".join(_JSON_NAMES.get(name, name) for name in quoted[1].split(" | "))


def encode(value: Any) -> bytes:
    """A value as JSON. Lone surrogates, which UTF-8 cannot carry, become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return _encoder.encode(
            json.loads(
                text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )
        )


def encode_result(id: Id, result: bytes) -> bytes:
    """A response whose result is encoded already."""
    encoded_id = b"%d" % id if type(id) is int else _encoder.encode(id)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encoded_id, result)


def encode_error(id: Id | UnsetType | None, error: Mapping[str, Any]) -> bytes:
    """An error response; UNSET leaves the id out."""
    addressed = {} if id is UNSET else {"id": id}
    return encode({"jsonrpc": "2.0", **addressed, "error": error})


def encode_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A notification; no params, no key."""
    carried = {"params": params} if params else {}
    return encode({"jsonrpc": "2.0", "method": method, **carried})
