"""`python -m tests.soak [--minutes 10]`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as pytest has it

from soak.load import main

sys.exit(main())
