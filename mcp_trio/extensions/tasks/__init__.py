"""The tasks extension: tool calls that continue after the response to their request."""

from .extension import Tasks as Tasks

__all__ = ["Tasks"]
