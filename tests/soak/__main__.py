"""`python -m tests.soak [--minutes 10]`"""

import sys

from tests.soak.load import main

sys.exit(main())
