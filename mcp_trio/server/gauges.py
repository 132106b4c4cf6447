"""Metrics of extensions, in the data model of Prometheus."""

from collections.abc import Mapping

from msgspec import Struct


class Gauge(Struct):
    """A metric with its current value for each set of labels.

    The keys of `samples` are made by `labels`. A `kind` of "counter" says that the
    value only grows.
    """

    name: str
    help: str
    samples: Mapping[str, float]
    kind: str = "gauge"


def labels(**values: str) -> str:
    """Return labels in the text format of Prometheus. Empty values are omitted."""
    pairs = [
        f'{name}="{_escaped(value)}"' for name, value in values.items() if value != ""
    ]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
