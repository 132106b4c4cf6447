"""The oracle accepts the official examples, and rejects what no revision names."""

import json
from typing import Any

import pytest

from tests.support.oracle import (
    CODES,
    REVISIONS,
    Oracle,
    judge,
    raw_definitions,
)
from tests.support.paths import DATA

FIRST, LAST = REVISIONS[0], REVISIONS[-1]
WITH_INITIALIZE = REVISIONS[:-1]
UNREAD_ID_IS_NULL = REVISIONS[:4]
UNREAD_ID_IS_ABSENT = REVISIONS[4:]
TEXT = {"type": "text", "text": "22 degrees"}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
TOOL = {
    "name": "add",
    "description": "Adds.",
    "inputSchema": {"type": "object", "properties": {}, "x-free": {"a": 1}},
}
CACHE = {"ttlMs": 0, "cacheScope": "private"}

# Official examples that break their own schema.
KNOWN_EXAMPLES = {
    "read-resource-result-response.json": "it lacks the ttlMs and cacheScope that its schema requires",
    "list-roots-request.json": "it has the id that an embedded request no longer has",
}


def response(result: Any, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(code: int, request_id: Any = 1, **extra: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": code, "message": "no", **extra},
    }


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def asked(revision: str, method: str) -> Oracle:
    """Return an oracle that has seen one request of the client, with the id 1."""
    oracle = Oracle(revision)
    oracle.sent_by_client({"jsonrpc": "2.0", "id": 1, "method": method})
    return oracle


def complete(revision: str, **result: Any) -> dict[str, Any]:
    """Return a result with the `resultType` that the latest revision requires."""
    return {"resultType": "complete", **result} if revision == LAST else result


def answer(revision: str, method: str, **result: Any) -> list[str]:
    """Return the problems that the oracle finds in a result of a method."""
    return asked(revision, method).check(response(complete(revision, **result)))


def call(revision: str, *content: Any, **more: Any) -> list[str]:
    return answer(revision, "tools/call", content=list(content), **more)


# The official examples


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision_has_its_schema(revision: str) -> None:
    assert "ServerNotification" in raw_definitions(revision)


def official_examples() -> list[Any]:
    path = DATA / "examples" / f"{LAST}.json"
    examples = json.loads(path.read_text(encoding="utf-8"))
    return [
        pytest.param(kind, name, example, id=f"{kind}-{name}")
        for kind, named in examples.items()
        for name, example in named.items()
    ]


@pytest.mark.parametrize(("kind", "name", "example"), official_examples())
def test_official_example_passes(kind: str, name: str, example: Any) -> None:
    found = judge(LAST, kind, example)
    assert bool(found) == (f"{name}.json" in KNOWN_EXAMPLES), found


# Good messages of each kind


@pytest.mark.parametrize("revision", WITH_INITIALIZE)
@pytest.mark.parametrize(
    "method",
    ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"],
)
def test_an_empty_result_is_empty_but_for_meta(revision: str, method: str) -> None:
    assert answer(revision, method) == []
    assert answer(revision, method, _meta={"any": {"thing": 1}}) == []
    assert answer(revision, method, done=True) == [
        f"$.result.done: not named by {revision} (EmptyResult)"
    ]


@pytest.mark.parametrize("revision", WITH_INITIALIZE)
def test_the_result_of_initialize_is_checked(revision: str) -> None:
    capabilities = {
        "tools": {"listChanged": True},
        "logging": {},
        "experimental": {"ours": {"any": [1, {"a": None}]}},
    }
    good = {
        "protocolVersion": revision,
        "capabilities": capabilities,
        "serverInfo": {"name": "n", "version": "1"},
    }
    assert answer(revision, "initialize", **good) == []
    assert answer(revision, "initialize", **{**good, "serverInfo": {"name": "n"}})


def test_the_result_of_discover_is_checked() -> None:
    meta = {
        "io.modelcontextprotocol/serverInfo": {"name": "n", "version": "1"},
        "free": {"a": 1},
    }
    good = {
        "supportedVersions": [LAST],
        "capabilities": {"tools": {}},
        "_meta": meta,
        **CACHE,
    }
    assert answer(LAST, "server/discover", **good) == []
    stray = {
        **good,
        "_meta": {
            "io.modelcontextprotocol/serverInfo": {
                "name": "n",
                "version": "1",
                "vendor": "v",
            }
        },
    }
    where = '$.result._meta["io.modelcontextprotocol/serverInfo"].vendor'
    assert answer(LAST, "server/discover", **stray) == [
        f"{where}: not named by {LAST} (Implementation)"
    ]


def test_capabilities_may_hold_any_json_in_extensions() -> None:
    capabilities = {
        "extensions": {"ours/one": {"ratio": 0.5, "none": None, "deep": [{"a": 1.5}]}}
    }
    assert (
        answer(
            LAST,
            "server/discover",
            supportedVersions=[LAST],
            capabilities=capabilities,
            **CACHE,
        )
        == []
    )


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("method", "items"),
    [
        ("tools/list", {"tools": [TOOL]}),
        ("prompts/list", {"prompts": [{"name": "p"}]}),
        ("resources/list", {"resources": [{"uri": "file:///a", "name": "a"}]}),
    ],
)
def test_list_results(revision: str, method: str, items: dict[str, Any]) -> None:
    cache = CACHE if revision == LAST else {}
    assert answer(revision, method, **items, **cache) == []
    paged = answer(revision, method, **items, **cache, nextCursor="2")
    assert bool(paged) == (revision == FIRST), "2024-10-07 has no cursors"


