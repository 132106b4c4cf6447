"""Checks every message of an MCP server by the official JSON Schemas, and stricter."""

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

# The schema of the skills extension, and the results of its methods. In sessions they
# have what every result has there.
SKILLS = "skills"
SKILL_RESULTS = {
    "skills/list": "ListSkillsResult",
    "skills/get": "GetSkillResult",
    "resources/directory/read": "ReadResourceDirectoryResult",
}

# The schema of the apps extension, and where results have a part of it: the result's
# list, and the definition of `_meta.ui` in its items.
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
    # The specification's pages have these keys in resource contents, but the schemas of
    # the two revisions lack them.
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
"""Any JSON value. In 2026-07-28 this definition is recursive and lacks null and fractions."""


# Reading a schema: each $ref becomes its definition, whose name becomes $comment


@cache
def raw_definitions(revision: str) -> dict[str, Schema]:
    """Return the published definitions of a revision, with the oracle's amendments."""
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
    """Return a definition with its references resolved."""
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
    """Return method -> name of its definition, for the members of a union.

    Unions are ServerNotification, ServerRequest and ClientRequest.
    """
    definitions = raw_definitions(revision)
    if union not in definitions:
        return {}
    names = [
        member["$ref"].rpartition("/")[2] for member in definitions[union]["anyOf"]
    ]
    return {definitions[name]["properties"]["method"]["const"]: name for name in names}


@cache
def error_definitions(revision: str) -> dict[int, str]:
    """Return code -> name of the definition of the whole error message."""
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
    """Return the schema of a response whose result has this definition."""
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
    """Return the schema of a request or notification.

    Older definitions lack `jsonrpc` and `id`, which the envelope adds.
    """
    own = definition(revision, name)
    if "jsonrpc" in own["properties"]:
        return own
    return {"allOf": [own, {**definition(revision, envelope), "$comment": name}]}


# Validating an instance


def judge(revision: str, name: str, instance: Any) -> list[str]:
    """Return the problems of an instance of a definition, one per line."""
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
    """Return the validator: draft 7 for the first four revisions, else 2020-12."""
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
    """Return the lines that describe a validation error, and its place.

    Of a union, only the errors of the intended branch are described.
    """
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
    """Return the line for a tag that names no branch of a union.

    Tags are `type`, `mode` and `method`. For example, 2024-11-05 has no audio content.
    """
    where = "$" + "".join(map(step, error.absolute_path))
    for tag in ("type", "mode", "method"):
        known = sorted(
            {tags(branch)[tag] for branch in branches if tag in tags(branch)}
        )
        if known and isinstance(error.instance, dict):
            value = error.instance.get(tag)
            names = ", ".join(known)
            return f"{where}.{tag}: {value!r} is not named by {revision} (only {names})"
    kind = type(error.instance).__name__
    return f"{where}: {kind} fits no branch of the schema ({revision})"


def tags(branch: Schema) -> dict[str, Any]:
    return {
        key: value["const"]
        for key, value in branch.get("properties", {}).items()
        if "const" in value
    }


def is_meant(branch: Schema, value: Any) -> bool:
    """Return whether a branch has the value's type and does not contradict its tags."""
    if not isinstance(value, dict):
        return "properties" not in branch
    if branch.get("type", "object") != "object":
        return False
    return all(value.get(key, const) == const for key, const in tags(branch).items())


# Keys that no part of the schema names


def parts(schema: Schema, value: Any, revision: str) -> Iterator[Schema]:
    """Return the schema, and all schemas in it that apply to this value.

    These are each schema in allOf, and the matching branches of anyOf.
    """
    yield schema
    applying = list(schema.get("allOf", ()))
    for choice in schema.keys() & CHOICES:
        branches = fitting(schema[choice], value, revision)
        # If no branch matches, the validation has already reported it.
        applying += branches or [{}]
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
    """Return every key in the value, at any depth, that no applicable schema names."""
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
    """Return the schemas that this part has for a key."""
    if key in part.get("properties", {}):
        return [part["properties"][key]]
    described = part.get("additionalProperties")
    return [described] if isinstance(described, dict) and described else []


def leaves_unnamed(part: Schema) -> bool:
    """Return whether the part allows unnamed keys.

    If it also names keys, `additionalProperties: {}` does not allow others.
    """
    if part.get("properties") or part.keys() & {"allOf", *CHOICES}:
        return False
    return part.get("additionalProperties", "properties" not in part) in ({}, True)


# Extensions


def is_task(result: Any) -> bool:
    """Return whether a result is a task that was created."""
    return isinstance(result, dict) and result.get("resultType") == "task"


def without_extensions(message: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the message without what extensions may add, and the problems in that.

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
    """Return the problems in a result that describes pages of apps."""
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


# Checking a conversation


class Oracle:
    """Checks the messages of one server to one client, in one revision."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self._asked: dict[str | int, list[Any]] = {}

    def sent_by_client(self, message: Any) -> None:
        """Remember the requests of a message or batch, to check their responses."""
        for one in message if isinstance(message, list) else [message]:
            if not isinstance(one, dict) or "result" in one or "error" in one:
                continue
            if isinstance(one.get("id"), str | int):
                self._asked.setdefault(one["id"], []).append(one.get("method"))

    def check(self, message: Any) -> list[str]:
        """Return the problems of a message that the server sent."""
        if isinstance(message, list):
            return self._check_batch(message)
        return self._check_one(message)

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
                "$: responses share a batch with requests or notifications "
                f"({self.revision})"
            )
        return found

    def _check_one(self, message: Any) -> list[str]:
        if not isinstance(message, dict):
            return [f"$: {type(message).__name__} is not a JSON-RPC message"]
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
        """Check a message of the tasks extension, and the result in it."""
        if key == "params":
            found = problems(TASKS, definition(TASKS, name), message)
        else:
            found = problems(TASKS, definition(TASKS, name), message[key])
        result = message[key].get("result") if isinstance(message[key], dict) else None
        if result is not None:
            found += judge(self.revision, "CallToolResult", result)
        return found

    def _check_skills(self, name: str, result: Any) -> list[str]:
        """Check a result of the skills extension, and the resources in it."""
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
                f"$.result: a result for {method!r}, "
                f"which {self.revision} does not have"
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
            if asks:
                return []
            return [
                "$.result: input_required with neither inputRequests nor requestState"
            ]
        result_type = result.get("resultType", "complete")
        if result_type == "complete":
            return []
        return [f"$.result.resultType: {result_type!r} is not open to {name}"]

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
        """In 2024-10-07 the message is `Invalid params`. The data has the reason."""
        if self.revision != "2024-10-07" or code != -32602:
            return []
        data = error.get("data")
        found = []
        if error.get("message") != "Invalid params":
            found.append(
                f"$.error.message: expected 'Invalid params', "
                f"got {error.get('message')!r} (2024-10-07)"
            )
        if not isinstance(data, dict) or not isinstance(data.get("reason"), str):
            found.append("$.error.data.reason: expected a string (2024-10-07)")
        return found

    def _answered(self, request_id: Any) -> tuple[Any, list[str]]:
        """Return the method of the request with this id, or a problem.

        The request counts as answered after that.
        """
        asked = (
            self._asked.get(request_id) if isinstance(request_id, str | int) else None
        )
        if not asked:
            return None, [f"$.id: {request_id!r} answers no open request of the client"]
        return asked.pop(0), []
