"""The extensions that a client has declared: what a server keeps about them."""

from typing import Any

import msgspec
import pytest

from mcp_trio.protocol.extensions import (
    MAX_SEEN,
    MAX_SEEN_BYTES,
    MAX_SETTINGS,
    ExtensionMethod,
    ExtensionTable,
    renders_apps,
)
from mcp_trio.protocol.params import NO_CAPABILITIES, ClientCapabilities
from mcp_trio.protocol.revisions import Revisions
from mcp_trio.protocol.types import Implementation
from tests.support.reachable import reachable

CLOCK = "com.example/clock"


def clock_table() -> ExtensionTable:
    table = ExtensionTable()
    table.add(CLOCK, {})
    return table


def declaring(extensions: Any) -> ClientCapabilities:
    encoded = msgspec.Raw(msgspec.json.encode(extensions))
    return ClientCapabilities(extensions=encoded)


def settings_of(size: int) -> dict[str, str]:
    """Return settings whose JSON has this many bytes."""
    return {"a": "x" * (size - len('{"a":""}'))}


@pytest.mark.parametrize(
    ("capabilities", "is_declared"),
    [
        (msgspec.UNSET, False),
        (NO_CAPABILITIES, False),
        (declaring({}), False),
        (declaring({"com.example/other": {}}), False),
        (declaring({CLOCK: {}}), True),
        (declaring({CLOCK: settings_of(MAX_SETTINGS)}), True),
        (declaring({CLOCK: settings_of(MAX_SETTINGS + 1)}), False),
    ],
)
def test_an_extension_is_declared_by_settings_within_the_limit(
    capabilities: Any, is_declared: bool
) -> None:
    table = clock_table()
    # The second time, the declaration comes from the cache.
    for _ in range(2):
        assert table.declares(capabilities, CLOCK) is is_declared


def test_an_extension_that_is_added_later_is_found_in_the_same_declaration() -> None:
    table = ExtensionTable()
    assert not table.declares(declaring({CLOCK: {}}), CLOCK)
    table.add(CLOCK, {})
    assert table.declares(declaring({CLOCK: {}}), CLOCK)


def test_only_methods_that_are_named_by_a_parameter_have_a_name_header() -> None:
    table = ExtensionTable()
    alarm = ExtensionMethod(extension=CLOCK, named_by="zone")
    reset = ExtensionMethod(extension=CLOCK)
    table.add(CLOCK, {"clock/alarm": alarm, "clock/reset": reset})
    assert table.named_by == {"clock/alarm": "zone"}


def test_a_method_that_is_not_in_sessions_exists_in_stateless_revisions_only() -> None:
    table = ExtensionTable()
    now = ExtensionMethod(extension=CLOCK)
    alarm = ExtensionMethod(extension=CLOCK, in_sessions=False)
    table.add(CLOCK, {"clock/now": now, "clock/alarm": alarm})
    revisions = Revisions(Implementation("x", "1"), extensions=table)
    for revision in revisions.all:
        assert revisions.serves(revision, "clock/now")
        assert revisions.serves(revision, "clock/alarm") is not revision.opens


def test_a_bounded_number_of_declarations_is_cached() -> None:
    table = clock_table()
    most = 0
    for number in range(3 * MAX_SEEN):
        assert table.declares(declaring({CLOCK: {"number": number}}), CLOCK)
        most = max(most, len(reachable(table, bytes)))
    assert most == MAX_SEEN


def test_a_large_declaration_is_not_cached() -> None:
    table = clock_table()
    name = len(f'{{"{CLOCK}":}}')
    larger = declaring({CLOCK: settings_of(MAX_SEEN_BYTES + 1 - name)})
    assert table.declares(larger, CLOCK)
    assert reachable(table, bytes) == []
    largest = declaring({CLOCK: settings_of(MAX_SEEN_BYTES - name)})
    assert table.declares(largest, CLOCK)
    assert [len(kept) for kept in reachable(table, bytes)] == [MAX_SEEN_BYTES]


def test_a_session_keeps_no_extensions_if_the_server_has_none_of_them() -> None:
    kept = clock_table().bounded(declaring({"com.example/other": {}}))
    assert kept.extensions is msgspec.UNSET


def test_a_client_without_settings_for_apps_does_not_render_them() -> None:
    assert not renders_apps(None)
