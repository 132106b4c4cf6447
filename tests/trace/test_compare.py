"""Where two values differ, and how the difference is described."""

import json

import pytest

from mcp_trio.trace.compare import (
    ABSENT,
    Difference,
    differences,
    merged,
    parse_pointer,
    value_at,
)


def found(old, new, *ignored):
    return [
        (one.path, one.kind)
        for one in differences(
            old, new, [parse_pointer(pointer) for pointer in ignored]
        )
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, 1.0),
        ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1}),
        ([], []),
        (None, None),
        (1e400, 1e400),
        ({"a": {"b": None}}, {"a": {"b": None}}),
    ],
)
def test_values_that_are_equal_in_json_are_not_a_difference(old, new):
    assert found(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a", "b", [("$", "")]),
        (1, 2, [("$", "")]),
        (True, 1, [("$", "is a number, not true or false")]),
        (0, False, [("$", "is true or false, not a number")]),
        ("1", 1, [("$", "is a number, not a string")]),
        (None, 0, [("$", "is a number, not null")]),
        ({}, [], [("$", "is an array, not an object")]),
        ({"a": 1}, {}, [("$.a", "is missing")]),
        ({}, {"a": None}, [("$.a", "was not expected")]),
        ([1, 2], [2, 1], [("$[0]", ""), ("$[1]", "")]),
        ([1], [1, 2], [("$[1]", "was not expected")]),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, [("$.a[1].b", "")]),
        (
            {"a": 1, "b": 1},
            {"b": 2, "c": 1},
            [("$.a", "is missing"), ("$.b", ""), ("$.c", "was not expected")],
        ),
    ],
)
def test_each_place_that_differs_is_named(old, new, expected):
    assert found(old, new) == expected


@pytest.mark.parametrize("pointer", ["/a", "/a/0", "/a/*", "/*", "/a/0/b", "/*/*/*"])
def test_what_a_pointer_leads_to_may_differ_and_what_is_below_it(pointer):
    assert found({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, pointer) == []


@pytest.mark.parametrize("pointer", ["/b", "/a/1", "/a/0/c", "/a/0/b/c", "/", "/a/0/"])
def test_a_pointer_to_something_else_changes_nothing(pointer):
    assert found({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, pointer) == [("$.a[0].b", "")]


def test_what_is_ignored_may_be_absent():
    assert found({"a": 1}, {"b": 2}, "/a", "/b") == []


def test_pointers_are_unescaped_and_written_with_a_star_for_each_index():
    assert found({"a/b~c": 1}, {"a/b~c": 2}, "/a~1b~0c") == []
    assert Difference(("a/b~c", 3, "d"), 1, 2).pointer == "/a~1b~0c/*/d"


def test_values_are_shown_as_json():
    assert Difference((), "ä\n", ABSENT).values() == ('"ä\\n"', "nothing")


def test_of_long_texts_the_place_is_shown_where_they_differ():
    old, new = Difference(
        (), "x" * 1000 + "this" + "y" * 1000, "x" * 1000 + "that" + "y" * 1000
    ).values()
    assert "xxxthisyyy" in old
    assert "xxxthatyyy" in new
    assert old.startswith("…")
    assert old.endswith("…")
    assert len(old) < 100


def test_merging_takes_what_is_new_but_for_what_is_ignored():
    old = {"a": 1, "gone": 1, "kept": {"id": "old"}, "list": [{"at": 1, "x": 1}]}
    new = {
        "a": 2,
        "kept": {"id": "new"},
        "list": [{"at": 5, "x": 2}, {"at": 6, "x": 3}],
        "more": True,
    }
    ignored = [parse_pointer("/kept"), parse_pointer("/list/*/at")]
    assert merged(old, new, ignored) == {
        "a": 2,
        "kept": {"id": "old"},
        "list": [{"at": 1, "x": 2}, {"at": 6, "x": 3}],
        "more": True,
    }


def test_what_is_at_a_place():
    value = json.loads('{"a": [{"b": "text"}]}')
    assert value_at(value, ["a", 0, "b"]) == "text"
    for nowhere in (["b"], ["a", 1], ["a", "0"], ["a", 0, "b", "c"], [0]):
        assert value_at(value, nowhere) is ABSENT
