"""JSCAN and QSCAN. Spec R11.

This module reads the options and writes the reply. core/scan.py walks over the jobs and queues, one part per turn, so
that a scan of millions of jobs does not keep other clients waiting (core/incremental.py). JSCAN with REPLY all has
bodies in its reply. A body on disk is read for it, and a reply that would be larger than the client may leave unread is
refused.
"""

from __future__ import annotations

from disque_py import event_format
from disque_py.commands.options import read_cursor, read_integer
from disque_py.commands.showing import describe
from disque_py.commands.where import read_pair
from disque_py.core import census, incremental, scan, spilling
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.job import ACKED, ACTIVE, QUEUED, STATE_NAMES, WAIT_REPL
from disque_py.core.users import name_filter
from disque_py.resp.replies import array, bulk, simple

TOO_LARGE = (
    "ERR the reply is larger than any client may leave unread (client-output-buffer-limit): use a lower COUNT,"
    " no BUSYLOOP, or REPLY id"
)
COUNT_DEFAULT = 100
JOBS_PER_PART = 50

STATUS_ERROR = "ERR STATUS must be invisible, pending, running, completed, canceled or errored"
COUNTED_ERROR = "ERR COUNTED needs one STATUS: invisible, pending, running or errored"
# The states that users see of a job that is there (events.py).
_STATUSES = {
    name.encode(): status
    for status, name in enumerate(event_format.STATUS_NAMES)
    if name is not None and status != event_format.EXPIRED
}
# Tests whether a job counts on this node (spec Z2).
_COUNTS: dict[int, census.Predicate] = {
    event_format.INVISIBLE: census.is_invisible,
    event_format.PENDING: census.is_pending,
    event_format.RUNNING: census.is_running,
    event_format.ERRORED: census.is_errored,
}
_STATES = {STATE_NAMES[state].encode(): state for state in (WAIT_REPL, ACTIVE, QUEUED, ACKED)}


class _Cursor:
    """The cursor: the only word that is no option. A second such word is a mistake."""

    def __init__(self) -> None:
        self.value = 0
        self._is_given = False

    def read(self, word: bytes) -> None:
        if self._is_given:
            raise CommandError(SYNTAX)
        self.value = read_cursor(word)
        self._is_given = True


def jscan(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """Execute JSCAN, with the options of the table of commands."""
    cursor = _Cursor()
    count = COUNT_DEFAULT
    is_whole = False
    is_counted = False
    queue: bytes | None = None
    states: list[int] = []
    statuses: list[int] = []
    where: dict[bytes, bytes] = {}
    is_full = False
    at = 1
    end = len(argv)
    while at < end:
        option = argv[at].lower()
        has_value = at + 1 < end
        if option == b"busyloop":
            is_whole = True
        elif option == b"counted":
            is_counted = True
        elif option == b"count" and has_value:
            at += 1
            count = read_integer(argv[at])
        elif option == b"queue" and has_value:
            at += 1
            queue = argv[at]
        elif option == b"state" and has_value:
            at += 1
            state = _STATES.get(argv[at].lower())
            if state is None:
                raise CommandError("ERR Invalid job state name")
            states.append(state)
        elif option == b"status" and has_value:
            at += 1
            status = _STATUSES.get(argv[at].lower())
            if status is None:
                raise CommandError(STATUS_ERROR)
            statuses.append(status)
        elif option == b"where":
            read_pair(where, argv, at)
            at += 2
        elif option == b"reply" and has_value:
            at += 1
            word = argv[at].lower()
            if word not in (b"id", b"all"):
                raise CommandError("ERR Invalid REPLY type, try ID or ALL")
            is_full = word == b"all"
        else:
            cursor.read(argv[at])
        at += 1
    counts = None
    if is_counted:
        counts = _COUNTS.get(statuses[0]) if len(set(statuses)) == 1 else None
        if counts is None:
            raise CommandError(COUNTED_ERROR)
    wanted = scan.JobFilter(queue, tuple(states), tuple(statuses), tuple(where.items()), name_filter(client), counts)
    walk = _jobs_in_parts(broker, client, cursor.value, -1 if is_whole else count, wanted, is_full)
    return incremental.begin(broker, client, walk)


def _jobs_in_parts(
    broker: Broker, client: Client, cursor: int, count: int, wanted: scan.JobFilter, is_full: bool
) -> incremental.Steps:
    following, jobs = yield from scan.scan_jobs(broker, cursor, count, wanted)
    items: list[bytes] = []
    size = 0
    size_max = broker.settings.client_output_buffer_limit.normal.hard_bytes or 1 << 62
    for at in range(0, len(jobs), JOBS_PER_PART):
        if at:
            yield
        part = jobs[at : at + JOBS_PER_PART]
        if is_full:
            bodies = yield from spilling.borrowed(broker, client, part)
            shown = [describe(broker, client, job, bodies[job]) for job in part if job in bodies]
            items += shown
            size += sum(map(len, shown))
            if size > size_max:
                raise CommandError(TOO_LARGE)
        else:
            items += [simple(job.id) for job in part]
    return array([bulk(b"%d" % following), array(items)])


def qscan(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]."""
    cursor = _Cursor()
    count = COUNT_DEFAULT
    is_whole = False
    limits = {b"minlen": -1, b"maxlen": -1, b"importrate": -1}
    at = 1
    end = len(argv)
    while at < end:
        option = argv[at].lower()
        has_value = at + 1 < end
        if option == b"busyloop":
            is_whole = True
        elif option == b"count" and has_value:
            at += 1
            count = read_integer(argv[at])
        elif option in limits and has_value:
            at += 1
            limits[option] = read_integer(argv[at])
        else:
            cursor.read(argv[at])
        at += 1
    wanted = scan.QueueFilter(limits[b"minlen"], limits[b"maxlen"], limits[b"importrate"], name_filter(client))
    return incremental.begin(broker, client, _queues_in_parts(broker, cursor.value, -1 if is_whole else count, wanted))


def _queues_in_parts(broker: Broker, cursor: int, count: int, wanted: scan.QueueFilter) -> incremental.Steps:
    following, queues = yield from scan.scan_queues(broker, cursor, count, wanted)
    return array([bulk(b"%d" % following), array([bulk(queue.name) for queue in queues])])
