"""The rules of the house: imports between rooms, sizes of functions, revision dates."""

import ast
import configparser
import functools
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.paths import PROJECT as ROOT

PACKAGE = ROOT / "mcp_trio"
FILES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))

# Room -> the other rooms it may import from. A room is a folder or a file of
# mcp_trio/; "mcp_trio" is its __init__.py. No room is in its own list, directly or not.
MAY_IMPORT = {
    "protocol": set(),
    "auth": {"protocol"},
    "server": {"auth", "protocol"},
    "stores": {"auth", "protocol", "server"},
    "extensions": {"auth", "protocol", "server", "stores"},
    "transports": {"auth", "protocol", "server", "stores"},
    "client": {"protocol"},
    "load_spec": {"server"},
    "trace": {"auth", "client", "load_spec", "protocol", "server", "transports"},
    "bench": {"client", "load_spec", "protocol", "trace"},
    "console": {"auth", "client", "protocol", "server", "trace", "transports"},
    "telemetry": {"server"},
    "serve": {
        *("auth", "console", "extensions", "server", "stores", "telemetry"),
        "transports",
    },
    "workers": {"server", "stores"},
    "mcp_trio": {"auth", "protocol", "serve", "server"},
    "demo": {"mcp_trio"},
    "testing": {"auth", "client", "protocol", "server", "trace", "transports"},
    "cli": {
        *("auth", "bench", "client", "load_spec", "mcp_trio", "protocol", "serve"),
        *("server", "stores", "testing", "trace", "transports", "workers"),
    },
    "__main__": {"cli"},
}
TOP_LEVEL_FILES = 8

# What the transports share. Everything else in transports/ is a transport.
SHARED = {"address", "busy_wait", "message_reader", "pipe_size", "send_queue"}

NOT_PURE = set(
    """
    asyncio builtins concurrent ctypes datetime fcntl http io logging multiprocessing os pathlib queue sched select
    selectors shutil signal socket socketserver sqlite3 ssl subprocess tempfile threading time urllib
    """.split()
)
NOT_PURE_NAMES = {"open", "print", "input"}
PURE_LIBRARIES = {"msgspec", "mcp_trio"}

HEAVY = set(
    """
    jsonschema httptools hypercorn quart quart_trio trio_websocket h11 h2 wsproto sqlite3 argparse asyncio
    rich matplotlib opentelemetry jwt cryptography watchfiles anyio coredis yaml
    """.split()
)

# Syntax nodes in a function, without its docstring.
FUNCTION_LIMIT = 400


# Reading the source


class Import(NamedTuple):
    line: int
    module: str
    at_start: bool
    """Whether it runs when the module is imported: not inside a function, not for the type checker alone."""


@functools.cache
def source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@functools.cache
def tree(file: str) -> ast.Module:
    return ast.parse(source(file), file)


def module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_name(file): file for file in FILES}


def room(module: str) -> str:
    """Return the folder or file of mcp_trio/ that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def for_type_checker(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    )


def import_nodes(
    node: ast.AST, at_start: bool = True
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_start
        else:
            later = isinstance(
                child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            ) or for_type_checker(child)
            yield from import_nodes(child, at_start and not later)


def imported_from(file: str, node: ast.ImportFrom) -> Iterator[str]:
    """Return the modules that `from ... import ...` names.

    These are submodules, or the module itself if it has no such submodule.
    """
    base = node.module or ""
    if node.level:
        package = file.split("/")[: -node.level]
        base = ".".join(package + ([node.module] if node.module else []))
    for alias in node.names:
        submodule = f"{base}.{alias.name}"
        yield submodule if submodule in MODULES else base


# Their strings name modules that another file imports.
FULL_OF_MODULE_NAMES = {"mcp_trio/cli/commands.py"}


def named_modules(file: str) -> Iterator[tuple[int, str]]:
    """Return the modules named by strings in a file that calls an import function.

    A name may be absolute, or relative to the package or to the file's folder.
    """
    imports_by_name = "import_module" in source(file) or "__import__" in source(file)
    if not imports_by_name and file not in FULL_OF_MODULE_NAMES:
        return
    folder = ".".join(file.split("/")[:-1])
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = node.value.lstrip(".")
            for name in {word, f"mcp_trio.{word}", f"{folder}.{word}"}:
                if name in MODULES and name != "mcp_trio":
                    yield node.lineno, name


@functools.cache
def imports(file: str) -> list[Import]:
    found = [Import(line, module, False) for line, module in named_modules(file)]
    for node, at_start in import_nodes(tree(file)):
        names = (
            imported_from(file, node)
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
        found += [Import(node.lineno, name, at_start) for name in names]
    return found


def functions(file: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(tree(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def size(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Syntax nodes, without the docstrings."""
    nodes = list(ast.walk(function))
    documented = [
        node
        for node in nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False)
    ]
    # A docstring is an expression statement and a constant.
    return len(nodes) - 2 * len(documented)


