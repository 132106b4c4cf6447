"""The tasks extension: calls of tools that go on after their request was answered."""

from .extension import Tasks as Tasks

__all__ = ["Tasks"]
