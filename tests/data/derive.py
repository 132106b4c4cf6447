"""Derive the data in this folder from the official schemas, examples and documents.

    python tests/data/derive.py SPEC_FOLDER

SPEC_FOLDER has `schema/`, `examples/` and `extensions/`, and is next to `seeds/`. The
result has only facts: schemas keep their structure without descriptions, and of the
documents only the JSON messages are kept. Two schemas in `extensions/` have no original
in that folder. The one of apps is a part of the schema in the npm package
@modelcontextprotocol/ext-apps, and the one of skills follows the specification's text.
`tests/data/test_derive.py` compares the result with the originals if they are present.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES_REVISION = "2026-07-28"

# Keywords of a schema that are prose.
PROSE = frozenset({"description", "title", "examples", "$comment", "deprecated"})
# Keywords whose values map names to schemas.
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
# Keywords whose values are data, not schemas.
DATA = frozenset({"const", "enum", "required", "type", "default", "format"})

FENCED = re.compile(r"^ *```json\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
BARE_MEMBER = re.compile(r'^("\w+": \{.*\})$', re.MULTILINE)
# Accepts line ends inside a string.
LENIENT = json.JSONDecoder(strict=False)


def reduce_schema(schema: Any) -> Any:
    """Return a schema without its prose."""
    if isinstance(schema, list):
        return [reduce_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reduced = {}
    for keyword, value in schema.items():
        if keyword in DATA:
            reduced[keyword] = value
        elif keyword in MAPS:
            reduced[keyword] = {name: reduce_schema(s) for name, s in value.items()}
        elif keyword not in PROSE:
            reduced[keyword] = reduce_schema(value)
    return reduced


def seed_examples(number: int, text: str) -> list[Any]:
    """Return every JSON example of one seed document, in order.

    Document 1 has no fences. Document 4 is JSON for human eyes: comments are dropped,
    the placeholder object `{ … }` becomes `{"…": "…"}`, and the fragment
    `"capabilities": {...}` gets the braces that it lacks.
    """
    if number == 1:
        return list(_bare_objects(text))
    if number == 4:
        return list(_bare_objects(_plain_json(text)))
    return [LENIENT.decode(block) for block in FENCED.findall(text)]


def _bare_objects(text: str) -> Iterator[Any]:
    """Yield each JSON object. A brace that opens no JSON object is an error."""
    start = text.find("{")
    while start >= 0:
        example, end = LENIENT.raw_decode(text, start)
        yield example
        start = text.find("{", end)


def _plain_json(text: str) -> str:
    text = STRING_OR_COMMENT.sub(lambda match: match[1] or "", text)
    text = text.replace("{ … }", '{"…": "…"}')
    return BARE_MEMBER.sub(r"{\1}", text)


def derive(spec: Path) -> dict[str, Any]:
    """Return all data, by the file in this folder that holds it."""
    derived: dict[str, Any] = {}
    for path in sorted((spec / "schema").glob("*.json")):
        derived[f"schema/{path.name}"] = reduce_schema(_read(path))
    for path in sorted((spec / "extensions").glob("*.json")):
        derived[f"extensions/{path.name}"] = reduce_schema(_read(path))
    examples: dict[str, dict[str, Any]] = {}
    for path in sorted((spec / "examples" / EXAMPLES_REVISION).glob("*/*.json")):
        examples.setdefault(path.parent.name, {})[path.stem] = _read(path)
    derived[f"examples/{EXAMPLES_REVISION}.json"] = examples
    for path in sorted((spec.parent / "seeds").glob("00[0-4]_*.txt")):
        number = int(path.name[:3])
        text = path.read_text(encoding="utf-8")
        derived[f"seeds/{number}.json"] = seed_examples(number, text)
    return derived


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    """Write the files."""
    for name, data in derive(Path(sys.argv[1])).items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, ensure_ascii=False, indent=1)
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
