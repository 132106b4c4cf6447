"""A SPEC leads to a Server, or to an error of one line."""

import contextlib
import pickle
import sys

import pytest

from mcp_trio import Server
from mcp_trio.load_spec import UsageError, load

MAKES = "from mcp_trio import Server\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to an empty folder, and forget modules that are imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def problem(spec):
    with pytest.raises(UsageError) as caught:
        load(spec)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("server = Server('a')", "a"),
        ("other = Server('b')\nmcp = Server('a')", "a"),
        ("other = Server('b')\napp = Server('a')", "a"),
        ("anything = Server('a')", "a"),
        ("anything = alias = Server('a')", "a"),
        ("app = object()\nmine = Server('a')", "a"),
    ],
)
def test_the_server_of_a_file_is_found(folder, text, name):
    write(folder, "weather.py", MAKES + text)
    assert load("weather.py").info.name == name


@pytest.mark.parametrize(
    "spec", ["weather.py:two", "weather:two", "weather:box.two", "./weather.py:two"]
)
def test_a_server_is_found_by_its_name(folder, spec):
    write(
        folder,
        "weather.py",
        f"{MAKES}server = Server('one')\ntwo = Server('two')\nclass box:\n    two = two\n",
    )
    assert load(spec).info.name == "two"


def test_a_file_is_found_from_anywhere_and_may_import_its_neighbours(folder):
    write(folder, "deep/names.py", "NAME = 'a'")
    path = write(
        folder,
        "deep/my-server.py",
        f"{MAKES}from names import NAME\nserver = Server(NAME)",
    )
    assert load(str(path)).info.name == "a"
    assert load("deep/my-server.py:server").info.name == "a"


def test_a_module_is_found_from_the_working_directory(folder):
    write(folder, "package/__init__.py", "")
    write(
        folder, "package/module.py", f"{MAKES}from . import sub\nserver = Server('a')"
    )
    write(folder, "package/sub.py", "")
    assert load("package.module").info.name == "a"
    assert load("package.module:server").info.name == "a"


def test_a_package_in_the_working_directory_is_a_module(folder):
    write(folder, "package/__init__.py", f"{MAKES}server = Server('a')")
    assert load("package").info.name == load("package:server").info.name == "a"
    assert "got a directory" in problem("./package")


def test_what_a_file_defines_can_be_pickled(folder):
    text = "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\nserver = Server('a')"
    write(folder, "points.py", MAKES + text)
    load("points.py")
    point = sys.modules["points"].Point(1)
    assert pickle.loads(pickle.dumps(point)) == point


def test_a_file_named_like_a_module_in_use_does_not_take_its_place(folder):
    import json

    write(folder, "json.py", f"{MAKES}server = Server('a')")
    assert load("json.py").info.name == "a"
    assert sys.modules["json"] is json


def test_a_main_block_is_not_run(folder):
    write(
        folder,
        "weather.py",
        f"{MAKES}server = Server('a')\nif __name__ == '__main__':\n    raise SystemExit(1)",
    )
    assert isinstance(load("weather.py"), Server)


