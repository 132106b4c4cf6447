"""A client that speaks every protocol revision over every transport."""

from .client import AnswerCallback as AnswerCallback
from .client import Client as Client
from .client import Result as Result
from .client import talk as talk
from .client import ungrouped as ungrouped
from .errors import NotAMessage as NotAMessage
from .errors import RemoteError as RemoteError
from .errors import ServerGone as ServerGone
from .errors import TaskCancelled as TaskCancelled
from .target import connect as connect
from .tasks import TASKS as TASKS

# The name that AnswerCallback had before. The server has an `Answer` of its own.
Answer = AnswerCallback

__all__ = [
    "TASKS",
    "Answer",
    "AnswerCallback",
    "Client",
    "NotAMessage",
    "RemoteError",
    "Result",
    "ServerGone",
    "TaskCancelled",
    "connect",
    "talk",
    "ungrouped",
]
