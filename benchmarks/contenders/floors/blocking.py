"""A blocking loop on stdio: `blocking.py stdio`."""

import os

from answers import answer


def main() -> None:
    """Answer the messages in each chunk of the input, until it ends."""
    rest = b""
    while chunk := os.read(0, 2**16):
        *lines, rest = (rest + chunk).split(b"\n")
        replies = [reply + b"\n" for line in lines for reply in answer(line)]
        output = memoryview(b"".join(replies))
        while output:
            written = os.write(1, output)
            output = output[written:]


if __name__ == "__main__":
    main()
