"""Judges every message that an MCP server sends by the official JSON Schemas, and stricter than they do.

The schemas leave almost every object open. A revision's server must not send what the revision does not name, so the
oracle also walks the schema beside the message and reports each key that no part of the schema names there. Free-form
places stay free: what the schema leaves without names (`structuredContent`, `toolResult`, `data`, the values of
`experimental` and `extensions`), the contents of `_meta`, and the bodies of `inputSchema` and `outputSchema`.

The schemas are in `data/schema`: the official ones without their prose, see `data/derive.py`.

    oracle = Oracle("2025-06-18")
    oracle.sent_by_client({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert oracle.check(reply) == []
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import jsonschema
import jsonschema.validators

from tests.support.paths import DATA

Schema = dict[str, Any]

REVISIONS = (
    "2024-10-07",
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
)

JSON_RPC_CODES = frozenset({-32700, -32600, -32601, -32602, -32603})
CODES = {
    **{revision: JSON_RPC_CODES | {-32002} for revision in REVISIONS},
    "2025-11-25": JSON_RPC_CODES | {-32002, -32042},
    "2026-07-28": JSON_RPC_CODES | {-32020, -32021, -32022},
}
UNREAD_ID_CODES = frozenset({-32700, -32600})
UNREAD_ID_IS_NULL = frozenset(REVISIONS[:4])
"""JSON-RPC 2.0 section 5 demands `"id": null` where the id could not be read; later revisions leave the id out."""

# The schema of the tasks extension, which has definitions as a revision has.
TASKS = "tasks"
TASKS_IDENTIFIER = "io.modelcontextprotocol/tasks"
TASKS_REVISIONS = frozenset({"2026-07-28"})
TASK_RESULTS = {
    "tasks/get": "GetTaskResult",
    "tasks/update": "UpdateTaskResult",
    "tasks/cancel": "CancelTaskResult",
}
TASK_NOTIFICATION = "notifications/tasks"

# The schema of the skills extension, and the results of its methods. In sessions they have
# what every result has there.
SKILLS = "skills"
SKILL_RESULTS = {
    "skills/list": "ListSkillsResult",
    "skills/get": "GetSkillResult",
    "resources/directory/read": "ReadResourceDirectoryResult",
}

# The schema of the apps extension, and where results have a part of it: the result's list,
# and the definition of `_meta.ui` in its items.
APPS = "apps"
APP_PARTS = {
    "tools": "McpUiToolMeta",
    "resources": "McpUiResourceMeta",
    "contents": "McpUiResourceMeta",
}
APP_MIME_TYPE = "text/html;profile=mcp-app"
EXTENSIONS = (TASKS, SKILLS, APPS)

MAY_NEED_INPUT = frozenset({"tools/call", "prompts/get", "resources/read"})
BATCH_REVISIONS = frozenset({"2025-03-26"})
FREE_BODIES = frozenset({"inputSchema", "outputSchema"})
CHOICES = frozenset({"anyOf", "oneOf"})

AMENDMENTS: dict[str, dict[str, Schema]] = {
    # The specification's pages show these on resource contents; the schemas of the two revisions forgot them.
    "2025-06-18": {
        "TextResourceContents": {"title": {"type": "string"}},
        "BlobResourceContents": {"title": {"type": "string"}},
    },
    "2025-11-25": {
        "TextResourceContents": {"annotations": {"$ref": "#/$defs/Annotations"}},
        "BlobResourceContents": {"annotations": {"$ref": "#/$defs/Annotations"}},
    },
}
ANY_JSON = frozenset({"JSONValue"})
"""Any JSON value. (The generated schema of 2026-07-28 lost null and fractions here, and it refers to itself.)"""


# Reading a schema: every $ref is replaced by what it names, which keeps the definition's name as $comment


@cache
def raw_definitions(revision: str) -> dict[str, Schema]:
    """The definitions of one revision as they are published, with the oracle's amendments."""
    path = DATA / "schema" / f"{revision}.json"
    if revision in EXTENSIONS:
        path = DATA / "extensions" / f"{revision}.schema.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    definitions: dict[str, Schema] = document.get("$defs") or document["definitions"]
    for name, properties in AMENDMENTS.get(revision, {}).items():
        definitions[name]["properties"].update(properties)
    return definitions


