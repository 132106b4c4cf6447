"""Helpers for the annotations of parameters and results."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, get_args, get_origin


@contextmanager
def located(place: str) -> Iterator[None]:
    """Put a place in front of the message of each TypeError.

    The messages begin with a verb, so the place becomes their subject.
    """
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{place} {error}") from None


def member_types(annotation: Any, *origins: Any) -> list[Any]:
    """Return the types that a union consists of.

    `origins` are the kinds of type to take apart: `Union` and `UnionType`, and others
    such as `list`. Any other annotation is its own only member.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        return member_types(annotation.__origin__, *origins)
    if origin not in origins:
        return [annotation]
    members = []
    for part in get_args(annotation):
        if part is not Ellipsis:
            members += member_types(part, *origins)
    return members
