"""A client that speaks every protocol revision over every transport."""

from .client import Answer as Answer
from .client import Client as Client
from .client import Result as Result
from .client import talk as talk
from .client import ungrouped as ungrouped
from .errors import RemoteError as RemoteError
from .errors import ServerGone as ServerGone
from .target import connect as connect

__all__ = [
    "Answer",
    "Client",
    "RemoteError",
    "Result",
    "ServerGone",
    "connect",
    "talk",
    "ungrouped",
]
