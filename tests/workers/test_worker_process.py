"""A worker process, from the perspective of its parent."""

import trio

from mcp_trio.workers.messages import Message, MetricsPage, ReportMetrics
from mcp_trio.workers.worker_process import WorkerProcess


class Reporting(WorkerProcess):
    """A worker without a process, which takes a moment to report its metrics."""

    def __init__(self) -> None:
        super().__init__(1, lambda _: None, lambda *_: None)

    async def send(self, message: Message) -> None:
        assert isinstance(message, ReportMetrics)
        await trio.sleep(0.1)
        self._handle(MetricsPage(b"%d" % round(trio.current_time() * 10)))


async def test_callers_that_want_the_metrics_at_the_same_time_get_them_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    worker = Reporting()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(worker.refresh_page)
            await trio.sleep(0.03)
    assert trio.current_time() - began < 0.3
    page = worker.page
    await worker.refresh_page()
    assert worker.page != page
