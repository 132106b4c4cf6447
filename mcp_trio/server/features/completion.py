"""Completion: functions that complete an argument while a user types it."""

from ...protocol.types import Completion
from ..request import Request
from ..schema.signature import AnyFunction
from .feature import Feature

# The maximum number of values in a completion, according to the specification.
MAX_VALUES = 100


class Completer(Feature):
    """A function that completes one argument of a prompt or a resource template.

    It takes the text typed so far and, if it has a second parameter, a dictionary of
    the other arguments.
    """

    def __init__(self, function: AnyFunction, name: str) -> None:
        super().__init__(function, "complete", name)
        if len(self.properties) not in (1, 2):
            raise TypeError(
                "@server.complete: expected a function that takes the text so far and, "
                "optionally, a dict of the other arguments; got one with the "
                f"parameters {[*self.properties]}"
            )

    async def complete(
        self, request: Request, value: str, others: dict[str, str]
    ) -> Completion:
        """Return the completions of a value, given the other arguments."""
        # A completer with one parameter does not take the other arguments.
        arguments = dict(zip(self.properties, (value, others), strict=False))
        found = await self.call(request, arguments)
        if isinstance(found, Completion):
            values = found.values
            total = found.total
            has_more = found.has_more
        else:
            values = list(found)
            total = len(values)
            has_more = False
        is_text = isinstance(found, str)
        if is_text or not all(isinstance(value, str) for value in values):
            raise TypeError(
                "a completer: expected a list of strings or a Completion, got "
                f"{found!r}"
            )
        return Completion(
            values[:MAX_VALUES], total, has_more or len(values) > MAX_VALUES
        )
