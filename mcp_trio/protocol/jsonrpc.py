"""JSON-RPC 2.0 messages: decoding, with errors that explain the problem, and encoding.

If an object has the same key twice, the last value counts. Keys are case-sensitive.
An id is a string or an integer: fractions and null are not accepted.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from .errors import InvalidRequest, ParseError, ProtocolError
from .memory import LARGE, require_memory

# The maximum length of an id, in characters. The id is kept while its request runs, and
# repeated in messages about it.
MAX_ID = 256

Id = int | Annotated[str, Meta(max_length=MAX_ID)]
T = TypeVar("T")

# The largest message that is accepted, in bytes.
MAX_MESSAGE = 4 * 2**20

# The maximum number of bytes of a message, without its params, that may stay in memory
# as long as the params.
MOST_PADDING = 1024

# The maximum number of messages in a batch. Small messages cost far more to answer than
# to send.
MAX_BATCH = 10_000


# Decoding


class Envelope(Struct):
    """A message whose params, result and error are still encoded."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    id: Id | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    result: Raw = Raw()
    error: Raw = Raw()


class BadMessage(Exception):
    """The bytes are not a valid message.

    `error` is the error to respond with, and `id` is the message's id if it could be
    read. If `silent`, the message must not be answered.
    """

    def __init__(
        self, error: ProtocolError, id: Id | UnsetType = UNSET, *, silent: bool = False
    ) -> None:
        self.error = error
        self.id = id
        self.silent = silent


class InvalidMessage(Struct):
    """The fields of an invalid message that matter for its answer, still encoded."""

    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_invalid = msgspec.json.Decoder(InvalidMessage).decode
_decode_id = msgspec.json.Decoder(Id).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_encoder = msgspec.json.Encoder()


def decode(data: bytes) -> Envelope:
    """Decode the envelope of one message. Raises BadMessage."""
    envelope = _decode_with(_decode_envelope, data)
    if len(data) > MOST_PADDING:
        _detach_params(envelope, data)
    return envelope


def _detach_params(envelope: Envelope, data: bytes) -> None:
    """Copy the params if much of the message is something else.

    A `Raw` keeps all of the bytes that it was decoded from.
    """
    if len(data) - len(memoryview(envelope.params)) > MOST_PADDING:
        envelope.params = envelope.params.copy()


def decode_batch(data: bytes) -> list[bytes]:
    """Split an array into its messages, still encoded. Raises BadMessage."""
    raws = _decode_with(_decode_raws, data)
    if len(raws) > MAX_BATCH:
        raise BadMessage(
            InvalidRequest(
                f"Invalid request: a batch of {len(raws)} messages; "
                f"at most {MAX_BATCH} are taken"
            )
        )
    return [bytes(raw) for raw in raws]


