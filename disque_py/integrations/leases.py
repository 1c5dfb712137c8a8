"""A thread that extends the leases of the jobs that a worker holds.

Task libraries run functions of any duration in their own threads or processes. Their jobs have a short lease, so that
the jobs of a dead worker come back soon. This thread sends WORKING for each held job, at a third of the lease or more
often. It works even while the functions keep the interpreter or an event loop busy.

A job leaves the keeper when it is settled. It also leaves when its lease can't be extended any more (the job is
unknown, past half of its TTL, or delivered again), and when it was canceled. In these two cases the worker is notified.

The thread starts with the first job. A forked child begins with no job and no thread.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from disque_py.client import (
    Address,
    Disque,
    DisqueError,
    FencedError,
    Job,
    JobCanceledError,
    NoJobError,
    StaleError,
    TooLateError,
)
from disque_py.client.commands import by_node, working
from disque_py.client.heartbeat import SILENCE, Delivery, delivery_of

# The default number of seconds of a lease.
LEASE_S: Final = 60.0
# A cancellation is noticed within this time, however long the lease is.
CHECK_S: Final = 5.0
# The pause after a connection error.
AGAIN_S: Final = 0.5
# A node that is only busy is not left for another one, however short the lease is.
SILENCE_S_MIN: Final = 0.5

_log = logging.getLogger(__name__)


def _ignore(_job: Job) -> None:
    """Do nothing."""


class LeaseKeeper:
    """The jobs that a worker holds, and the thread that extends their leases.

    client        a function that returns the client of this process
    lease_s       seconds of each lease
    on_canceled   called in the thread with a job that was canceled
    on_lost       called in the thread with a job that may run elsewhere too
    """

    def __init__(
        self,
        client: Callable[[], Disque],
        lease_s: float = LEASE_S,
        *,
        on_canceled: Callable[[Job], None] = _ignore,
        on_lost: Callable[[Job], None] = _ignore,
    ) -> None:
        if lease_s < 1:
            raise ValueError("a lease must last at least a second")
        self.lease = timedelta(milliseconds=round(1000 * lease_s))
        self._lease_s = lease_s
        self._tick_s = min(lease_s / 3, CHECK_S)
        self._client = client
        self._on_canceled = on_canceled
        self._on_lost = on_lost
        self._pid = 0
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._jobs: dict[Delivery, Job] = {}
        self._ending: dict[Delivery, float] = {}
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, *jobs: Job) -> None:
        """Extend the leases of these jobs from now on."""
        if self._pid != os.getpid():
            self._begin()
        for job in jobs:
            self._jobs[delivery_of(job)] = job
            if self._ending:
                self._ending.pop(delivery_of(job), None)  # The same work begins again.
        with self._starting:
            if self._thread is None and jobs:
                self._stopped = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stopped,), name="disque-leases", daemon=True
                )
                self._thread.start()

    def remove(self, job: Job) -> bool:
        """Extend the lease of this job no more. Return whether it was held."""
        if self._ending:
            self._ending.pop(delivery_of(job), None)
        return self._jobs.pop(delivery_of(job), None) is not None

    def remove_later(self, job: Job) -> None:
        """Extend the lease of this job for the time of one more lease, and then no more."""
        if delivery_of(job) in self._jobs:
            self._ending[delivery_of(job)] = time.monotonic() + self._lease_s

    def is_ending(self, job: Job) -> bool:
        """Return whether `remove_later` was called for this job, which is still held."""
        return delivery_of(job) in self._ending

    def holds(self, job: Job) -> bool:
        """Return whether the lease of this job is being extended."""
        return self._pid == os.getpid() and delivery_of(job) in self._jobs

    def close(self) -> None:
        """Stop the thread. The leases of jobs that are still held run out."""
        if self._pid != os.getpid():
            return
        with self._starting:
            thread, self._thread = self._thread, None
        self._stopped.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1)

    def _run(self, stopped: threading.Event) -> None:
        wait_s = self._tick_s
        while not stopped.wait(wait_s):
            wait_s = self._tick_s
            self._remove_ended()
            for node, jobs in by_node(list(self._jobs.values())).items():
                try:
                    is_done = self.extend(node, [job for job in jobs if isinstance(job, Job)])
                except DisqueError:
                    is_done = False
                if not is_done:
                    wait_s = min(AGAIN_S, self._tick_s)

    def _remove_ended(self) -> None:
        now = time.monotonic()
        for job_id, until in list(self._ending.items()):
            if until <= now:
                self._ending.pop(job_id, None)
                self._jobs.pop(job_id, None)

    def extend(self, node: Address | None, jobs: list[Job]) -> bool:
        """Extend the leases of jobs of one node now. Return whether all commands were answered."""
        pipe = self._client().pipeline()
        for job in jobs:
            request = working(job, self.lease, attempt=job.attempt)
            request.silence_s = max(SILENCE * self._lease_s, SILENCE_S_MIN)  # Then another node gets it, in time.
            pipe.add(request)
        is_done = True
        for job, outcome in zip(jobs, pipe.execute(), strict=True):
            if isinstance(outcome, NoJobError):
                outcome = self._ask_others(node, job)
            if isinstance(outcome, JobCanceledError):
                if self.remove(job):
                    self._on_canceled(job)
            elif isinstance(outcome, NoJobError | TooLateError | StaleError | FencedError):
                if self.remove(job):
                    _log.warning("job %s may run elsewhere, too: its lease can't be extended (%s)", job.id, outcome)
                    self._on_lost(job)
            elif isinstance(outcome, DisqueError):
                is_done = False
        return is_done

    def _ask_others(self, node: Address | None, job: Job) -> DisqueError | None:
        """Extend a lease on a node that has a copy, because the node that delivered the job is gone.

        Return None if a node did it. Otherwise return the refusal of a node that knows more about the job.
        """
        client = self._client()
        for other in client.hello().nodes:
            address = Address(other.host, other.port)
            if address != node:
                request = working(job, self.lease, attempt=job.attempt)
                request.node = address
                try:
                    client.run(request)
                except (JobCanceledError, TooLateError, StaleError, FencedError) as error:
                    return error
                except DisqueError:
                    continue
                else:
                    return None
        return NoJobError(f"NOJOB {job.id} is unknown")
