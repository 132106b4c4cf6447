"""What a protocol revision consists of: tables, flags, and how it writes results.

The server works with neutral values (`mcp_trio.protocol.types`). A revision writes such
a value in its own form: `Revision.shape` keeps the fields that the revision's table
names, and methods such as `Revision.tool_result` build what each revision builds
differently.

Each other module of this package is one revision: a subclass of its predecessor that
says only what differs from it. Classes never change. An instance belongs to one server,
because results carry the server's name.

A revision says that a method exists. Its params are in `mcp_trio.protocol.params`, and
the function that answers it is in `mcp_trio.server.handlers`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

from msgspec import UNSET, Raw, Struct

from .. import errors, types
from ..jsonrpc import encode, encode_notification, encode_text
from ..params import LogLevel
from ..sanitize import SHORT, strip_controls
from ..types import Json

# The levels of log messages, least important first.
LEVELS: tuple[str, ...] = get_args(LogLevel)

# The entries of a table that list names; each becomes an attribute of the revision.
LISTS = (
    "requests",  # methods that the client may call
    "notifications",  # notifications that the client may send
    "asks",  # methods that the server may call
    "tells",  # notifications that the server may send
    "capabilities",  # capabilities that the server may have
)

# Stand for the text and the structured content of a tool's result that is encoded in
# advance.
_TEXT = "\ue000the text\ue000"
_STRUCTURED = "\ue000the structured content\ue000"

PROGRESS = "notifications/progress"


class Table(dict[type | str, frozenset[str]]):
    """The names that a revision knows.

    A key is one of `LISTS`, or a class of `mcp_trio.protocol.types`, or a method. The
    value is the set of names in that list, of fields that the revision writes for that
    class, or of params that it writes for that method.
    """

    def plus(self, changes: str) -> "Table":
        """Return this table with changes, as the next revision has it.

        `changes` has one change on each line: keys, a colon, and names to add to each
        of the keys. A name with a minus in front is removed instead. Keys that begin
        with a capital letter are classes. For example:

            requests: resources/templates/list -ping
            Text Image: annotations
            notifications/progress: message
        """
        table = Table(self)
        for line in changes.strip().splitlines():
            keys, names = line.split(":")
            added = set()
            removed = set()
            for name in names.split():
                if name.startswith("-"):
                    removed.add(name[1:])
                else:
                    added.add(name)
            for word in keys.split():
                key = getattr(types, word) if word[0].isupper() else word
                table[key] = table.get(key, frozenset()) - removed | added
        return table


class Revision:
    """One revision of the protocol, as one server speaks it."""

    # The date that names the revision.
    name: ClassVar[str]
    table: ClassVar[Table]

    # Taken from the table; see LISTS.
    requests: ClassVar[frozenset[str]]
    notifications: ClassVar[frozenset[str]]
    asks: ClassVar[frozenset[str]]
    tells: ClassVar[frozenset[str]]
    capabilities: ClassVar[frozenset[str]]

    # Whether a session begins with `initialize`. If not, each request names its
    # revision itself. Taken from the table.
    opens: ClassVar[bool]
    # Whether a client may send several messages in one array.
    batches: ClassVar[bool] = False
    # Whether a client may resume a session's event stream over HTTP.
    resumes: ClassVar[bool] = False
    # Whether such a stream begins with an event that only carries an id.
    primes: ClassVar[bool] = False
    # Whether something can be kept and announced between two requests.
    keeps_sessions: ClassVar[bool] = True
    # Whether lists have pages.
    pages: ClassVar[bool] = True
    # Whether structured content is always an object; other values are put into one.
    wraps: ClassVar[bool] = False
    # Whether an error without a readable id has no id; if not, the id is null.
    errors_without_id: ClassVar[bool] = False

    # Level of a log message -> what the revision calls it.
    levels: ClassVar[dict[str, str]] = {level: level for level in LEVELS}
    # Kind of error -> the kind whose code it has in this revision, if not its own.
    codes_of: ClassVar[
        Mapping[type[errors.ProtocolError], type[errors.ProtocolError]]
    ] = {
        errors.HeaderMismatch: errors.InvalidRequest,
        errors.UnsupportedVersion: errors.InvalidRequest,
        errors.MissingClientCapability: errors.InternalError,
        errors.UrlElicitationRequired: errors.InternalError,
    }
    # The kinds of error that tools/call reports in a result.
    tool_failures: ClassVar[frozenset[type[errors.ProtocolError]]] = frozenset(
        {errors.InternalError}
    )

    def __init_subclass__(cls) -> None:
        for name in LISTS:
            setattr(cls, name, cls.table[name])
        cls.opens = "initialize" in cls.requests

    def __init__(
        self, server: types.Implementation, instructions: str | None = None
    ) -> None:
        self.server = server
        self.instructions = instructions
        result = types.ToolResult([types.Text(_TEXT)])
        encoded = encode(self.tool_result(result))
        self._before_text, self._after_text = encoded.split(encode(_TEXT))
        self._structured_template = self._template({_STRUCTURED: None}, wrapped=False)
        self._wrapped_template = self._template(_STRUCTURED, wrapped=True)

    # Results and params, as values that can be encoded as JSON

    def shape(self, value: Any) -> Any:
        """Return a value as this revision writes it.

        An object keeps the fields that the revision names and nothing else. Content
        that the revision does not have becomes text.
        """
        if isinstance(value, str):
            return strip_controls(value)
        if isinstance(value, list):
            return [self.shape(item) for item in value]
        if not isinstance(value, Struct):
            return value
        if isinstance(value, types.CONTENT_TYPES) and type(value) not in self.table:
            value = _as_text(value)
        attributes = zip(
            value.__struct_encode_fields__, value.__struct_fields__, strict=True
        )
        given = {key: getattr(value, attribute) for key, attribute in attributes}
        fields = self.permitted(self._known_class(type(value)), given)
        tag = value.__struct_config__.tag
        return {"type": tag, **fields} if tag else fields

    def _known_class(self, cls: type) -> type:
        """Return the class in the table that a class is or derives from."""
        for base in cls.__mro__:
            if base in self.table:
                return base
        return Struct

    def permitted(self, kind: type | str, fields: Json) -> Json:
        """Return the fields that this revision names for a class or a method.

        Fields that are None are left out.
        """
        allowed = self.table.get(kind, frozenset())
        shaped = {}
        for key, value in fields.items():
            if key in allowed and value is not None:
                shaped[key] = self.shape(value)
        return shaped

    def result(
        self, shaped: Json, meta: Json | None = None, *, cacheable: bool = False
    ) -> Json:
        """Return a result with the fields of every result in this revision.

        `cacheable` says that the result may carry hints for caching.
        """
        return {**shaped, "_meta": meta} if meta else shaped

    def tool_result(self, result: types.ToolResult) -> Json:
        """Return the result of tools/call."""
        shaped: Json = {"content": self.shape(result.content)}
        names = self.table[types.ToolResult]
        if result.structured is UNSET or "structuredContent" not in names:
            shaped["isError"] = result.is_error
            return self.result(shaped, result.meta)
        if result.is_error:
            shaped["isError"] = True
        structured = result.structured
        is_object = isinstance(structured, dict | Raw) and not result.wrapped
        if self.wraps and not is_object:
            structured = {"result": structured}
        shaped["structuredContent"] = structured
        return self.result(shaped, result.meta)

    def introduction(
        self,
        method: str,
        features: Mapping[str, Json],
        versions: Sequence[str],
        extensions: Mapping[str, Json] | None = None,
    ) -> Json:
        """Return the result of initialize or server/discover.

        `features` are the server's capabilities in all revisions, and `versions` the
        names of the revisions that it supports. `extensions` are capabilities too. They
        are an exception to the table: older revisions have them for clients that asked.
        """
        capabilities: dict[str, Json] = {
            name: value for name, value in features.items() if name in self.capabilities
        }
        if not self.keeps_sessions:
            # What remains is only about changes.
            capabilities = {name: {} for name in capabilities}
        if extensions:
            capabilities["extensions"] = dict(extensions)
        fields = {
            "protocolVersion": self.name,
            "supportedVersions": versions,
            "capabilities": capabilities,
            "serverInfo": self.server,
            "instructions": self.instructions,
        }
        return self.result(self.permitted(method, fields), cacheable=True)

    def listing(self, items: Mapping[str, Sequence[Any]], cursor: str | None) -> Json:
        """Return the result of a list request.

        `items` are the lists by their key, and `cursor` leads to the next page.
        """
        shaped = {key: self.shape(list(values)) for key, values in items.items()}
        if cursor is not None and self.pages:
            shaped["nextCursor"] = cursor
        return self.result(shaped, cacheable=True)

    def error(self, error: errors.ProtocolError) -> Json:
        """Return the error object of an error response."""
        shaped: Json = {
            "code": self.kind_of(error).code,
            "message": strip_controls(error.message),
        }
        if error.data is not None:
            shaped["data"] = error.data
        return shaped

    def kind_of(self, error: errors.ProtocolError) -> type[errors.ProtocolError]:
        """Return the kind whose code an error has in this revision."""
        return self.codes_of.get(error.kind, error.kind)

    # Results and messages, encoded

    def encode_text(self, text: str) -> bytes:
        """Encode the result of a tool that returns one plain text.

        Most tools do, so everything except the text is encoded in advance.
        """
        # Most texts are short and printable; they need no call.
        if len(text) >= SHORT or not text.isprintable():
            text = strip_controls(text)
        return b"".join((self._before_text, encode_text(text), self._after_text))

    def encode_structured(self, result: types.StructuredContent) -> bytes:
        """Encode the result of a tool that has only structured content.

        Its JSON is also the text, for clients without structured content.
        """
        text = result.encoded.decode()
        if len(text) >= SHORT or not text.isprintable():
            text = strip_controls(text)
        template = self._structured_template
        if result.wrapped:
            template = self._wrapped_template
        return template % {b"text": encode(text), b"structured": result.encoded}

    def _template(self, structured: Any, *, wrapped: bool) -> bytes:
        """Return a result with gaps for the text and the structured content.

        `structured` is what the result has in the second gap.
        """
        result = types.ToolResult([types.Text(_TEXT)], structured, wrapped=wrapped)
        encoded = encode(self.tool_result(result)).replace(b"%", b"%%")
        encoded = encoded.replace(encode(_TEXT), b"%(text)b")
        return encoded.replace(encode(structured), b"%(structured)b")

    def notification(self, method: str, params: Json) -> bytes | None:
        """Encode a notification; return None if the revision does not have it."""
        if method not in self.tells:
            return None
        return encode_notification(method, self.permitted(method, params))

    def progress(
        self,
        token: int | str,
        done: float,
        total: float | None,
        message: str | None,
    ) -> bytes:
        """Encode a report of progress.

        It is what `notification` returns too. A function that does nothing but report
        takes a third fewer instructions.
        """
        params: Json = {"progressToken": self.shape(token), "progress": done}
        if total is not None:
            params["total"] = total
        if message is not None and "message" in self.table[PROGRESS]:
            params["message"] = self.shape(message)
        return encode_notification(PROGRESS, params)

    def question(self, id: str, method: str, params: Json) -> bytes:
        """Encode a request to the client."""
        request = self.input_request(method, params)
        return encode({"jsonrpc": "2.0", "id": id, **request})

    def input_request(self, method: str, params: Json) -> Json:
        """Return the method and params of a request to the client."""
        return {"method": method, "params": self.permitted(method, params)}


def _as_text(content: Any) -> types.Text:
    """Return text in place of content that a revision does not have."""
    if isinstance(content, types.ResourceLink):
        title = content.title or content.name
        return types.Text(f"Resource: {title} ({content.uri})")
    if isinstance(content, types.EmbeddedResource):
        held = content.resource
        if isinstance(held, types.TextContents):
            return types.Text(held.text)
        return _omitted(held.blob, held.mime_type, f", {held.uri}")
    if isinstance(content, types.Text):
        return types.Text(content.text)
    return _omitted(content.data, content.mime_type)


def _omitted(data: str | bytes, mime_type: str | None, source: str = "") -> types.Text:
    """Return text that describes data, which is base64."""
    size = len(str(data).rstrip("=")) * 3 // 4
    mime_type = mime_type or "application/octet-stream"
    return types.Text(
        f"[{mime_type}, {size} bytes{source}: this protocol revision cannot carry it]"
    )