def _decode_with(decoder: Callable[[bytes], T], data: bytes) -> T:
    try:
        if not data.isascii():
            # msgspec does not check the encoding of values that stay raw.
            data.decode()
        return decoder(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _bad_message(data, problem) from None


def _bad_message(data: bytes, problem: Exception) -> BadMessage:
    """Return the BadMessage for data that could not be decoded."""
    if isinstance(problem, RecursionError):
        return BadMessage(ParseError("Parse error: nested too deeply"))
    if isinstance(problem, UnicodeDecodeError):
        return BadMessage(ParseError(f"Parse error: not UTF-8 (byte {problem.start})"))
    if not isinstance(problem, msgspec.ValidationError):
        return BadMessage(ParseError(f"Parse error: {problem}"))
    # The decoder stopped at the first invalid field, so the remaining data may not even
    # be JSON. Decode all of it, but make no objects, because it may be large.
    try:
        message = _decode_invalid(data)
    except msgspec.ValidationError:  # not an object
        message = InvalidMessage()
    except (msgspec.DecodeError, RecursionError) as syntax_problem:
        return _bad_message(data, syntax_problem)
    error = InvalidRequest(f"Invalid request: {explain(problem)}")
    return BadMessage(error, _readable_id(message), silent=_is_silent(message))


def _readable_id(message: InvalidMessage) -> Id | UnsetType:
    """Return the id of an invalid message, or UNSET if it has none."""
    if message.id is UNSET:
        return UNSET
    try:
        id: Id = _decode_id(message.id)
        return id
    except (msgspec.DecodeError, RecursionError):
        return UNSET


def _is_silent(message: InvalidMessage) -> bool:
    """Return whether an invalid message must not be answered."""
    # An error is never answered with an error, or two peers could do so forever.
    if message.error is not UNSET and message.method is UNSET:
        return True
    # JSON-RPC 2.0, section 4.1: a notification is not answered, not even with an error.
    if message.id is not UNSET or message.method is UNSET or message.jsonrpc is UNSET:
        return False
    is_named = bytes(message.method).startswith(b'"')
    return is_named and bytes(message.jsonrpc) == b'"2.0"'


# Explaining msgspec's errors

# The most characters of msgspec's message, which may contain a value of the client. The
# location at its end is kept.
MAX_PROBLEM = 1000
# A message from msgspec: the problem, and optionally its location.
_PROBLEM = r"(?s)(.*?)(?: - at (`key` in )?`\$(.*)`)?"
_JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def explain(problem: Exception, root: str = "$") -> str:
    """Return msgspec's message with the location first, and with JSON's type names.

    For example `$.id: expected integer or string, got null`. A message that already
    begins with a location is returned unchanged.
    """
    if isinstance(problem, RecursionError):
        return f"{root}: nested too deep"
    return _explain(_shortened(str(problem)), root)


@lru_cache(256)
def _explain(message: str, root: str) -> str:
    """Explain a message of msgspec. A batch may have the same problem many times."""
    parts = re.fullmatch(_PROBLEM, message)
    assert parts is not None  # the pattern matches any text
    text, in_key, path = parts.groups(default="")
    if text.startswith("$"):
        return message
    missing = re.fullmatch(r"Object missing required field `(.+)`", text)
    if missing:
        return f"{root}{path}.{missing[1]}: missing"
    text = re.sub(r"`([^`]*)`", _in_json_words, text)
    subject = "a key: " if in_key else ""
    return f"{root}{path}: {subject}{text[:1].lower()}{text[1:]}"


def _shortened(text: str) -> str:
    """Return msgspec's message without the middle of a long value in it."""
    if len(text) <= MAX_PROBLEM:
        return text
    problem, mark, location = text.rpartition(" - at ")
    end = f"{mark}{location}" if len(location) <= MAX_PROBLEM else ""
    return f"{problem[:MAX_PROBLEM]}...{end}"


def _in_json_words(quoted: re.Match[str]) -> str:
    names = quoted[1].split(" | ")
    return " or ".join(_JSON_NAMES.get(name, name) for name in names)


# Encoding

# As integers, because `bytes in bytes` takes ten times as long.
_LINE_FEED = ord("\n")
_CARRIAGE_RETURN = ord("\r")


def encode(value: Any) -> bytes:
    """Encode a value as JSON on one line.

    Lone surrogates, which UTF-8 cannot represent, become U+FFFD. Raises ValueError if a
    `msgspec.Raw` with line breaks in it is not JSON.
    """
    try:
        encoded = _encoder.encode(value)
    except UnicodeEncodeError:
        encoded = _encoder.encode(_without_surrogates(msgspec.to_builtins(value)))
    return on_one_line(encoded)


def encode_without_raw(value: Any) -> bytes:
    """Encode a value that contains no `msgspec.Raw`, a little faster than `encode`."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return encode(value)


def _without_surrogates(value: Any) -> Any:
    """Return a value with U+FFFD in place of lone surrogates."""
    import json  # only here, because few servers ever need it

    text = json.dumps(value, ensure_ascii=False)
    utf_16 = text.encode("utf-16", "surrogatepass")
    return json.loads(utf_16.decode("utf-16", "replace"))


def on_one_line(encoded: bytes) -> bytes:
    """Return JSON without line breaks.

    Only a `msgspec.Raw` can contain them. On stdio and in an event stream, a line break
    would end the message, and the remaining text would be read as another one. Raises
    ValueError if there are line breaks and the JSON is not valid.
    """
    if _LINE_FEED in encoded or _CARRIAGE_RETURN in encoded:
        return msgspec.json.format(encoded, indent=-1)
    return encoded


def encode_text(text: str) -> bytes:
    """Encode a string as JSON, a little faster than `encode`.

    Raises MemoryError if the system has no memory for a large text.
    """
    try:
        if len(text) >= LARGE:
            require_memory(2 * len(text))
        return _encoder.encode(text)
    except UnicodeEncodeError:
        return encode(text)


def encode_result(id: Id, result: bytes) -> bytes:
    """Encode a response whose result is already encoded."""
    encoded_id = b"%d" % id if type(id) is int else _encoder.encode(id)
    # For large results this takes a fraction of the time of formatting with "%".
    return b"".join(
        (b'{"jsonrpc":"2.0","id":', encoded_id, b',"result":', result, b"}")
    )


def encode_error(id: Id | UnsetType | None, error: Mapping[str, Any]) -> bytes:
    """Encode an error response. If `id` is UNSET, it has no id."""
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if id is not UNSET:
        message["id"] = id
    message["error"] = error
    return encode(message)


def encode_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Encode a notification. Empty params are omitted."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return encode(message)
