"""Checks that code runs on trio."""

import sys

import trio


def check_runs_on_trio(what: str) -> None:
    """Raise RuntimeError, with advice, unless this runs on trio."""
    if trio.lowlevel.in_trio_run():
        return
    if _is_on_asyncio():
        raise RuntimeError(
            f"{what} runs on trio, and this is asyncio. Start your program with "
            "trio.run(...), and an ASGI application with: hypercorn -k trio "
            "MODULE:APP. In tests, use pytest-trio (trio_mode = true) instead of "
            "pytest-asyncio"
        )
    raise RuntimeError(f"{what} runs on trio: start your program with trio.run(...)")


def _is_on_asyncio() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