def none_of(problems: list[str]) -> None:
    """Fail with one line for each problem."""
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


# Imports


def forbidden_imports(file: str) -> Iterator[str]:
    here = room(module_name(file))
    if here not in MAY_IMPORT:
        yield f"{file}: {here} is a new room; add it to MAY_IMPORT"
        return
    allowed = MAY_IMPORT[here] | {here}
    for line, module, _ in imports(file):
        if module.split(".")[0] == "mcp_trio" and room(module) not in allowed:
            rooms = ", ".join(sorted(allowed))
            yield f"{file}:{line}: {here} imports {module}, but may import only {rooms}"


def test_imports_point_one_way() -> None:
    none_of([problem for file in FILES for problem in forbidden_imports(file)])


def test_rooms_stand_on_each_other_in_one_order() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()


def test_the_top_level_has_few_files() -> None:
    files = [file for file in FILES if file.count("/") == 1]
    assert len(files) <= TOP_LEVEL_FILES, ", ".join(files)


def transport(module: str) -> str | None:
    """Return the transport that a module belongs to, or None if they share it."""
    parts = module.split(".")
    return (
        parts[2]
        if parts[1:2] == ["transports"] and len(parts) > 2 and parts[2] not in SHARED
        else None
    )


def test_no_transport_imports_another() -> None:
    none_of(
        [
            f"{file}:{line}: imports the transport {module}; only that transport itself may"
            for file in FILES
            if file.startswith("mcp_trio/transports/")
            for line, module, _ in imports(file)
            if transport(module) not in (None, transport(module_name(file)))
        ]
    )


def impurities(file: str) -> Iterator[str]:
    for line, module, _ in imports(file):
        top = module.split(".")[0]
        if top in NOT_PURE or (
            top not in PURE_LIBRARIES and top not in sys.stdlib_module_names
        ):
            yield f"{file}:{line}: imports {module}"
    for node in ast.walk(tree(file)):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in NOT_PURE_NAMES
        ):
            yield f"{file}:{node.lineno}: uses {node.id}()"
        if isinstance(node, ast.Attribute) and re.fullmatch(
            r"sys\.(__)?std(in|out|err)(__)?", ast.unparse(node)
        ):
            yield f"{file}:{node.lineno}: uses {ast.unparse(node)}"


