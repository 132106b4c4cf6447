"""What a revision is: its tables, which are the gate, and the functions that write a neutral value in its shape.

Each file beside this one is a revision, written as a subclass of its predecessor: it says only what differs. A
revision is made once for a server, whose name it has to give, and is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ..errors import (
    TABLE,
    HeaderMismatch,
    InternalError,
    InvalidRequest,
    MissingClientCapability,
    ProtocolError,
    UnsupportedVersion,
    UrlElicitationRequired,
    kind_of,
)
from ..jsonrpc import encode, encode_notification, encode_request
from ..model import (
    Completion,
    Content,
    Implementation,
    Json,
    PromptResult,
    Text,
    ToolResult,
)

INVALID_REQUEST = TABLE[InvalidRequest][0]
INTERNAL_ERROR = TABLE[InternalError][0]
_MARK = "\x1fthe text\x1f"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def names(words: str) -> frozenset[str]:
    """A table, as it is written in the revisions: words with spaces between."""
    return frozenset(words.split())


class Fields(dict[type | str, frozenset[str]]):
    """Type (or method, for its params) -> the keys that may go out in it."""

    def plus(self, more: Mapping[type | str, str]) -> Fields:
        """This table and what a later revision adds to it."""
        return Fields({**self, **{key: self.get(key, frozenset()) | names(words) for key, words in more.items()}})


class Revision:
    """One revision of the protocol, as spoken by one server."""

    name: ClassVar[str]
    opens: ClassVar[bool] = True  # by `initialize`; else each request says its revision itself
    batches: ClassVar[bool] = False
    resumes: ClassVar[bool] = False  # whether a client may come back to a stream over HTTP
    primes: ClassVar[bool] = False  # whether such a stream begins with an event that says where it is
    pages: ClassVar[bool] = True
    requests: ClassVar[frozenset[str]]
    notifications: ClassVar[frozenset[str]]
    asks: ClassVar[frozenset[str]]
    tells: ClassVar[frozenset[str]]
    capabilities: ClassVar[frozenset[str]]
    fields: ClassVar[Fields]
    levels: ClassVar[Mapping[str, str]] = {level: level for level in LEVELS}
    codes: ClassVar[Mapping[type[ProtocolError], int]] = {  # where they are not TABLE's: kinds without a code here
        HeaderMismatch: INVALID_REQUEST,
        UnsupportedVersion: INVALID_REQUEST,
        MissingClientCapability: INTERNAL_ERROR,
        UrlElicitationRequired: INTERNAL_ERROR,
    }
    tool_failures: ClassVar[frozenset[type[ProtocolError]]] = frozenset(  # what tools/call answers by a result
        {InternalError, MissingClientCapability, UrlElicitationRequired}
    )
    errors_without_id: ClassVar[bool] = False  # whether an error to an unreadable id leaves it out, or has null
    elicits_lists: ClassVar[bool] = True
    elicits_urls: ClassVar[bool] = False

    def __init__(self, server: Implementation, instructions: str | None = None) -> None:
        self.server = server
        self.instructions = instructions
        plain = encode(self.tool_result(ToolResult([Text(_MARK)])))
        self._before_text, self._after_text = plain.split(encode(_MARK))

    def has(self, method: str) -> bool:
        """Whether a client may send this request."""
        return method in self.requests

    # What goes out, as JSON-able values. Each names exactly what the revision names.

    def shape(self, value: Any) -> Any:
        """A model as this revision writes it: the fields that it names, and nothing else."""
        if isinstance(value, list):
            return [self.shape(item) for item in value]
        if not isinstance(value, msgspec.Struct):
            return value
        allowed = self.fields.get(type(value), frozenset())
        tag = value.__struct_config__.tag
        shaped: Json = {"type": tag} if tag else {}
        for attribute, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            if key in allowed and (item := getattr(value, attribute)) is not None:
                shaped[key] = self.shape(item)
        return shaped

    def content(self, item: Content) -> Json:
        """One piece of content; what the revision cannot carry becomes text that says so."""
        shaped: Json = self.shape(item)
        return shaped

    def tool_result(self, result: ToolResult) -> Json:
        """The result of tools/call."""
        shaped: Json = {"content": [self.content(item) for item in result.content]}
        if result.is_error or result.structured is msgspec.UNSET or "structuredContent" not in self.fields[ToolResult]:
            shaped["isError"] = result.is_error
        return self._with_meta(shaped, result.meta)

    def initialize_result(self, features: Mapping[str, Json]) -> Json:
        """The result of initialize; `features` are the capabilities that the server has in any revision."""
        return {
            "protocolVersion": self.name,
            "capabilities": self.server_capabilities(features),
            "serverInfo": self.shape(self.server),
        }

    def server_capabilities(self, features: Mapping[str, Json]) -> Json:
        """Those of the server's capabilities that this revision knows."""
        return {name: value for name, value in features.items() if name in self.capabilities}

    def listing(self, items: Mapping[str, Sequence[Any]], cursor: str | None) -> Json:
        """The result of a list request: `items` by their key, and the cursor of the next page."""
        shaped: Json = {key: [self.shape(item) for item in some] for key, some in items.items()}
        if cursor is not None and self.pages:
            shaped["nextCursor"] = cursor
        return shaped

    def read_result(self, contents: Sequence[Any]) -> Json:
        """The result of resources/read."""
        return {"contents": [self.shape(item) for item in contents]}

    def prompt_result(self, result: PromptResult) -> Json:
        """The result of prompts/get."""
        messages = [{"role": message.role, "content": self.content(message.content)} for message in result.messages]
        shaped: Json = {"messages": messages}
        if result.description is not None:
            shaped["description"] = result.description
        return self._with_meta(shaped, result.meta)

    def completion_result(self, completion: Completion) -> Json:
        """The result of completion/complete."""
        return {"completion": self.shape(completion)}

    def empty_result(self) -> Json:
        """The result of a request that has nothing to say."""
        return {}

    def error(self, error: ProtocolError) -> Json:
        """The error object of an error response."""
        kind = kind_of(error)
        shaped: Json = {"code": self.codes.get(kind, TABLE[kind][0]), "message": error.message}
        if error.data is not None:
            shaped["data"] = error.data
        return shaped

    # What goes out, as bytes.

    def encode_tool_result(self, result: ToolResult) -> bytes:
        """The result of tools/call, encoded."""
        return encode(self.tool_result(result))

    def encode_text(self, text: str) -> bytes:
        """The same for a tool that answers one plain text, as most do: everything but the text is ready."""
        return b"%b%b%b" % (self._before_text, encode(text), self._after_text)

    def notification(self, method: str, params: Json) -> bytes | None:
        """A notification to the client, or None where the revision has none of the kind."""
        if method not in self.tells:
            return None
        return encode_notification(method, self._permitted(method, params))

    def question(self, id: str, method: str, params: Json) -> bytes:
        """A request to the client."""
        return encode_request(id, method, self._permitted(method, params))

    def input_request(self, method: str, params: Json) -> Json:
        """The same as one of the questions of a result."""
        return {"method": method, "params": self._permitted(method, params)}

    def _permitted(self, method: str, params: Json) -> Json:
        allowed = self.fields.get(method, frozenset())
        return {key: self.shape(value) for key, value in params.items() if key in allowed and value is not None}

    def _with_meta(self, shaped: Json, meta: Json | None) -> Json:
        if meta:
            shaped["_meta"] = {**shaped.get("_meta", {}), **meta}
        return shaped
