"""The public names and their signatures, as text.

`python -m tests.package.public_api` writes them to tests/data/public_api.txt. The
difference is what a change means for users; test_public_api.py fails until it is
written.
"""

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from tests.support.paths import DATA

MODULES = ["mcp_trio", "mcp_trio.client", "mcp_trio.testing"]
GOLDEN = DATA / "public_api.txt"


class _Annotation(str):
    """An annotation that was written as a string, and is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def describe() -> str:
    """Return a line for each public name and each public member of a class."""
    lines = []
    for module_name in MODULES:
        module = import_module(module_name)
        lines.append(f"# {module_name}")
        for name in sorted(module.__all__):
            lines += _describe(name, getattr(module, name))
        lines.append("")
    return "\n".join(lines)


def _describe(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing):
        yield f"class {name}{_signature(thing)}"
        for member, value in sorted(_members(thing).items()):
            for line in _describe_member(member, value):
                yield f"    {line}"
    elif inspect.isfunction(thing):
        yield from _describe_function(name, thing)
    else:
        yield f"{name} = {_short(repr(thing))}"


def _members(cls: type) -> dict[str, Any]:
    """Return the functions, properties and annotated attributes of a class, by name.

    Those that are private or from another package are left out, as are the fields of a
    Struct, which are in its signature.
    """
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("mcp_trio"):
            continue
        if not hasattr(base, "__struct_fields__"):
            members |= inspect.get_annotations(base)
        for name, value in vars(base).items():
            if inspect.isfunction(value) or isinstance(value, property):
                members[name] = value
    return {name: value for name, value in members.items() if name[0] != "_"}


def _describe_member(name: str, value: Any) -> Iterator[str]:
    if inspect.isfunction(value):
        yield from _describe_function(name, value)
        return
    if isinstance(value, property):
        assert value.fget is not None
        value = inspect.signature(value.fget).return_annotation
    yield f"{name}: {_short(inspect.formatannotation(_plain(value)))}"


def _describe_function(name: str, function: Callable[..., Any]) -> Iterator[str]:
    plain = inspect.unwrap(function)
    keyword = "async def" if inspect.iscoroutinefunction(plain) else "def"
    decorated = ""
    if inspect.isasyncgenfunction(plain):
        decorated = "@asynccontextmanager "
    elif inspect.isgeneratorfunction(plain):
        decorated = "@contextmanager "
    for one in typing.get_overloads(function) or [function]:
        yield f"{decorated}{keyword} {name}{_signature(one)}"


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return "(...)"  # that of a class in C
    parameters = [
        parameter.replace(annotation=_plain(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    returned = _plain(signature.return_annotation)
    return _short(str(inspect.Signature(parameters, return_annotation=returned)))


def _plain(annotation: Any) -> Any:
    return _Annotation(annotation) if isinstance(annotation, str) else annotation


def _short(text: str) -> str:
    """Return names without their modules, which are not part of the API."""
    return re.sub(r"\b[A-Za-z_]\w*\.(?=[A-Za-z_])", "", text)


if __name__ == "__main__":
    GOLDEN.write_text(describe(), encoding="utf-8")
