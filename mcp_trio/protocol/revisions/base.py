"""What a revision is: its tables, which are the gate, and the functions that write a neutral value in its shape.

Each file beside this one is a revision, written as a subclass of its predecessor (the second, as the first was odd,
of what all others have in common): it says only what differs. A revision is made once for a server, whose name it has
to give, and is never changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

from msgspec import UNSET, Struct

from .. import errors, params
from .. import types as model
from ..jsonrpc import encode, encode_notification
from ..sanitize import SHORT, clean
from ..types import Json

LEVELS: tuple[str, ...] = get_args(params.LogLevel)
# The methods that a client may call and may tell of, those that the server may ask and may tell of; and the
# capabilities that the server may have.
LISTS = ("requests", "notifications", "asks", "tells", "capabilities")
_MARK = "\ue000the text\ue000"


class Table(dict[type | str, frozenset[str]]):
    """What a revision knows: which methods of each of `LISTS`, which keys in each type of the model, or in a method."""

    def plus(self, changes: str) -> "Table":
        """This table and what a later revision makes of it: a line `Type Type method: key key -key` for each change.

        Each of the types, methods and lists gets the keys; a key with a minus before it is taken away.
        """
        table = Table(self)
        for line in changes.strip().splitlines():
            kinds, keys = line.split(":")
            added = {key for key in keys.split() if not key.startswith("-")}
            removed = {key[1:] for key in keys.split() if key.startswith("-")}
            for name in kinds.split():
                kind = getattr(model, name) if name[0].isupper() else name
                table[kind] = table.get(kind, frozenset()) - removed | added
        return table


class Revision:
    """One revision of the protocol, as spoken by one server."""

    name: ClassVar[str]
    opens: ClassVar[bool]  # by `initialize`; else each request says its revision itself
    batches: ClassVar[bool] = False
    resumes: ClassVar[bool] = (
        False  # whether a client may come back to a stream of its session over HTTP
    )
    primes: ClassVar[bool] = (
        False  # whether such a stream begins with an event that says where it is
    )
    pages: ClassVar[bool] = True
    wraps: ClassVar[bool] = (
        False  # whether structured content is an object always, which any other value is put into
    )
    requests: ClassVar[frozenset[str]]
    notifications: ClassVar[frozenset[str]]
    asks: ClassVar[frozenset[str]]
    tells: ClassVar[frozenset[str]]
    capabilities: ClassVar[frozenset[str]]
    table: ClassVar[Table]
    levels: ClassVar[dict[str, str]] = {level: level for level in LEVELS}
    codes_of: ClassVar[
        Mapping[type[errors.ProtocolError], type[errors.ProtocolError]]
    ] = {  # where not their own
        errors.HeaderMismatch: errors.InvalidRequest,
        errors.UnsupportedVersion: errors.InvalidRequest,
        errors.MissingClientCapability: errors.InternalError,
        errors.UrlElicitationRequired: errors.InternalError,
    }
    # What tools/call answers by a result.
    tool_failures: ClassVar[frozenset[type[errors.ProtocolError]]] = frozenset(
        {errors.InternalError}
    )
    errors_without_id: ClassVar[bool] = (
        False  # whether an error to an unreadable id leaves it out, or has null
    )

    def __init_subclass__(cls) -> None:
        for name in LISTS:
            setattr(cls, name, cls.table[name])
        cls.opens = "initialize" in cls.requests

    def __init__(
        self, server: model.Implementation, instructions: str | None = None
    ) -> None:
        self.server = server
        self.instructions = instructions
        plain = encode(self.tool_result(model.ToolResult([model.Text(_MARK)])))
        self._before_text, self._after_text = plain.split(encode(_MARK))

    # What goes out, as JSON-able values. Each names exactly what the revision names.

    def shape(self, value: Any) -> Any:
        """A model as this revision writes it: the fields that it names, and nothing else.

        Content that the revision cannot carry becomes text that says so.
        """
        if isinstance(value, list):
            return [self.shape(item) for item in value]
        if not isinstance(value, Struct):
            return clean(value) if isinstance(value, str) else value
        if isinstance(value, model.CONTENT_TYPES) and type(value) not in self.table:
            value = _described(value)
        tag = value.__struct_config__.tag
        given = zip(
            value.__struct_encode_fields__, value.__struct_fields__, strict=True
        )
        kind = next(
            (kind for kind in type(value).__mro__ if kind in self.table), Struct
        )  # a user's own counts too
        fields = self.permitted(
            kind, {key: getattr(value, attribute) for key, attribute in given}
        )
        return {"type": tag, **fields} if tag else fields

    def permitted(self, kind: type | str, fields: Json) -> Json:
        """Those of the fields that this revision names in a type, or in what a method carries; no None."""
        allowed = self.table.get(kind, frozenset())
        return {
            key: self.shape(value)
            for key, value in fields.items()
            if key in allowed and value is not None
        }

    def result(
        self, shaped: Json, meta: Json | None = None, *, cacheable: bool = False
    ) -> Json:
        """A result, with what each result has in this revision; `cacheable` is what was listed or read."""
        return {**shaped, "_meta": meta} if meta else shaped

    def tool_result(self, result: model.ToolResult) -> Json:
        """The result of tools/call."""
        structured = (
            result.structured is not UNSET
            and "structuredContent" in self.table[model.ToolResult]
        )
        shaped: Json = {"content": self.shape(result.content)}
        if result.is_error or not structured:
            shaped["isError"] = result.is_error
        if structured:
            is_bare = not self.wraps or (
                isinstance(result.structured, dict) and not result.wrapped
            )
            shaped["structuredContent"] = (
                result.structured if is_bare else {"result": result.structured}
            )
        return self.result(shaped, result.meta)

    def introduction(
        self, method: str, features: Mapping[str, Json], versions: Sequence[str]
    ) -> Json:
        """The result of initialize or server/discover; `features` are the server's capabilities in any revision."""
        known = {
            name: value for name, value in features.items() if name in self.capabilities
        }
        spoken = {
            "protocolVersion": self.name,
            "supportedVersions": versions,
            "capabilities": known,
        }
        about = {"serverInfo": self.server, "instructions": self.instructions}
        return self.result(self.permitted(method, {**spoken, **about}), cacheable=True)

    def listing(self, items: Mapping[str, Sequence[Any]], cursor: str | None) -> Json:
        """The result of a list request: `items` by their key, and the cursor of the next page."""
        shaped = {key: self.shape(list(some)) for key, some in items.items()}
        if cursor is not None and self.pages:
            shaped["nextCursor"] = cursor
        return self.result(shaped, cacheable=True)

    def error(self, error: errors.ProtocolError) -> Json:
        """The error object of an error response."""
        shaped: Json = {
            "code": self.kind_of(error).code,
            "message": clean(error.message),
        }
        return shaped if error.data is None else {**shaped, "data": error.data}

    def kind_of(self, error: errors.ProtocolError) -> type[errors.ProtocolError]:
        """What an error is in this revision."""
        return self.codes_of.get(error.kind, error.kind)

    # What goes out, as bytes.

    def encode_text(self, text: str) -> bytes:
        """The result of a tool that answers one plain text, as most do: everything but the text is ready."""
        cleaned = (
            text if len(text) < SHORT and text.isprintable() else clean(text)
        )  # most need no call
        return b"%b%b%b" % (self._before_text, encode(cleaned), self._after_text)

    def notification(self, method: str, params: Json) -> bytes | None:
        """A notification to the client, or None where the revision has none of the kind."""
        return (
            encode_notification(method, self.permitted(method, params))
            if method in self.tells
            else None
        )

    def question(self, id: str, method: str, params: Json) -> bytes:
        """A request to the client."""
        return encode(
            {"jsonrpc": "2.0", "id": id, **self.input_request(method, params)}
        )

    def input_request(self, method: str, params: Json) -> Json:
        """The same as one of the questions of a result."""
        return {"method": method, "params": self.permitted(method, params)}


def _described(item: Any) -> model.Text:
    """Content that a revision has no place for, as the text that says what it was."""
    if isinstance(item, model.ResourceLink):
        return model.Text(f"Resource: {item.title or item.name} ({item.uri})")
    held = item.resource if isinstance(item, model.EmbeddedResource) else item
    if isinstance(held, model.Text | model.TextContents):
        return model.Text(held.text)
    data, of = (
        (held.blob, f", {held.uri}")
        if isinstance(held, model.BlobContents)
        else (held.data, "")
    )
    size = len(str(data).rstrip("=")) * 3 // 4  # it is base64
    mime_type = held.mime_type or "application/octet-stream"
    return model.Text(
        f"[{mime_type}, {size} bytes{of}: this protocol revision cannot carry it]"
    )
