"""What an object keeps in memory, whatever it is kept in."""

import gc
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TypeVar

import trio

T = TypeVar("T")

# Code, and tasks, lead to everything that there is.
NOT_KEPT = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def reachable(root: object, kind: type[T]) -> list[T]:
    """Return all objects of a class, not of its subclasses, that an object refers to.

    They may be in its attributes, in their attributes, and so on.
    """
    found: list[T] = []
    seen = {id(root)}
    pending = [root]
    while pending:
        for referent in _referents(pending.pop()):
            if id(referent) in seen or _is_not_kept(referent):
                continue
            seen.add(id(referent))
            pending.append(referent)
            if type(referent) is kind:
                found.append(referent)
    return found


def _referents(holder: object) -> list[object]:
    """Return all objects that an object refers to directly."""
    referents = gc.get_referents(holder)
    if isinstance(holder, dict):
        # The garbage collector leaves keys out that are strings.
        referents += holder.keys()
    return referents


def _is_not_kept(referent: object) -> bool:
    return isinstance(referent, (*NOT_KEPT, trio.lowlevel.Task))
