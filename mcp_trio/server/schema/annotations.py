"""TODO"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, get_args, get_origin


@contextmanager
def located(where: str) -> Iterator[None]:
    """TypeErrors that begin with a verb get their subject."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{where} {error}") from None


def _members(annotation: Any, *origins: Any) -> list[Any]:
    """The types that unions, or others of these `origins`, are made of."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(annotation.__origin__, *origins)
    parts = [part for part in get_args(annotation) if part is not Ellipsis]
    return (
        [member for part in parts for member in _members(part, *origins)]
        if origin in origins
        else [annotation]
    )