def test_protocol_is_pure() -> None:
    none_of(
        [
            f"{problem}; protocol/ does no I/O and reads no clock"
            for file in FILES
            if file.startswith("mcp_trio/protocol/")
            for problem in impurities(file)
        ]
    )


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    # Deferred and type-only imports count.
    graph = {
        module: {found.module for found in imports(file) if found.module in MODULES}
        - {module}
        for module, file in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        none_of([f"modules import each other in a cycle: {' <- '.join(error.args[1])}"])


def test_modules_named_as_strings_count_as_imported() -> None:
    found = {module for _, module in named_modules("mcp_trio/cli/commands.py")}
    assert {"mcp_trio.cli.run", "mcp_trio.cli.bench"} <= found
    found = {module for _, module in named_modules("mcp_trio/__init__.py")}
    assert "mcp_trio.auth.jwt" in found


def test_the_server_does_not_know_the_console() -> None:
    # It is observed by callbacks. Only serve.py starts it.
    knows = {
        file
        for file in FILES
        for found in imports(file)
        if found.module.startswith("mcp_trio.console")
        and room(module_name(file)) != "console"
    }
    assert knows == {"mcp_trio/serve.py"}


# How large things are


def test_functions_are_small() -> None:
    none_of(
        [
            f"{file}:{function.lineno}: {function.name} has {size(function)} syntax "
            f"nodes; the limit is {FUNCTION_LIMIT}"
            for file in FILES
            for function in functions(file)
            if size(function) > FUNCTION_LIMIT
        ]
    )


# Contents of the modules


def test_no_revision_is_named_outside_its_folder() -> None:
    none_of(
        [
            f"{file}:{number}: {date} is a revision, which only files in "
            "protocol/revisions/ may name"
            for file in FILES
            if not file.startswith("mcp_trio/protocol/revisions/")
            for number, line in enumerate(source(file).splitlines(), 1)
            for date in re.findall(r"20\d\d[-_]\d\d[-_]\d\d", line)
        ]
    )


# Names that mean one thing each, in spite of several definitions.
DEFINED_TWICE = {
    "Server": "the public class, which adds the transports, extends the server's own",
    "connect": "public in mcp_trio.client and in mcp_trio.testing",
    "replay": "public in mcp_trio.testing, and a command",
}
# Temporary: these are in files that are about to be rewritten.
DEFINED_TWICE_STILL = {"ClientRequests", "Result", "encode"}


def test_a_name_means_one_thing_in_the_package() -> None:
    places: dict[str, set[str]] = {}
    for file in FILES:
        # The functions of the demo are tools of a server.
        if file == "mcp_trio/demo.py":
            continue
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                places.setdefault(node.name, set()).add(file)
    none_of(
        [
            f"{name} is defined in {', '.join(sorted(files))}; rename all but one"
            for name, files in places.items()
            if len(files) > 1
            and not name.startswith("_")
            and name not in DEFINED_TWICE.keys() | DEFINED_TWICE_STILL
        ]
    )


# Public, in spite of how they are spelled.
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
# The only private attribute of a library that is read, in one file: by it, the runner
# sees a cancel scope that a call has left open.
PRIVATE_READ_BY_NAME = {"_cancel_status"}
ATTRIBUTE_FUNCTIONS = {"attrgetter", "delattr", "getattr", "hasattr", "setattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


@functools.cache
def own_names() -> set[str]:
    """Return the names that the package defines: functions, variables, attributes."""
    found = set()
    for node in (node for file in FILES for node in ast.walk(tree(file))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def private_names_used(file: str) -> Iterator[tuple[int, str]]:
    """Return the private names that a file uses and the package does not define."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and (
            ast.unparse(node.func).split(".")[-1] in ATTRIBUTE_FUNCTIONS
        ):
            names = [
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant)
                and isinstance(argument.value, str)
            ]
        else:
            continue
        for name in names:
            if is_private(name) and name not in own_names() | OF_NAMED_TUPLES:
                yield node.lineno, name


def test_no_private_attribute_of_a_library_is_used() -> None:
    none_of(
        [
            f"{file}:{line}: {name} is private to a library; use its public API"
            for file in FILES
            for line, name in private_names_used(file)
            if name not in PRIVATE_READ_BY_NAME
        ]
    )


def test_the_one_private_attribute_is_read_in_one_file() -> None:
    readers = {
        file
        for file in FILES
        for _, name in private_names_used(file)
        if name in PRIVATE_READ_BY_NAME
    }
    assert len(readers) <= 1, ", ".join(sorted(readers))


def own_docstring(thing: Any) -> str:
    """Return its own docstring, not inherited, and not made by dataclasses."""
    text = (
        vars(thing).get("__doc__")
        if inspect.isclass(thing)
        else getattr(thing, "__doc__", None)
    ) or ""
    return "" if text.startswith(f"{thing.__name__}(") else text.strip()


def test_everything_public_has_a_docstring() -> None:
    import mcp_trio

    public = {
        name: getattr(mcp_trio, name) for name in getattr(mcp_trio, "__all__", ())
    }
    none_of(
        [
            f"mcp_trio.{name} is public and has no docstring"
            for name, thing in public.items()
            if (inspect.isclass(thing) or inspect.isfunction(thing))
            and not own_docstring(thing)
        ]
    )


def repository_texts() -> Iterator[tuple[str, str]]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        listed, cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        path = ROOT / name
        if path.is_file():
            yield name, path.read_bytes().decode("utf-8", "replace")


def test_no_text_names_a_path_of_some_machine() -> None:
    # A path in a URI, as in the protocol's examples (file:///home/...), is not a real
    # machine.
    machine_path = re.compile(
        r"(?<![\w./])(?:/(?:work|root|home|Users|tmp)/|[A-Z]:\\{1,2}Users\\)[\w.-]+"
    )
    none_of(
        [
            f"{name}:{number}: {found.group()} is a path of some machine"
            for name, text in repository_texts()
            for number, line in enumerate(text.splitlines(), 1)
            for found in machine_path.finditer(line)
        ]
    )


# What is declared

# Packages whose names on the index differ from those of their modules.
DISTRIBUTIONS = {
    "jwt": "pyjwt",
    "opentelemetry": "opentelemetry-api",
    "quart_trio": "quart-trio",
    "trio_websocket": "trio-websocket",
    "yaml": "pyyaml",
}


def declared() -> set[str]:
    """Return the names of all requirements in setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = [config["options"]["install_requires"]]
    listed += config["options.extras_require"].values()
    lines = [line for text in listed for line in text.splitlines()]
    return {found[0] for line in lines if (found := re.match(r"[\w-]+", line))}


def test_every_imported_package_is_declared() -> None:
    known = sys.stdlib_module_names | {"mcp_trio"}
    imported = {
        (file, found.module.partition(".")[0])
        for file in FILES
        for found in imports(file)
    }
    none_of(
        [
            f"{file}: imports {module}, which setup.cfg does not declare"
            for file, module in sorted(imported)
            if module not in known
            and DISTRIBUTIONS.get(module, module) not in declared()
        ]
    )


# What importing costs


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"python {' '.join(arguments)} failed:\n{done.stderr}"
    return done


def loaded_by(statement: str) -> set[str]:
    return set(
        json.loads(
            python(
                "-c",
                f"{statement}; import json, sys; print(json.dumps([*sys.modules]))",
            ).stdout
        )
    )


def test_importing_mcp_trio_loads_no_heavy_library() -> None:
    heavy = HEAVY & (loaded_by("import mcp_trio") - loaded_by("import trio, msgspec"))
    assert not heavy, (
        f"import mcp_trio loads {', '.join(sorted(heavy))}; import them where they are first needed"
    )


def libraries(modules: set[str]) -> set[str]:
    """Return the third-party packages among the modules."""
    packages = {module.partition(".")[0] for module in modules}
    return packages - sys.stdlib_module_names - {"__main__", "mcp_trio"}


def test_importing_mcp_trio_loads_trio_and_msgspec_only() -> None:
    loaded = loaded_by("import mcp_trio") - loaded_by("import trio, msgspec")
    assert libraries(loaded) == set()


# What serving needs of the command line.
COMMAND_FILES = {
    file.removeprefix("mcp_trio/cli/").removesuffix(".py")
    for file in FILES
    if file.startswith("mcp_trio/cli/")
}
CLI_OF_RUN = {
    "command",
    "commands",
    "log_format",
    "main",
    "options",
    "run",
    "run_options",
}
NOT_FOR_RUN = {"bench", "client", "console", "demo", "testing", "trace"}


def test_run_loads_what_serving_needs_and_nothing_else(tmp_path: Path) -> None:
    server = tmp_path / "served.py"
    server.write_text("from mcp_trio import Server\nserver = Server('a')\n")
    run = f"from mcp_trio.cli.main import main; main(['run', {str(server)!r}])"
    loaded = loaded_by(run)
    assert "mcp_trio.transports.stdio" in loaded
    assert {
        module.split(".")[1] for module in loaded & MODULES.keys() - {"mcp_trio"}
    }.isdisjoint(NOT_FOR_RUN)
    of_cli = {
        module.split(".")[2] for module in loaded if module.startswith("mcp_trio.cli.")
    }
    assert of_cli == CLI_OF_RUN
    without = loaded_by("import trio, msgspec, argparse")
    assert libraries(loaded - without) == {"served"}
    assert (loaded - without) & HEAVY == set()
    assert {"difflib", "ssl", "urllib.request"} & (loaded - without) == set()


@pytest.mark.parametrize("words", [["--help"], ["version"], ["token", "alice"]])
def test_a_command_loads_its_own_module_only(words: list[str]) -> None:
    loaded = loaded_by(
        f"import io, sys; from mcp_trio.cli.main import main; out = sys.stdout; "
        f"sys.stdout = io.StringIO(); main({words!r}); sys.stdout = out"
    )
    of_cli = {
        module.split(".")[2] for module in loaded if module.startswith("mcp_trio.cli.")
    }
    assert of_cli == {"command", "commands", "main", "options"} | (
        {words[0]} & COMMAND_FILES
    )


def import_time(*modules: str) -> int:
    """Return the microseconds that importing the modules takes."""
    report = python("-X", "importtime", "-c", f"import {', '.join(modules)}").stderr
    # "import time: <self> | <cumulative> | <module>"; what another module imported
    # stands indented.
    times = {
        name: int(time)
        for time, name in re.findall(r"\| +(\d+) \| (\w+)$", report, re.MULTILINE)
    }
    return sum(times[module] for module in modules)


@pytest.mark.load
@pytest.mark.slow
def test_importing_mcp_trio_costs_little_more_than_trio_and_msgspec() -> None:
    runs = [(import_time("mcp_trio"), import_time("trio", "msgspec")) for _ in range(9)]
    ours, floor = (min(times) for times in zip(*runs, strict=True))
    assert ours < 1.3 * floor, (
        f"import mcp_trio takes {ours} us; the limit is 1.3 times the {floor} us of trio and msgspec"
    )


def test_no_test_imports_from_another_test() -> None:
    """What several tests use is in tests/support."""
    none_of(
        [
            f"{path.relative_to(ROOT)}:{node.lineno}: imports {node.module}"
            for path in sorted((ROOT / "tests").rglob("*.py"))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            if re.search(r"(^|\.)(test_\w+|conftest)$", node.module or "")
        ]
    )