@pytest.mark.parametrize("revision", REVISIONS)
def test_read_get_and_complete_results(revision: str) -> None:
    cache = CACHE if revision == LAST else {}
    contents = [
        {"uri": "file:///a", "text": "t"},
        {"uri": "file:///b", "blob": "AAAA", "mimeType": "a/b"},
    ]
    assert answer(revision, "resources/read", contents=contents, **cache) == []
    assert (
        answer(revision, "prompts/get", messages=[{"role": "user", "content": TEXT}])
        == []
    )
    assert (
        answer(
            revision,
            "completion/complete",
            completion={"values": ["a"], "total": 1, "hasMore": False},
        )
        == []
    )


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_result_of_a_call_is_checked(revision: str) -> None:
    if revision == FIRST:
        assert (
            answer(revision, "tools/call", toolResult={"any": [{"thing": None}]}) == []
        )
        assert call(revision, TEXT)
    else:
        assert call(revision, TEXT, isError=True) == []
        assert answer(revision, "tools/call", toolResult=1)


def test_structured_content_is_free() -> None:
    assert call("2025-06-18", TEXT, structuredContent={"a": {"b": [{"c": 1}]}}) == []
    assert call(LAST, TEXT, structuredContent=[{"a": 1}, None]) == []
    assert call("2025-06-18", TEXT, structuredContent=[1])
    assert call("2025-03-26", TEXT, structuredContent={}) == [
        "$.result.structuredContent: not named by 2025-03-26 (CallToolResult)"
    ]


@pytest.mark.parametrize("revision", REVISIONS)
def test_notifications_are_checked(revision: str) -> None:
    oracle = Oracle(revision)
    for kind in ("tools", "prompts", "resources"):
        assert (
            oracle.check(
                {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}
            )
            == []
        )
    assert (
        oracle.check(
            notification(
                "message", level="info", logger="l", data={"any": {"thing": 1}}
            )
        )
        == []
    )
    assert oracle.check(notification("message", level="verbose", data=1))
    assert (
        oracle.check(
            notification(
                "progress", progressToken="t", progress=1.5, total=2, _meta={"a": 1}
            )
        )
        == []
    )
    assert oracle.check(notification("resources/updated", uri="file:///a")) == []
    assert bool(oracle.check(notification("cancelled", requestId=1))) == (
        revision == FIRST
    )
    assert oracle.check(notification("initialized")), "only clients send this"


def test_notifications_grow_with_the_revisions() -> None:
    message = notification("progress", progressToken=1, progress=1, message="halfway")
    assert Oracle("2024-11-05").check(message) == [
        "$.params.message: not named by 2024-11-05 (ProgressNotification)"
    ]
    assert Oracle("2025-03-26").check(message) == []
    notice = notification("message", level="notice", data=1)
    assert Oracle(FIRST).check(notice)
    assert Oracle("2024-11-05").check(notice) == []
    acknowledged = notification(
        "subscriptions/acknowledged", notifications={"toolsListChanged": True}
    )
    assert Oracle(LAST).check(acknowledged) == []
    assert Oracle("2025-11-25").check(acknowledged)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "s1", "method": method, "params": params}


