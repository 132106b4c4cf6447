"""What every test stands on."""

import os

from hypothesis import settings

# A loaded machine is not a bug, so there are no deadlines. In CI the same examples come each time; elsewhere new ones.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
