"""`python -m tests.fuzz [--inputs N] [--seed S] [TARGET...]`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as pytest has it

from fuzz.command import main

if __name__ == "__main__":
    sys.exit(main())