SAMPLING = request(
    "sampling/createMessage", messages=[{"role": "user", "content": TEXT}], maxTokens=5
)
FORM = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "enum": ["red"]},
        "data": {"type": "boolean"},
    },
}


@pytest.mark.parametrize("revision", WITH_INITIALIZE)
def test_requests_to_the_client_are_checked(revision: str) -> None:
    oracle = Oracle(revision)
    assert oracle.check({"jsonrpc": "2.0", "id": 7, "method": "ping"}) == []
    assert oracle.check(SAMPLING) == []
    assert oracle.check({**SAMPLING, "params": {**SAMPLING["params"], "topK": 1}})
    assert bool(oracle.check(request("roots/list"))) == (revision == FIRST)
    elicit = oracle.check(
        request("elicitation/create", message="m", requestedSchema=FORM)
    )
    assert bool(elicit) == (revision not in ("2025-06-18", "2025-11-25"))


@pytest.mark.parametrize("message", [request("ping"), SAMPLING, request("roots/list")])
def test_the_last_revision_has_no_requests_to_the_client(
    message: dict[str, Any],
) -> None:
    assert Oracle(LAST).check(message) == [
        f"$.method: {message['method']!r} is not named by {LAST} (ServerRequest)"
    ]


# Names that a revision does not have


@pytest.mark.parametrize(
    ("since", "until", "field", "value"),
    [
        ("2025-03-26", LAST, "annotations", {"readOnlyHint": True}),
        ("2025-06-18", LAST, "title", "Add"),
        ("2025-06-18", LAST, "_meta", {"a": 1}),
        (
            "2025-06-18",
            LAST,
            "outputSchema",
            {"type": "object", "additionalProperties": False},
        ),
        ("2025-11-25", LAST, "icons", [{"src": "https://example.com/i.png"}]),
        ("2025-11-25", "2025-11-25", "execution", {"taskSupport": "forbidden"}),
    ],
)
@pytest.mark.parametrize("revision", REVISIONS)
def test_tool_fields(
    revision: str, since: str, until: str, field: str, value: Any
) -> None:
    cache = CACHE if revision == LAST else {}
    found = answer(revision, "tools/list", tools=[{**TOOL, field: value}], **cache)
    expected = (
        []
        if since <= revision <= until
        else [f"$.result.tools[0].{field}: not named by {revision} (Tool)"]
    )
    assert found == expected


def test_keys_within_named_objects() -> None:
    tool = {**TOOL, "annotations": {"readOnlyHint": True, "slow": True}}
    assert answer("2025-06-18", "tools/list", tools=[tool]) == [
        "$.result.tools[0].annotations.slow: not named by 2025-06-18 (ToolAnnotations)"
    ]


@pytest.mark.parametrize("revision", REVISIONS[1:])
@pytest.mark.parametrize(
    ("content", "since"), [(AUDIO, "2025-03-26"), (LINK, "2025-06-18")]
)
def test_content_types(revision: str, content: dict[str, Any], since: str) -> None:
    found = call(revision, TEXT, content)
    assert bool(found) == (revision < since)
    assert all(
        f"$.result.content[1].type: '{content['type']}' is not named by {revision}"
        in line
        for line in found
    )


def test_a_broken_content_is_judged_by_the_branch_that_it_means() -> None:
    found = call("2025-06-18", {"type": "image", "data": 5, "alt": "x"})
    assert sorted(found) == [
        "$.result.content[0].alt: not named by 2025-06-18 (ImageContent)",
        "$.result.content[0].data: 5 is not of type 'string' (2025-06-18)",
        "$.result.content[0]: 'mimeType' is a required property (2025-06-18)",
    ]


