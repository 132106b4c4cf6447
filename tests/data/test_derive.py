"""The committed data agrees with the official schemas and documents."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import DATA, PROJECT

BESIDE = PROJECT.parent / "shared" / "spec"
SPEC = Path(os.environ.get("MCP_SPEC_DIR") or BESIDE)


def derivation() -> Any:
    """Import `data/derive.py`, which is a program."""
    location = importlib.util.spec_from_file_location("derive", DATA / "derive.py")
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


def test_every_revision_and_document_has_its_data() -> None:
    assert len(list((DATA / "schema").glob("*.json"))) == 6
    assert len(list((DATA / "seeds").glob("*.json"))) == 5
    for name in ("apps", "skills", "tasks"):
        assert (DATA / "extensions" / f"{name}.schema.json").is_file()


def test_schemas_hold_no_prose() -> None:
    for path in (DATA / "schema").glob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        definitions = document.get("$defs") or document["definitions"]
        assert all("description" not in schema for schema in definitions.values())


def test_the_data_is_derived_from_the_originals() -> None:
    if not SPEC.is_dir():
        # Without the originals, nothing can be compared.
        return
    module = derivation()
    derived = module.derive(SPEC)
    assert derived
    for name, data in derived.items():
        committed = json.loads((DATA / name).read_text(encoding="utf-8"))
        assert committed == data, f"{name} differs: run tests/data/derive.py"


def test_a_schema_keeps_its_structure() -> None:
    module = derivation()
    schema = {
        "description": "prose",
        "properties": {"description": {"type": "string", "title": "prose"}},
        "required": ["description"],
        "anyOf": [{"$ref": "#/$defs/A", "description": "prose"}],
    }
    assert module.reduce_schema(schema) == {
        "properties": {"description": {"type": "string"}},
        "required": ["description"],
        "anyOf": [{"$ref": "#/$defs/A"}],
    }


def test_a_brace_that_opens_no_json_is_an_error() -> None:
    """So no example of the documents without fences can be lost unseen."""
    module = derivation()
    assert module.seed_examples(1, 'objects{ "a": 1 }- and\n{}') == [{"a": 1}, {}]
    with pytest.raises(json.JSONDecodeError):
        module.seed_examples(1, '{ "a": … }')


def test_every_fence_is_read() -> None:
    module = derivation()
    text = 'a\n```json\n{"a": 1}\n```\nb\n```json\n{"b":\n 2}\n```\n'
    assert module.seed_examples(0, text) == [{"a": 1}, {"b": 2}]
