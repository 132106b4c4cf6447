"""A blocking loop on standard input and output: `blocking.py stdio`."""

import os

from answers import answer


def main() -> None:
    """Read what is there, write what it takes, until the input ends."""
    rest = b""
    while chunk := os.read(0, 2**16):
        *lines, rest = (rest + chunk).split(b"\n")
        out = memoryview(
            b"".join([reply + b"\n" for line in lines for reply in answer(line)])
        )
        while out:
            out = out[os.write(1, out) :]


if __name__ == "__main__":
    main()
