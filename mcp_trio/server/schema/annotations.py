"""Helpers for the annotations of parameters and results."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, get_args, get_origin


@contextmanager
def located(place: str) -> Iterator[None]:
    """Add a location before the message of each TypeError.

    The messages begin with a verb, whose subject is the location.
    """
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{place} {error}") from None


def member_types(annotation: Any, *origins: Any) -> list[Any]:
    """Return the members of a union, including nested ones.

    `origins` are the types to expand: `Union` and `UnionType`, and others such as
    `list`. Any other annotation is its only member.
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
