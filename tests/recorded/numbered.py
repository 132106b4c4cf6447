"""The recorder for clients that start their server more than once: `numbered.py FILE ARGUMENT...`.

Each time it writes another file: FILE with .1, .2 and so on before its end. The TypeScript SDK 2.x, where it has to
find out which revision a server speaks, asks a first process, which it ends, and then starts a second.
"""

import os
import sys
from itertools import count
from pathlib import Path

file, *arguments = sys.argv[1:]
path = next(path for number in count(1) if not (path := Path(file).with_suffix(f".{number}.jsonl")).exists())
command = [sys.executable, "-m", "mcp_trio", "record", "-o", str(path), *arguments]
os.execv(sys.executable, command)
