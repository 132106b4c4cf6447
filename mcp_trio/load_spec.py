"""Loads a Server from a SPEC, such as `server.py` or `package.module:obj`."""

from __future__ import annotations

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
_NO_SERVER = (
    "it has no Server object; create one at the top level: "
    'server = mcp_trio.Server("name")'
)
# The prefixes of files that are not the user's code, in a traceback.
_NOT_THE_USERS = (
    os.path.dirname(os.path.abspath(__file__)),
    os.path.dirname(os.__file__),
    "<frozen ",
)


class UsageError(Exception):
    """Ends a command with a one-line message: the problem, and how to fix it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a suggestion with the most similar known word, or "".

    It is appended to a message.
    """
    # Deferred to keep the start-up fast.
    import difflib

    similar = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def load(spec: str) -> Server:
    """Return the Server that a SPEC refers to. Raises UsageError."""
    where, name = _split(spec)
    module = _import_file(where) if _is_path(where) else _import_module(where)
    servers = {
        key: value for key, value in vars(module).items() if isinstance(value, Server)
    }
    if name:
        return _find(module, where, name, servers)
    for key in NAMES:
        if key in servers:
            return servers[key]
    if not servers:
        raise UsageError(f"{where}: {_NO_SERVER}")
    # The same server may have several names.
    if len({id(server) for server in servers.values()}) > 1:
        specs = _specs(where, servers)
        raise UsageError(f"{where} has several Server objects; choose one: {specs}")
    return next(iter(servers.values()))


def _find(
    module: ModuleType, where: str, name: str, servers: dict[str, Server]
) -> Server:
    hint = _NO_SERVER
    if servers:
        hint = f"its Server objects are: {_specs(where, servers)}"
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise UsageError(f"{where} has no {name!r}; {hint}") from None
    if not isinstance(found, Server):
        kind = type(found).__name__
        raise UsageError(f"{where}:{name}: expected a Server, got {kind}; {hint}")
    return found


def _specs(where: str, servers: Iterable[str]) -> str:
    return ", ".join(f"{where}:{name}" for name in servers)


def folder_of(spec: str) -> str:
    """Return the folder of the file or the package of a loaded SPEC."""
    where, _ = _split(spec)
    if _is_path(where):
        return os.path.dirname(os.path.abspath(where))
    package = _outermost_package(where)
    if package.__file__:
        return os.path.dirname(package.__file__)
    # A package without __init__.py.
    return str(next(iter(package.__path__)))


def absolute(spec: str) -> str:
    """Return a SPEC that is independent of the current folder.

    A module must still be importable: see `import_root`.
    """
    where, name = _split(spec)
    if _is_path(where):
        where = os.path.abspath(where)
    return f"{where}:{name}" if name else where


def import_root(spec: str) -> str | None:
    """Return the folder that must be in PYTHONPATH to import a loaded SPEC.

    Returns None for a file, and for a module outside the current folder.
    """
    where, _ = _split(spec)
    if _is_path(where):
        return None
    folder = folder_of(spec)
    if hasattr(_outermost_package(where), "__path__"):
        folder = os.path.dirname(folder)
    return folder if folder == os.getcwd() else None


def _outermost_package(module: str) -> ModuleType:
    name, _, _ = module.partition(".")
    return sys.modules[name]


def _split(spec: str) -> tuple[str, str]:
    """Return the file or module of a SPEC, and the name of the object, or ""."""
    where, colon, name = spec.rpartition(":")
    if colon and _is_dotted_name(name):
        return where, name
    if colon and not _is_path(spec):
        raise UsageError(
            f"expected {FORMS}, got {spec!r}: {name!r} is not a valid name"
        )
    return spec, ""


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _is_path(where: str) -> bool:
    if where.endswith(".py") or os.sep in where or "/" in where:
        return True
    return os.path.exists(where) and not _is_package(where)


# Importing


def _import_file(path: str) -> ModuleType:
    _check_file(path)
    folder, file = os.path.split(os.path.abspath(path))
    _import_from(folder)
    name = file.removesuffix(".py")
    if name in sys.modules:
        # A user's json.py must not replace the standard library's.
        name = f"{name}_served"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Needed by dataclasses and pickle.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        hint = _hint_at_package(error, path)
        raise UsageError(
            f"{path} cannot be imported: {what_and_where(error)}{hint}"
        ) from error
    return module


def _check_file(path: str) -> None:
    if os.path.isdir(path):
        example = os.path.join(path, "server.py")
        raise UsageError(
            f"{path}: expected a file, got a directory; give a file in it, such as "
            f"{example}"
        )
    if not os.path.exists(path):
        folder = os.path.dirname(os.path.abspath(path))
        raise UsageError(f"{path} does not exist (looked in {folder})")
    if not path.endswith(".py"):
        raise UsageError(f"expected {FORMS}, got {path}, which is not a Python file")


def _hint_at_package(error: BaseException, path: str) -> str:
    """Return a hint to use a module name, if a file belongs to a package.

    A file is loaded without its package, so its relative imports fail.
    """
    if not isinstance(error, ImportError):
        return ""
    if "attempted relative import" not in str(error):
        return ""
    root, module = _as_module(path)
    hint = f"; the file belongs to a package: use {module}"
    if root == os.getcwd():
        return f"{hint} instead of {path}"
    return f"{hint} in the folder {root}"


def _as_module(path: str) -> tuple[str, str]:
    """Return the folder to import a file from, and the name of its module there.

    The file's folder is a package, and so are its parents that have an __init__.py or
    are inside the current folder.
    """
    root, file = os.path.split(os.path.abspath(path))
    names = [] if file == "__init__.py" else [file.removesuffix(".py")]
    root, package = os.path.split(root)
    names.insert(0, package)
    below_current = os.path.join(os.getcwd(), "")
    while root.startswith(below_current) or _is_package(root):
        root, package = os.path.split(root)
        names.insert(0, package)
    return root, ".".join(names)


def _is_package(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "__init__.py"))


def _import_module(name: str) -> ModuleType:
    if not _is_dotted_name(name):
        raise UsageError(
            f"expected {FORMS}, got {name!r}, which is neither a file nor a module"
        )
    _import_from(os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _is_part_of(error.name, name):
            raise UsageError(
                f"expected {FORMS}, got {name!r}: neither this file nor the module "
                f"{error.name!r} exists"
            ) from None
        raise UsageError(
            f"{name} cannot be imported: {what_and_where(error)}"
        ) from error


def _is_part_of(package: str | None, module: str) -> bool:
    """Return whether a package contains a module, or is it."""
    return bool(package) and f"{module}.".startswith(f"{package}.")


def _import_from(folder: str) -> None:
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)


def what_and_where(error: BaseException) -> str:
    """Return an exception as one line, with its location in the user's code."""
    if isinstance(error, SyntaxError):
        what = f"{type(error).__name__}: {error.msg}"
        if error.filename:
            return f"{what} ({error.filename}, line {error.lineno})"
        return what
    if isinstance(error, SystemExit):
        code = "" if error.code is None else error.code
        what = f"it calls sys.exit({code})"
    else:
        message = " ".join(str(error).split())
        what = f"{type(error).__name__}: {message}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    place = (users or frames)[-1]
    return f"{what} ({place.filename}, line {place.lineno})"
