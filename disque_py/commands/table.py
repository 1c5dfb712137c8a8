"""All commands on one screen. COMMAND, COMMAND DOCS, help and docs derive from these rows or are compared with them.

Flags are the original's, in its order (disque/commands.md, section 1.5); commands it did not have come last.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_py.commands import jobs, queues, scanning
from disque_py.core.row import Handler


class Command(NamedTuple):
    """One command: its handler, what a request must look like, and what people read about it."""

    name: str
    handler: Handler
    arity: int
    flags: tuple[str, ...]
    group: str
    since: str
    syntax: str
    summary: str


def _c(
    name: str, handler: Handler, arity: int, flags: str, group: str, syntax: str, summary: str, since: str = "0.1.0"
) -> Command:
    return Command(name, handler, arity, tuple(flags.split()), group, since, syntax, summary)


ADDJOB_SYNTAX: Final = (
    "queue body ms-timeout [REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] [MAXLEN count] [ASYNC]"
)
GETJOB_SYNTAX: Final = "[NOHANG] [TIMEOUT ms] [COUNT count] [WITHCOUNTERS] FROM queue [queue ...]"
JSCAN_SYNTAX: Final = "[cursor] [COUNT n] [BUSYLOOP] [QUEUE name] [STATE state ...] [REPLY id|all]"
QSCAN_SYNTAX: Final = "[cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]"
IDS: Final = "[id ...]"

# fmt: off
COMMANDS: Final = (
    _c("addjob", jobs.addjob, -4, "write denyoom fast", "jobs", ADDJOB_SYNTAX, "Add a job to a queue."),
    _c("getjob", jobs.getjob, -2, "write fast", "jobs", GETJOB_SYNTAX, "Take jobs from queues, or wait for one."),
    _c("ackjob", jobs.ackjob, -1, "write fast", "jobs", IDS, "Acknowledge jobs as processed."),
    _c("fastack", jobs.fastack, -1, "write fast", "jobs", IDS, "Acknowledge with fewer messages and less certainty."),
    _c("deljob", jobs.deljob, -1, "write fast", "jobs", IDS, "Delete jobs from this node only."),
    _c("show", jobs.show, 2, "readonly fast", "jobs", "id", "Describe a job."),
    _c("loadjob", jobs.loadjob, 2, "write", "jobs", "blob", "Internal record of the original's journal; refused."),
    _c("qlen", queues.qlen, 2, "readonly fast", "queues", "queue", "Number of jobs ready in a queue of this node."),
    _c("qpeek", queues.qpeek, 3, "readonly", "queues", "queue count", "Look at jobs of a queue without taking them."),
    _c("qstat", queues.qstat, 2, "readonly fast", "queues", "queue", "Describe a queue."),
    _c("qscan", scanning.qscan, -1, "readonly", "queues", QSCAN_SYNTAX, "Walk over the queues of this node."),
    _c("jscan", scanning.jscan, -1, "readonly", "jobs", JSCAN_SYNTAX, "Walk over the jobs of this node."),
    _c("enqueue", jobs.enqueue, -1, "write denyoom fast", "jobs", IDS, "Queue jobs now if they are not queued."),
    _c("nack", jobs.nack, -1, "write denyoom fast", "jobs", IDS, "Give jobs back: processing failed."),
    _c("dequeue", jobs.dequeue, -1, "write fast", "jobs", IDS, "Take jobs out of their queues on this node."),
    _c("working", jobs.working, 2, "write fast", "jobs", "id", "Postpone the next delivery by the job's RETRY."),
    _c("pause", queues.pause, -3, "readonly fast", "queues", "queue option [option ...]", "Pause input or output of a queue."),
)
# fmt: on
