from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.server.schema.docstrings import parse
from tests.support.growth import assert_linear

GOOGLE = """Get the weather.

    It asks a station, so it
    may take a while.

    Args:
        location (str): City name or
            zip code: either will do.
        units (Literal["a", "b"], optional): Which units.

            A second paragraph.
        *rest: Further ones.
        **more: Named ones.
        bare:
            Described below.

    Returns:
        The weather: as text.

    Raises:
        ValueError: for no reason.
    """

NUMPY = """Get the weather.

    Parameters
    ----------
    location : str
        City name or
        zip code.

    x, y : int, optional
        Two of them.
    plain
        Without a type.
    undescribed : int

    Returns
    -------
    str
        The weather.

    Notes
    -----
    Nothing.
    """

SPHINX = """Get the weather.

    More prose.

    :param str location: City name or
        zip code.
    :param units: Which units.
    :type units: str
    :keyword more: More.
    :param nothing:
    :returns: The weather.
    :rtype: str
    """


def test_google_style_is_understood():
    docstring = parse(GOOGLE)
    assert (
        docstring.summary
        == "Get the weather.\n\nIt asks a station, so it\nmay take a while."
    )
    assert docstring.parameters == {
        "location": "City name or zip code: either will do.",
        "units": "Which units. A second paragraph.",
        "rest": "Further ones.",
        "more": "Named ones.",
        "bare": "Described below.",
    }


def test_numpy_style_is_understood():
    docstring = parse(NUMPY)
    assert docstring.summary == "Get the weather."
    assert docstring.parameters == {
        "location": "City name or zip code.",
        "x": "Two of them.",
        "y": "Two of them.",
        "plain": "Without a type.",
    }


def test_sphinx_style_is_understood():
    docstring = parse(SPHINX)
    assert docstring.summary == "Get the weather.\n\nMore prose."
    assert docstring.parameters == {
        "location": "City name or zip code.",
        "units": "Which units.",
        "more": "More.",
    }


def test_prose_after_a_section_is_kept():
    docstring = parse("First.\n\nArguments:\n  a: One.\n\nLast paragraph.\n")
    assert docstring.summary == "First.\n\nLast paragraph."
    assert docstring.parameters == {"a": "One."}


def test_attributes_of_a_class_are_parameters_too():
    assert parse("A point.\n\nAttributes:\n    x: To the right.").parameters == {
        "x": "To the right."
    }


@pytest.mark.parametrize(
    "prose",
    [
        "Arguments: they are hard to win.",
        "Note:\nthis is not indented.",
        "See http://example.org: it helps.",
        "A list:\n\n    - of: things\n    - and: more",
        "Use it so::\n\n    f(a=1)",
        "a :param: in the middle",
    ],
)
def test_what_only_looks_like_a_section_is_prose(prose: str):
    doc = f"First.\n\n{prose}\n\nLast."
    assert parse(doc) == (doc, {})


def test_indented_prose_keeps_its_indentation():
    assert (
        parse("First.\n\n\n    code()\n\n\nLast.").summary
        == "First.\n\n    code()\n\nLast."
    )


@pytest.mark.parametrize(
    "doc",
    [
        None,
        "",
        "   \n ",
        "Args:",
        "Parameters\n----------",
        ":param",
        ":param x",
        "Args:\n    :",
    ],
)
def test_a_docstring_that_describes_nothing_has_no_parameters(doc: str | None):
    assert parse(doc).parameters == {}


PIECES = [
    "Args:",
    "Parameters",
    "----------",
    "Returns:",
    ":param x: y",
    ":",
    "x:",
    "x : int",
    "\n",
    "\n    ",
    "\t",
    "**",
    "(",
]


@given(
    st.one_of(
        st.text(),
        st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3))).map("".join),
    )
)
def test_odd_text_is_never_an_error(doc: str):
    parse(doc)


@pytest.mark.parametrize(
    "piece",
    [
        "Args:\n    ",
        "x (",
        "x, ",
        "\n \n",
        ":param x",
        "Notes\n---\n",
        "    a: b\n\n",
    ],
)
def test_long_odd_text_is_parsed_in_linear_time(piece: str) -> None:
    assert_linear(parse, lambda size: piece * size, 5_000)
