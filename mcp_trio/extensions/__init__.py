"""Extensions of the protocol, and the base class for your own."""

from ..protocol.params import Params as Params
from ..server.gauges import Gauge as Gauge
from ..server.gauges import labels as labels
from .base import Extension as Extension
from .base import ExtensionContext as ExtensionContext
from .base import method as method

__all__ = ["Extension", "ExtensionContext", "Gauge", "Params", "labels", "method"]