@cache
def definition(revision: str, name: str) -> Schema:
    """One definition with its references resolved."""
    if name in ANY_JSON:
        return {}
    return {**resolve(raw_definitions(revision)[name], revision), "$comment": name}


def resolve(schema: Any, revision: str) -> Any:
    if isinstance(schema, list):
        return [resolve(item, revision) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return definition(revision, schema["$ref"].rpartition("/")[2])
    return {key: resolve(value, revision) for key, value in schema.items()}


@cache
def methods(revision: str, union: str) -> dict[str, str]:
    """Method -> name of its definition, for the members of ServerNotification, ServerRequest or ClientRequest."""
    definitions = raw_definitions(revision)
    if union not in definitions:
        return {}
    names = [
        member["$ref"].rpartition("/")[2] for member in definitions[union]["anyOf"]
    ]
    return {definitions[name]["properties"]["method"]["const"]: name for name in names}


@cache
def error_definitions(revision: str) -> dict[int, str]:
    """Code -> name of the definition of the whole error message, for the codes that have one."""
    found = {}
    for name, schema in raw_definitions(revision).items():
        for part in schema.get("properties", {}).get("error", {}).get("allOf", ()):
            if "const" in part.get("properties", {}).get("code", {}):
                found[part["properties"]["code"]["const"]] = name
    return found


# The schema of a whole message


def first_defined(revision: str, *names: str) -> str:
    return next(name for name in names if name in raw_definitions(revision))


@cache
def response_schema(revision: str, result: str) -> Schema:
    """The response envelope around one definition of a result."""
    envelope = definition(
        revision, first_defined(revision, "JSONRPCResultResponse", "JSONRPCResponse")
    )
    properties = {**envelope["properties"], "result": definition(revision, result)}
    return {**envelope, "properties": properties}


@cache
def error_schema(revision: str, code: int | None) -> Schema:
    name = error_definitions(revision).get(code) if code is not None else None
    return definition(
        revision,
        name or first_defined(revision, "JSONRPCErrorResponse", "JSONRPCError"),
    )


@cache
def method_schema(revision: str, envelope: str, name: str) -> Schema:
    """A request or notification. The older definitions lack `jsonrpc` and `id`: there the envelope's stand beside."""
    own = definition(revision, name)
    if "jsonrpc" in own["properties"]:
        return own
    return {"allOf": [own, {**definition(revision, envelope), "$comment": name}]}


# Judging an instance by a schema


def judge(revision: str, name: str, instance: Any) -> list[str]:
    """What is wrong with an instance of one named definition: nothing, or a line for each problem."""
    return problems(revision, definition(revision, name), instance)


def problems(revision: str, schema: Schema, instance: Any) -> list[str]:
    found = [
        line
        for error in validator(revision, schema).iter_errors(instance)
        for line in explain(error, revision)
    ]
    found += unnamed(instance, [schema], "$", revision, "message")
    return list(dict.fromkeys(found))


VALIDATORS: dict[tuple[str, int], Any] = {}
"""By revision and the identity of the schema, which the caches above keep alive."""


def validator(revision: str, schema: Schema) -> Any:
    key = (revision, id(schema))
    if key not in VALIDATORS:
        VALIDATORS[key] = dialect(revision)(schema)
    return VALIDATORS[key]


@cache
def dialect(revision: str) -> Any:
    """The validator class: the first four revisions are written in draft 7, the later ones in 2020-12."""
    return (
        jsonschema.Draft7Validator
        if revision in REVISIONS[:4]
        else jsonschema.Draft202012Validator
    )


def step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.replace("$", "").isidentifier() else f"[{json.dumps(key)}]"


def explain(error: Any, revision: str) -> list[str]:
    """A validation error as lines that say where; of a choice, only what concerns the branch that was meant."""
    if error.validator in CHOICES:
        return explain_choice(error, revision)
    where = "$" + "".join(map(step, error.absolute_path))
    message = (
        error.message
        if len(error.message) <= 200
        else f"{error.message[:80]} ... {error.message[-100:]}"
    )
    return [f"{where}: {message} ({revision})"]


def explain_choice(error: Any, revision: str) -> list[str]:
    branches = error.validator_value
    meant = [
        index
        for index, branch in enumerate(branches)
        if is_meant(branch, error.instance)
    ]
    if not meant:
        return [wrong_tag(error, branches, revision)]
    by_branch = [
        [sub for sub in error.context if sub.relative_schema_path[0] == index]
        for index in meant
    ]
    return [line for sub in min(by_branch, key=len) for line in explain(sub, revision)]


def wrong_tag(error: Any, branches: list[Schema], revision: str) -> str:
    """The line for a union whose tag (`type`, `mode`, `method`) names no branch: an audio content in 2024-11-05."""
    where = "$" + "".join(map(step, error.absolute_path))
    for tag in ("type", "mode", "method"):
        known = sorted(
            {tags(branch)[tag] for branch in branches if tag in tags(branch)}
        )
        if known and isinstance(error.instance, dict):
            return f"{where}.{tag}: {error.instance.get(tag)!r} is not named by {revision} (only {', '.join(known)})"
    return f"{where}: {type(error.instance).__name__} fits no branch of the schema ({revision})"


def tags(branch: Schema) -> dict[str, Any]:
    return {
        key: value["const"]
        for key, value in branch.get("properties", {}).items()
        if "const" in value
    }


def is_meant(branch: Schema, value: Any) -> bool:
    """Whether the branch is of the value's kind and none of the tags which the value carries contradicts it."""
    if not isinstance(value, dict):
        return "properties" not in branch
    if branch.get("type", "object") != "object":
        return False
    return all(value.get(key, const) == const for key, const in tags(branch).items())


# The walk: keys that no part of the schema names


def parts(schema: Schema, value: Any, revision: str) -> Iterator[Schema]:
    """The schema and, within it, all that applies to this value: each of allOf, the fitting branches of anyOf."""
    yield schema
    applying = list(schema.get("allOf", ()))
    for choice in schema.keys() & CHOICES:
        applying += fitting(schema[choice], value, revision) or [
            {}
        ]  # no branch: the validation says so already
    for part in applying:
        yield from parts(part, value, revision)


def fitting(branches: Iterable[Schema], value: Any, revision: str) -> list[Schema]:
    meant = [branch for branch in branches if is_meant(branch, value)]
    if len(meant) < 2:
        return meant
    return [
        branch for branch in meant if validator(revision, branch).is_valid(value)
    ] or meant


def unnamed(
    value: Any, schemas: Iterable[Schema], where: str, revision: str, owner: str
) -> Iterator[str]:
    """Every key in the value, however deep, that none of the schemas which apply together names."""
    if not isinstance(value, dict | list):
        return
    applying = [part for schema in schemas for part in parts(schema, value, revision)]
    if isinstance(value, dict):
        yield from unnamed_in_object(value, applying, where, revision, owner)
    elif items := [part["items"] for part in applying if "items" in part]:
        for index, item in enumerate(value):
            yield from unnamed(item, items, f"{where}[{index}]", revision, owner)


def unnamed_in_object(
    value: dict[str, Any], applying: list[Schema], where: str, revision: str, owner: str
) -> Iterator[str]:
    names = [
        part["$comment"]
        for part in applying
        if "$comment" in part and "properties" in part
    ]
    owner = " or ".join(dict.fromkeys(names)) or owner
    is_open = any(map(leaves_unnamed, applying)) or where.endswith("._meta")
    for key, inner in value.items():
        naming = [schema for part in applying for schema in named(part, key)]
        if naming and key not in FREE_BODIES:
            yield from unnamed(inner, naming, where + step(key), revision, owner)
        elif not naming and not is_open:
            yield f"{where}{step(key)}: not named by {revision} ({owner})"


def named(part: Schema, key: str) -> list[Schema]:
    """The schema that this part has for the key: its own, or that of a map whose values are described."""
    if key in part.get("properties", {}):
        return [part["properties"][key]]
    described = part.get("additionalProperties")
    return [described] if isinstance(described, dict) and described else []


def leaves_unnamed(part: Schema) -> bool:
    """Whether the part names no key on purpose. `additionalProperties: {}` beside names does not free the rest."""
    if part.get("properties") or part.keys() & {"allOf", *CHOICES}:
        return False
    return part.get("additionalProperties", "properties" not in part) in ({}, True)


# Extensions


def is_task(result: Any) -> bool:
    """Whether a result says that a task was created."""
    return isinstance(result, dict) and result.get("resultType") == "task"


def without_extensions(message: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The message without what extensions may add anywhere; and what is wrong with that.

    A server names its extensions to clients that named theirs, in every revision. An
    acknowledged subscription has the filters of extensions.
    """
    message = json.loads(json.dumps(message))
    found = []
    result = message.get("result")
    capabilities = result.get("capabilities") if isinstance(result, dict) else None
    if isinstance(capabilities, dict) and "extensions" in capabilities:
        extensions = capabilities.pop("extensions")
        values = extensions.values() if isinstance(extensions, dict) else [None]
        if not all(isinstance(value, dict) for value in values):
            found.append("$.result.capabilities.extensions: not a map of objects")
    if message.get("method") == "notifications/subscriptions/acknowledged":
        ids = message["params"]["notifications"].pop("taskIds", [])
        found += problems(
            TASKS,
            definition(TASKS, "TaskSubscriptionAcknowledgedNotifications"),
            {"taskIds": ids},
        )
    return message, found


def problems_of_apps(result: Any) -> list[str]:
    """What is wrong with what a result says about pages of apps."""
    found = []
    for key, name in APP_PARTS.items():
        items = result.get(key) if isinstance(result, dict) else None
        for index, item in enumerate(items if isinstance(items, list) else ()):
            where = f"$.result.{key}[{index}]"
            if "ui" in item.get("_meta", {}):
                lines = judge(APPS, name, item["_meta"]["ui"])
                found += [f"{where}._meta.ui{line[1:]}" for line in lines]
            if item.get("uri", "").startswith("ui://"):
                mime_type = item.get("mimeType")
                if mime_type != APP_MIME_TYPE:
                    found.append(f"{where}.mimeType: {mime_type!r} for a page")
    return found


# Judging a conversation


class Oracle:
    """Judges the messages of one server to one client, in one revision."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self._asked: dict[str | int, list[Any]] = {}

    def sent_by_client(self, message: Any) -> None:
        """Remember what the client asked, so that the response can be judged by the method. Takes batches too."""
        for one in message if isinstance(message, list) else [message]:
            if not isinstance(one, dict) or "result" in one or "error" in one:
                continue
            if isinstance(one.get("id"), str | int):
                self._asked.setdefault(one["id"], []).append(one.get("method"))

    def check(self, message: Any) -> list[str]:
        """What is wrong with one message that the server sent; an empty list where all is well."""
        return (
            self._check_batch(message)
            if isinstance(message, list)
            else self._check_one(message)
        )

    def _check_batch(self, batch: list[Any]) -> list[str]:
        if self.revision not in BATCH_REVISIONS:
            return [f"$: a batch, which {self.revision} does not have"]
        if not batch:
            return ["$: an empty batch"]
        found = [
            f"$[{index}]{line[1:]}"
            for index, one in enumerate(batch)
            for line in self._check_one(one)
        ]
        if len({"method" in one for one in batch if isinstance(one, dict)}) > 1:
            found.append(
                f"$: responses share a batch with requests or notifications ({self.revision})"
            )
        return found

    def _check_one(self, message: Any) -> list[str]:
        if not isinstance(message, dict):
            return [f"$: {type(message).__name__} is no JSON-RPC message"]
        if "method" in message:
            return self._check_method(message)
        if "error" in message:
            return self._check_error(message)
        if "result" in message:
            return self._check_result(message)
        return ["$: neither method, result nor error"]

    def _check_method(self, message: dict[str, Any]) -> list[str]:
        kind = "Request" if "id" in message else "Notification"
        known = methods(self.revision, f"Server{kind}")
        method = message["method"]
        if method == TASK_NOTIFICATION and self.revision in TASKS_REVISIONS:
            return self._check_task(message, "TaskStatusNotification", "params")
        message, found = without_extensions(message)
        if not isinstance(method, str) or method not in known:
            return [
                f"$.method: {method!r} is not named by {self.revision} (Server{kind})"
            ]
        return found + problems(
            self.revision,
            method_schema(self.revision, f"JSONRPC{kind}", known[method]),
            message,
        )

    def _check_task(self, message: dict[str, Any], name: str, key: str) -> list[str]:
        """Judge a message of the tasks extension, and the result in it by the tool's."""
        if key == "params":
            found = problems(TASKS, definition(TASKS, name), message)
        else:
            found = problems(TASKS, definition(TASKS, name), message[key])
        result = message[key].get("result") if isinstance(message[key], dict) else None
        if result is not None:
            found += judge(self.revision, "CallToolResult", result)
        return found

    def _check_skills(self, name: str, result: Any) -> list[str]:
        """Judge a result of the skills extension, and the resources in it."""
        if self.revision not in TASKS_REVISIONS:
            name += "InSession"
        found = problems(SKILLS, definition(SKILLS, name), result)
        for item in result.get("resources", ()):
            found += judge(self.revision, "Resource", item)
        return found

    def _check_result(self, message: dict[str, Any]) -> list[str]:
        method, found = self._answered(message.get("id"))
        if found:
            return found
        if self.revision in TASKS_REVISIONS:
            if method in TASK_RESULTS:
                return self._check_task(message, TASK_RESULTS[method], "result")
            if method == "tools/call" and is_task(message["result"]):
                return self._check_task(message, "CreateTaskResult", "result")
        if method in SKILL_RESULTS:
            return self._check_skills(SKILL_RESULTS[method], message["result"])
        message, found = without_extensions(message)
        found += problems_of_apps(message["result"])
        name = self._result_name(method, message["result"])
        if name is None:
            return [
                f"$.result: a result for {method!r}, which {self.revision} does not have"
            ]
        found += problems(self.revision, response_schema(self.revision, name), message)
        return found + self._check_result_type(name, message["result"])

    def _result_name(self, method: Any, result: Any) -> str | None:
        requests = methods(self.revision, "ClientRequest")
        if not isinstance(method, str) or method not in requests:
            return None
        needs_input = (
            isinstance(result, dict) and result.get("resultType") == "input_required"
        )
        names = (
            ["InputRequiredResult"] if needs_input and method in MAY_NEED_INPUT else []
        )
        return first_defined(
            self.revision,
            *names,
            requests[method].removesuffix("Request") + "Result",
            "EmptyResult",
        )

    def _check_result_type(self, name: str, result: Any) -> list[str]:
        if not isinstance(result, dict) or "resultType" not in definition(
            self.revision, name
        ).get("properties", {}):
            return []
        if name == "InputRequiredResult":
            asks = "inputRequests" in result or "requestState" in result
            return (
                []
                if asks
                else [
                    "$.result: input_required with neither inputRequests nor requestState"
                ]
            )
        wanted = result.get("resultType", "complete")
        return (
            []
            if wanted == "complete"
            else [f"$.result.resultType: {wanted!r} is not open to {name}"]
        )

    def _check_error(self, message: dict[str, Any]) -> list[str]:
        error = message["error"] if isinstance(message["error"], dict) else {}
        code = error.get("code") if isinstance(error.get("code"), int) else None
        found = []
        if message.get("id") is not None:
            found = self._answered(message["id"])[1]
        elif (
            "id" in message
            and self.revision in UNREAD_ID_IS_NULL
            and code in UNREAD_ID_CODES
        ):
            message = {**message, "id": ""}
        if code is not None and code not in CODES[self.revision]:
            found.append(f"$.error.code: {code} is not named by {self.revision}")
        found += problems(self.revision, error_schema(self.revision, code), message)
        return found + self._check_invalid_params(code, error)

    def _check_invalid_params(
        self, code: int | None, error: dict[str, Any]
    ) -> list[str]:
        """2024-10-07 says `Invalid params` and gives the reason in the data."""
        if self.revision != "2024-10-07" or code != -32602:
            return []
        data = error.get("data")
        found = []
        if error.get("message") != "Invalid params":
            found.append(
                f"$.error.message: {error.get('message')!r}, wanted 'Invalid params' (2024-10-07)"
            )
        if not isinstance(data, dict) or not isinstance(data.get("reason"), str):
            found.append("$.error.data.reason: a string is wanted (2024-10-07)")
        return found

    def _answered(self, request_id: Any) -> tuple[Any, list[str]]:
        """The method that the id stands for, which is then answered; or a problem."""
        asked = (
            self._asked.get(request_id) if isinstance(request_id, str | int) else None
        )
        if not asked:
            return None, [f"$.id: {request_id!r} answers no open request of the client"]
        return asked.pop(0), []