WRONG = {
    "no such file": ("nothing.py", "", ["nothing.py", "does not exist"]),
    "a directory": (".", "", ["got a directory", "server.py"]),
    "no Python file": ("notes.txt", "", ["notes.txt", "not a Python file"]),
    "no such module": ("nothing", "", ["the module 'nothing' exists"]),
    "no such submodule": ("json.nothing", "", ["the module 'json.nothing' exists"]),
    "neither": ("what ever", "", ["neither a file nor a module"]),
    "bad name": (
        "weather:1st",
        "",
        ["'weather:1st'", "'1st' is not a valid name"],
    ),
    "bad syntax": (
        "weather.py",
        "x = 1\ndef f(:\n",
        ["SyntaxError", "weather.py, line 2"],
    ),
    "an exception": (
        "weather.py",
        "\nx = 1 / 0",
        ["ZeroDivisionError: division by zero", "weather.py, line 2"],
    ),
    "an exception of many lines": (
        "weather.py",
        "raise ValueError('a\\n b')",
        ["ValueError: a b"],
    ),
    "an exception within a library": (
        "weather.py",
        "import json\n\njson.loads('{')",
        ["weather.py, line 3"],
    ),
    "a mistake with a decorator": (
        "weather.py",
        f"{MAKES}server = Server('a')\nserver.add_tool(1)",
        ["TypeError", "weather.py, line 3"],
    ),
    "a missing library": (
        "weather.py",
        "import not_installed",
        ["ModuleNotFoundError", "not_installed", "line 1"],
    ),
    "an exit": (
        "weather.py",
        "import sys\nsys.exit(3)",
        ["sys.exit(3)", "weather.py, line 2"],
    ),
    "no server": (
        "weather.py",
        "x = 1",
        ["no Server object", "server = mcp_trio.Server("],
    ),
    "several": (
        "weather.py",
        f"{MAKES}a = Server('a')\nb = Server('b')",
        ["weather.py:a, weather.py:b"],
    ),
    "no such object": (
        "weather.py:c",
        f"{MAKES}a = Server('a')\nb = Server('b')",
        ["'c'", "weather.py:a, weather.py:b"],
    ),
    "no such object and no server": ("weather.py:c", "", ["'c'", "no Server object"]),
    "not a Server": (
        "weather.py:a",
        "a = 1",
        ["weather.py:a: expected a Server, got int"],
    ),
}


@pytest.mark.parametrize(("spec", "text", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_spec_is_reported_in_one_line(folder, spec, text, says):
    write(folder, "weather.py", text)
    write(folder, "notes.txt", "")
    message = problem(spec)
    for part in says:
        assert part in message


def test_an_exception_in_an_imported_package_is_reported_with_its_place(folder):
    write(folder, "package/__init__.py", "")
    write(folder, "package/module.py", "from . import broken")
    write(folder, "package/broken.py", "\n\nnope")
    message = problem("package.module")
    assert "NameError" in message
    assert "broken.py, line 3" in message


# A file that is a module of a package

RELATIVE = f"{MAKES}from . import helpers\nserver = Server('a')"


@pytest.mark.parametrize("package", ["srv", "without_init"])
def test_a_file_with_relative_imports_is_pointed_to_its_module(folder, package):
    write(folder, f"{package}/main.py", RELATIVE)
    write(folder, f"{package}/helpers.py", "")
    if package == "srv":
        write(folder, f"{package}/__init__.py", "")
    message = problem(f"{package}/main.py")
    assert "ImportError: attempted relative import" in message
    assert f"{package}/main.py, line 2" in message
    assert message.endswith(
        f"; the file belongs to a package: use {package}.main instead of {package}/main.py"
    )
    assert load(f"{package}.main").info.name == "a"


def test_the_name_of_a_module_has_every_package_that_it_is_in(folder):
    write(folder, "outer/__init__.py", "")
    write(folder, "outer/inner/__init__.py", "")
    write(folder, "outer/inner/main.py", RELATIVE.replace("from .", "from ..inner"))
    write(folder, "outer/inner/helpers.py", "")
    assert "use outer.inner.main instead of" in problem("outer/inner/main.py:server")
    assert load("outer.inner.main:server").info.name == "a"


def test_a_package_elsewhere_is_named_with_its_folder(folder, monkeypatch):
    write(folder, "elsewhere/srv/__init__.py", "")
    write(folder, "elsewhere/srv/main.py", RELATIVE)
    write(folder, "here/notes.txt", "")
    monkeypatch.chdir(folder / "here")
    message = problem("../elsewhere/srv/main.py")
    assert message.endswith(f"use srv.main in the folder {folder / 'elsewhere'}")


def test_a_relative_import_in_the_current_folder_names_the_folder_above(folder):
    write(folder, "srv/__init__.py", "")
    path = write(folder, "srv/main.py", RELATIVE)
    assert load_problem_in(path.parent, "main.py").endswith(
        f"use srv.main in the folder {folder}"
    )


def load_problem_in(folder, spec):
    with contextlib.chdir(folder):
        return problem(spec)


def test_a_failing_relative_import_within_a_package_has_no_such_hint(folder):
    write(folder, "srv/__init__.py", "")
    write(folder, "srv/main.py", f"{MAKES}from . import missing")
    assert "the file belongs to a package" not in problem("srv.main")
