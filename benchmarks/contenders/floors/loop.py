"""A trio loop on stdio: `loop.py stdio`."""

import trio
from answers import answer


async def main() -> None:
    """Answer the messages in each chunk of the input, until it ends."""
    rest = b""
    async with trio.lowlevel.FdStream(0) as stdin, trio.lowlevel.FdStream(1) as stdout:
        async for chunk in stdin:
            *lines, rest = (rest + chunk).split(b"\n")
            replies = [reply + b"\n" for line in lines for reply in answer(line)]
            await stdout.send_all(b"".join(replies))


if __name__ == "__main__":
    trio.run(main)
