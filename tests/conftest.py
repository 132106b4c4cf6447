"""What every test stands on."""

import os
import signal

from hypothesis import settings

# A loaded machine is not a bug, so there are no deadlines. In CI the same examples come each time; elsewhere new ones.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would the servers that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
