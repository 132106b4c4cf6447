"""From what a user writes on the command line, `server.py` or `package.module:obj`, to a Server."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from operator import attrgetter
from types import ModuleType

from .server.app import Server

NAMES = ("server", "mcp", "app")
FORMS = "server.py, server.py:obj, package.module or package.module:obj"
NO_SERVER = 'it has no Server object; make one at its top level: server = mcp_trio.Server("name")'
_NOT_THE_USERS = (
    os.path.dirname(os.path.abspath(__file__)),
    os.path.dirname(os.__file__),
    "<frozen ",
)


class UsageError(Exception):
    """Ends a command with one line: what is wrong, and what to do about it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that comes nearest, as a question to go on with; nothing where none is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def load(spec: str) -> Server:
    """The Server that a SPEC names. Raises UsageError."""
    where, name = _split(spec)
    module = _import_file(where) if _is_path(where) else _import_module(where)
    servers = {
        key: value for key, value in vars(module).items() if isinstance(value, Server)
    }
    specs = ", ".join(f"{where}:{key}" for key in servers)
    has = f"its Server objects are {specs}" if servers else NO_SERVER
    if name:
        return _named(module, where, name, has)
    if named := [servers[key] for key in NAMES if key in servers]:
        return named[0]
    if not servers:
        raise UsageError(f"{where}: {has}")
    if len({id(server) for server in servers.values()}) > 1:
        raise UsageError(f"{where} has several Server objects; say which: {specs}")
    return next(iter(servers.values()))


def folder_of(spec: str) -> str:
    """Where the file or the package of a SPEC that is loaded lies."""
    where, _ = _split(spec)
    if _is_path(where):
        return os.path.dirname(os.path.abspath(where))
    package = sys.modules[where.partition(".")[0]]
    return (
        os.path.dirname(package.__file__)
        if package.__file__
        else next(iter(package.__path__))
    )


def absolute(spec: str) -> str:
    """A SPEC that means the same from any folder, where what it imports is found."""
    where, name = _split(spec)
    return ":".join(
        filter(None, (os.path.abspath(where) if _is_path(where) else where, name))
    )


def import_root(spec: str) -> str | None:
    """The folder from which a SPEC's module was imported, where that is the one in which we work."""
    where, _ = _split(spec)
    if _is_path(where):
        return None
    package = sys.modules[where.partition(".")[0]]
    folder = (
        os.path.dirname(folder_of(spec))
        if hasattr(package, "__path__")
        else folder_of(spec)
    )
    return folder if folder == os.getcwd() else None


def _named(module: ModuleType, where: str, name: str, has: str) -> Server:
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise UsageError(f"{where} has no {name!r}; {has}") from None
    if not isinstance(found, Server):
        raise UsageError(
            f"{where}:{name} is of type {type(found).__name__}, not a Server; {has}"
        )
    return found


def _split(spec: str) -> tuple[str, str]:
    where, colon, name = spec.rpartition(":")
    if colon and all(part.isidentifier() for part in name.split(".")):
        return where, name
    if colon and not _is_path(spec):
        raise UsageError(
            f"{spec!r}: what follows the colon is no name; wanted is {FORMS}"
        )
    return spec, ""


def _is_path(where: str) -> bool:
    is_package = os.path.isfile(os.path.join(where, "__init__.py"))
    return (
        where.endswith(".py")
        or os.sep in where
        or "/" in where
        or (os.path.exists(where) and not is_package)
    )


# Importing


def _import_file(path: str) -> ModuleType:
    if os.path.isdir(path):
        raise UsageError(
            f"{path} is a directory; name a file in it, such as {os.path.join(path, 'server.py')}"
        )
    if not os.path.exists(path):
        raise UsageError(
            f"{path}: there is no such file (looked in {os.path.dirname(os.path.abspath(path))})"
        )
    if not path.endswith(".py"):
        raise UsageError(f"{path} is not a Python file; wanted is {FORMS}")
    folder, file = os.path.split(os.path.abspath(path))
    _import_from(folder)
    stem = file.removesuffix(".py")
    name = (
        stem if stem not in sys.modules else f"{stem}_served"
    )  # a user's json.py must not become everyone's json
    found = importlib.util.spec_from_file_location(name, os.path.join(folder, file))
    assert found is not None
    assert found.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(
        found
    )  # where dataclasses and pickle look it up
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{path} cannot be imported: {what_and_where(error)}"
        ) from error
    return module


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is neither a file nor a module; wanted is {FORMS}")
    _import_from(os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if (
            isinstance(error, ModuleNotFoundError)
            and error.name
            and f"{name}.".startswith(f"{error.name}.")
        ):
            raise UsageError(
                f"there is no module {error.name!r}, and no file {name!r}; wanted is {FORMS}"
            ) from None
        raise UsageError(
            f"{name} cannot be imported: {what_and_where(error)}"
        ) from error


def _import_from(folder: str) -> None:
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)


def what_and_where(error: BaseException) -> str:
    """One line: the exception, and where in the user's own code it came from."""
    if isinstance(error, SystemExit):
        what = f"it calls sys.exit({error.code if error.code is not None else ''})"
    elif isinstance(error, SyntaxError):
        where = f" ({error.filename}, line {error.lineno})" if error.filename else ""
        return f"{type(error).__name__}: {error.msg}{where}"
    else:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(
            ": "
        )
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    place = (users or frames)[-1]
    return f"{what} ({place.filename}, line {place.lineno})"