@pytest.mark.parametrize("revision", REVISIONS[1:])
@pytest.mark.parametrize(
    ("field", "value", "only"),
    [
        ("title", "Main", "2025-06-18"),
        ("annotations", {"audience": ["user"]}, "2025-11-25"),
    ],
)
def test_resource_contents_may_have_the_fields_that_only_the_pages_show(
    revision: str, field: str, value: Any, only: str
) -> None:
    found = call(
        revision,
        {
            "type": "resource",
            "resource": {"uri": "file:///a", "text": "t", field: value},
        },
    )
    assert bool(found) == (revision != only)


def test_keys_beside_the_envelope_are_reported() -> None:
    assert asked("2025-06-18", "ping").check({**response({}), "time": 3}) == [
        "$.time: not named by 2025-06-18 (JSONRPCResponse)"
    ]
    assert asked("2025-06-18", "ping").check({"id": 1, "result": {}})
    both = {**response({}), **failure(-32603)}
    assert "$.result: not named by 2025-06-18 (JSONRPCError)" in asked(
        "2025-06-18", "ping"
    ).check(both)
    assert Oracle("2025-06-18").check({"jsonrpc": "2.0", "id": 1}) == [
        "$: neither method, result nor error"
    ]


# Matching responses to requests


def test_a_response_answers_one_request_once() -> None:
    oracle = asked("2025-06-18", "ping")
    assert oracle.check(response({}, "1")) == [
        "$.id: '1' answers no open request of the client"
    ]
    assert oracle.check(response({})) == []
    assert oracle.check(response({})) == [
        "$.id: 1 answers no open request of the client"
    ]
    assert oracle.check(failure(-32603)) == [
        "$.id: 1 answers no open request of the client"
    ]


def test_the_responses_of_a_client_are_no_requests() -> None:
    oracle = Oracle("2025-06-18")
    oracle.sent_by_client(response({}))
    assert oracle.check(response({}))


def test_methods_that_are_gone_get_no_result() -> None:
    assert answer(LAST, "ping") == [
        f"$.result: a result for 'ping', which {LAST} does not have"
    ]
    assert asked(LAST, "ping").check(failure(-32601)) == []
    assert answer(FIRST, "resources/templates/list", resourceTemplates=[])


# input_required


def test_input_required() -> None:
    elicit = {
        "method": "elicitation/create",
        "params": {"message": "m", "requestedSchema": FORM},
    }
    good = {
        "resultType": "input_required",
        "inputRequests": {"q": elicit},
        "requestState": "sealed",
    }
    for method in ("tools/call", "prompts/get", "resources/read"):
        assert asked(LAST, method).check(response(good)) == []
    assert asked(LAST, "tools/list").check(response(good))
    assert asked("2025-11-25", "tools/call").check(response(good))
    assert asked(LAST, "tools/call").check(
        response({"resultType": "input_required"})
    ) == ["$.result: input_required with neither inputRequests nor requestState"]
    stray = {**good, "inputRequests": {"q": {**elicit, "id": 1}}}
    assert asked(LAST, "tools/call").check(response(stray)) == [
        f"$.result.inputRequests.q.id: not named by {LAST} (ElicitRequest)"
    ]


def test_result_type_is_required_and_known() -> None:
    assert asked(LAST, "tools/call").check(response({"content": []})) == [
        f"$.result: 'resultType' is a required property ({LAST})"
    ]
    assert call(LAST, resultType="partial") == [
        "$.result.resultType: 'partial' is not open to CallToolResult"
    ]
    assert call("2025-11-25", resultType="complete")


def test_subscription_result_names_its_subscription() -> None:
    meta = {"io.modelcontextprotocol/subscriptionId": "listen-1"}
    assert answer(LAST, "subscriptions/listen", _meta=meta) == []
    assert answer(LAST, "subscriptions/listen", _meta={})


# Errors


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    "code", sorted({*CODES["2025-11-25"], *CODES[LAST], -32000, -32001, -32019, 0, 404})
)
def test_codes_that_a_revision_does_not_name_are_reported(
    revision: str, code: int
) -> None:
    found = asked(revision, "tools/call").check(failure(code))
    unnamed = f"$.error.code: {code} is not named by {revision}"
    assert (unnamed in found) == (code not in CODES[revision])


