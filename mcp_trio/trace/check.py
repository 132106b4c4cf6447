"""Check that a file is a trace, against the JSON Schema of the format."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import msgspec

from ..load_spec import UsageError
from ..protocol.types import Json
from .compare import Difference
from .format import DECODE_ERRORS, JsonValue, read


def schema() -> Json:
    """Return the JSON Schema of the format."""
    text = (files(__package__) / "schema.json").read_bytes()
    decoded: Json = msgspec.json.decode(text)
    return decoded


def problems(path: Path) -> list[str]:
    """Return the problems of a file, a line of text for each.

    Each begins with the file and the number of the line.
    """
    found = list(_schema_problems(path))
    if not found:
        try:
            read(path)
        except UsageError as problem:
            found.append(str(problem))
    return found


def _schema_problems(path: Path) -> Iterator[str]:
    # The library is slow to import, and only this needs it.
    from jsonschema import Draft202012Validator

    definitions = schema()["$defs"]
    validators = {}
    for name in ("header", "line"):
        part = {"$ref": f"#/$defs/{name}", "$defs": definitions}
        validators[name] = Draft202012Validator(part)
    try:
        rows = path.read_bytes().split(b"\n")
    except OSError:
        # `read` reports the reason.
        return
    if rows[-1] == b"":
        rows.pop()
    for number, row in enumerate(rows, 1):
        try:
            value: JsonValue = msgspec.json.decode(row)
        except DECODE_ERRORS as problem:
            yield f"{path}:{number}: not JSON: {problem}"
            continue
        validator = validators["line" if number > 1 else "header"]
        for error in validator.iter_errors(value):
            place = Difference(tuple(error.absolute_path), None, None).path
            yield f"{path}:{number}: {place}: {error.message}"
