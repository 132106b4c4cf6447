"""A short form of the chaos test of two processes: `python -m tests.chaos --redis`."""

import shutil
import sys

import pytest

from tests.chaos.privileges import missing_programs
from tests.chaos.shared.command import survive_shared
from tests.chaos.shared.faults import FAULTS
from tests.support.redis_server import REDIS, running_redis

# Other tests stop a process and let it go on.
SHORT = [fault for fault in FAULTS if "stopped" not in fault.name]

pytest.importorskip("coredis")


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its prlimit")
@pytest.mark.skipif(bool(missing_programs()), reason="needs prlimit and setpriv")
@pytest.mark.skipif(shutil.which(REDIS) is None, reason="needs redis-server")
async def test_two_processes_survive_every_fault(tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("chaos")
    folder.chmod(0o755)
    with running_redis(folder) as redis:
        outcomes = await survive_shared(SHORT, 0.5, folder, redis, print, expiry=0)
    problems = {one.fault: one.problems for one in outcomes if one.problems}
    assert problems == {}