def test_codes_are_what_the_revisions_say() -> None:
    assert all(-32002 in CODES[revision] for revision in WITH_INITIALIZE)
    assert [revision for revision in REVISIONS if -32042 in CODES[revision]] == [
        "2025-11-25"
    ]
    assert CODES[LAST] - CODES[FIRST] == {-32020, -32021, -32022}
    assert CODES[FIRST] - CODES[LAST] == {-32002}


@pytest.mark.parametrize("revision", UNREAD_ID_IS_NULL)
def test_unread_id_is_null(revision: str) -> None:
    reason = {"data": {"reason": "r"}}
    for code in (-32700, -32600):
        assert Oracle(revision).check(failure(code, None)) == []
    assert Oracle(revision).check(failure(-32602, None, **reason))
    absent = failure(-32700)
    del absent["id"]
    assert Oracle(revision).check(absent)


@pytest.mark.parametrize("revision", UNREAD_ID_IS_ABSENT)
def test_unread_id_is_absent(revision: str) -> None:
    assert Oracle(revision).check(failure(-32700, None)) == [
        f"$.id: None is not of type 'string', 'integer' ({revision})"
    ]
    absent = failure(-32700)
    del absent["id"]
    assert Oracle(revision).check(absent) == []


def test_invalid_params_of_the_first_revision() -> None:
    good = {
        "code": -32602,
        "message": "Invalid params",
        "data": {"reason": "Unknown tool: x"},
    }
    assert (
        asked(FIRST, "tools/call").check({"jsonrpc": "2.0", "id": 1, "error": good})
        == []
    )
    assert len(asked(FIRST, "tools/call").check(failure(-32602))) == 2
    assert asked("2024-11-05", "tools/call").check(failure(-32602)) == []


def test_error_data_is_free_but_what_is_named_is_held() -> None:
    assert (
        asked(LAST, "tools/call").check(failure(-32602, data={"any": {"thing": 1}}))
        == []
    )
    unsupported = {"supported": [LAST], "requested": "1999-01-01", "hint": "h"}
    assert asked(LAST, "server/discover").check(failure(-32022, data=unsupported)) == []
    assert asked(LAST, "server/discover").check(
        failure(-32022, data={"supported": [LAST]})
    )
    assert (
        asked(LAST, "tools/call").check(
            failure(-32021, data={"requiredCapabilities": {"sampling": {}}})
        )
        == []
    )
    assert asked(LAST, "tools/call").check(failure(-32021))
    url = {
        "mode": "url",
        "message": "m",
        "url": "https://example.com",
        "elicitationId": "e",
    }
    assert (
        asked("2025-11-25", "tools/call").check(
            failure(-32042, data={"elicitations": [url]})
        )
        == []
    )
    assert asked("2025-11-25", "tools/call").check(
        failure(-32042, data={"elicitations": [{**url, "id": 1}]})
    )
    assert asked(LAST, "tools/call").check(
        {**failure(-32603), "error": {"code": -32603, "message": "m", "stack": "s"}}
    )


# Batches, and values that are not messages


def test_the_messages_of_a_batch_are_checked() -> None:
    oracle = Oracle("2025-03-26")
    pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2, 3)]
    oracle.sent_by_client(pings)
    assert oracle.check([response({}, 1), response({}, 2)]) == []
    assert oracle.check([]) == ["$: an empty batch"]
    assert oracle.check([[]]) == ["$[0]: list is not a JSON-RPC message"]
    found = oracle.check([response({"a": 1}, 3), notification("tools/list_changed")])
    assert found[0] == "$[0].result.a: not named by 2025-03-26 (EmptyResult)"
    assert found[1:] == [
        "$: responses share a batch with requests or notifications (2025-03-26)"
    ]


@pytest.mark.parametrize(
    "revision", [revision for revision in REVISIONS if revision != "2025-03-26"]
)
def test_other_revisions_have_no_batch(revision: str) -> None:
    assert Oracle(revision).check([notification("tools/list_changed")]) == [
        f"$: a batch, which {revision} does not have"
    ]


@pytest.mark.parametrize(
    "message",
    [None, 1, "text", {}, {"method": 5}, {"method": []}, {"error": 5}, {"result": 5}],
)
@pytest.mark.parametrize("revision", REVISIONS)
def test_no_message_breaks_the_oracle(revision: str, message: Any) -> None:
    assert Oracle(revision).check(message)
