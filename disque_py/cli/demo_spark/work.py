"""The workers of the plain demonstration, which also remember the flight of each job, and the finished jobs.

Spark adds the flights, so this module adds none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from disque_py.cli.demo.display import Display
from disque_py.cli.demo.flights import row_of
from disque_py.cli.demo.load import Load
from disque_py.client import ReplyError

if TYPE_CHECKING:
    from rich.console import Console

    from disque_py.cli.demo.flights import Flights
    from disque_py.cli.demo.nodes import NodeProcess
    from disque_py.cli.demo.tally import Tally
    from disque_py.cli.demo_spark.spark_process import SparkProcess


class Work(Load):
    """The state that workers share.

    row_of_job   flight of each job that was delivered
    finished     jobs whose ACKJOB a node has answered
    """

    def __init__(self, flights: Flights, tally: Tally) -> None:
        super().__init__(flights, tally)
        self.row_of_job: dict[bytes, int] = {}
        self.finished: set[bytes] = set()

    async def _receive(self, jobs: Any, node: int) -> list[bytes]:
        if not isinstance(jobs, ReplyError):
            for _, job_id, body in jobs or ():
                with contextlib.suppress(ValueError):  # The job of another program, which the tally counts.
                    self.row_of_job[job_id] = row_of(body)
        return await super()._receive(jobs, node)

    def _count_acks(self, reply: Any, ids: list[bytes]) -> None:
        super()._count_acks(reply, ids)
        if not isinstance(reply, ReplyError):
            self.finished.update(ids)


class SparkDisplay(Display):
    """The display of the plain demonstration, with the events that Spark has indexed."""

    def __init__(self, console: Console, work: Work, nodes: list[NodeProcess], spark: SparkProcess) -> None:
        super().__init__(console, work, nodes, has_events=True)
        self._spark = spark

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield the totals: name and value."""
        tally = self._load.tally
        rate = self._total.sample(self._load.clock(), tally.delivered)
        yield "rate", f"{rate:,.0f}/s" if tally.delivered else "waiting for Spark"
        yield "delivered", f"{tally.delivered:,}"
        yield "queued", f"{sum(view.queued for view in self.views):,}"
        yield "events", f"{sum(view.events for view in self.views):,}"
        yield "indexed", f"{self._spark.indexed:,}"
