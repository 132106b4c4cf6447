"""A trio loop on standard input and output: `loop.py stdio`."""

import trio
from answers import answer


async def main() -> None:
    """Read what is there, write what it takes, until the input ends."""
    rest = b""
    async with trio.lowlevel.FdStream(0) as stdin, trio.lowlevel.FdStream(1) as stdout:
        async for chunk in stdin:
            *lines, rest = (rest + chunk).split(b"\n")
            await stdout.send_all(
                b"".join([reply + b"\n" for line in lines for reply in answer(line)])
            )


if __name__ == "__main__":
    trio.run(main)
