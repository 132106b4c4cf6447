"""A client for every protocol revision and every transport."""

from ..protocol.extensions import TASKS as TASKS
from .client import Client as Client
from .client import Result as Result
from .client import talk as talk
from .client import ungrouped as ungrouped
from .errors import NotAMessage as NotAMessage
from .errors import RemoteError as RemoteError
from .errors import ServerGone as ServerGone
from .errors import TaskCancelled as TaskCancelled
from .handlers import AnswerCallback as AnswerCallback
from .handlers import ElicitationHandler as ElicitationHandler
from .handlers import LogHandler as LogHandler
from .handlers import ProgressHandler as ProgressHandler
from .handlers import SamplingHandler as SamplingHandler
from .target import connect as connect

# The former name of AnswerCallback. The server has a different `Answer`.
Answer = AnswerCallback

__all__ = [
    "TASKS",
    "Answer",
    "AnswerCallback",
    "Client",
    "ElicitationHandler",
    "LogHandler",
    "NotAMessage",
    "ProgressHandler",
    "RemoteError",
    "Result",
    "SamplingHandler",
    "ServerGone",
    "TaskCancelled",
    "connect",
    "talk",
    "ungrouped",
]
