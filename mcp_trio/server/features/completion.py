"""TODO"""

from ...protocol import types as model
from ..request import Request
from ..schema.signature import AnyFunction
from .feature import Feature

# The most values that a completion may have, as the specification says.
MAX_VALUES = 100


class Completer(Feature):
    """A function that completes one argument: from what is typed so far, and, if it likes, the other arguments."""

    def __init__(self, function: AnyFunction, name: str) -> None:
        super().__init__(function, "complete", name)
        if len(self.properties) not in (1, 2):
            raise TypeError(
                "a completer takes the value so far, and may take a dict of the other arguments"
            )

    async def complete(
        self, request: Request, value: str, others: dict[str, str]
    ) -> model.Completion:
        """What the value may become."""
        found = await self.call(
            request, dict(zip(self.properties, (value, others), strict=False))
        )
        by_hand = isinstance(found, model.Completion)
        values = found.values if by_hand else list(found)
        if isinstance(found, str) or not all(isinstance(item, str) for item in values):
            raise TypeError(
                f"a completer returned {found!r}; a list of strings or a Completion is wanted"
            )
        total, more = (found.total, found.has_more) if by_hand else (len(values), False)
        return model.Completion(
            values[:MAX_VALUES], total, more or len(values) > MAX_VALUES
        )
