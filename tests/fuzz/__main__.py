"""`python -m tests.fuzz [--inputs N] [--seed S] [TARGET...]`"""

import sys

from tests.fuzz.command import main

if __name__ == "__main__":
    sys.exit(main())
