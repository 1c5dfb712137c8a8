"""QLEN, QPEEK, QDEPTH, QSTAT, JOBID, PAUSE, and SHOW with CLUSTER. Spec R8, U1, U4, Z1, Z2.

shares.py has the part of this node and of others in the answers. This module reads arguments and makes replies.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from disque_py.commands import shares, showing
from disque_py.commands.options import between, read_integer
from disque_py.commands.shares import PENDING, STATUSES, Peeked, Stat
from disque_py.commands.subcommands import text_of
from disque_py.commands.where import read_name, read_pair
from disque_py.core import gathering, incremental, keying, memory, pausing, spilling
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.delivery import entry_of
from disque_py.core.errors import BAD_ID, SYNTAX, CommandError
from disque_py.core.fetch_options import META
from disque_py.core.filters import Filter
from disque_py.core.gathering import Check, Question
from disque_py.core.ids import is_valid_id
from disque_py.core.incremental import PART
from disque_py.core.job import Job
from disque_py.core.keys import KEY_BYTES_MAX, key_chars
from disque_py.core.queue import PAUSE_NAMES, PAUSED_IN, PAUSED_OUT
from disque_py.core.users import NO_NAME, may_name, sees_bodies
from disque_py.resp.replies import EMPTY_ARRAY, array, bulk, bulk_array, integer, nil_array, nil_bulk, simple

# QDEPTH: values without COUNT, and at most.
DEPTH_COUNT: Final = 100
DEPTH_COUNT_MAX: Final = shares.DEPTH_VALUES_MAX
DEPTH_COUNT_ERROR: Final = f"ERR COUNT must be a number from 1 to {DEPTH_COUNT_MAX}"
# Bytes of a wrong word that are quoted.
WORD_BYTES_MAX: Final = 64
STATUS_ERROR: Final = "ERR STATUS must be invisible, pending, running, completed, canceled or errored"
KEYS_ERROR: Final = f"ERR a key must have 1 to {KEY_BYTES_MAX} bytes"

_PAUSE_BITS = {b"none": 0, b"in": PAUSED_IN, b"out": PAUSED_OUT, b"all": PAUSED_IN | PAUSED_OUT}


class Words:
    """The options of QLEN and QPEEK, in any order. CommandError for a word that is none of them."""

    __slots__ = ("is_clusterwide", "status", "where", "with_meta")

    def __init__(self, argv: list[bytes], at: int, *, may_have_meta: bool = False) -> None:
        pairs: dict[bytes, bytes] = {}
        self.status = PENDING
        self.with_meta = False
        self.is_clusterwide = False
        while at < len(argv):
            option = argv[at].lower()
            if option == b"where":
                read_pair(pairs, argv, at)
                at += 3
            elif option == b"status":
                self.status = _read_status(argv, at)
                at += 2
            elif option == b"cluster":
                self.is_clusterwide = True
                at += 1
            elif option == b"withmeta" and may_have_meta:
                self.with_meta = True
                at += 1
            else:
                raise CommandError(SYNTAX)
        self.where: Filter | None = Filter(pairs) if pairs else None


def _read_status(argv: list[bytes], at: int) -> bytes:
    """Return the status behind the STATUS at `at`. CommandError."""
    status = argv[at + 1].lower() if at + 1 < len(argv) else b""
    if status not in STATUSES:
        raise CommandError(STATUS_ERROR)
    return status


def _is_clusterwide(argv: list[bytes]) -> bool:
    """Return whether the third word, the only option, is CLUSTER. CommandError if it is another word."""
    if len(argv) == 2:
        return False
    if len(argv) > 3 or argv[2].lower() != b"cluster":
        raise CommandError(SYNTAX)
    return True


def _gathered(
    broker: Broker, client: Client, subject: bytes, words: list[Any], check: Check
) -> Generator[None, None, tuple[Question, list[Any]]]:
    """Ask all linked nodes, and make this node's share meanwhile. Return the shares, this node's first."""
    question = gathering.ask(broker, client, subject, words, check)
    mine = yield from shares.SUBJECTS[subject](broker, words)
    theirs = yield from gathering.answers(broker, question)
    return question, [check(mine), *theirs]


# -- QLEN -------------------------------------------------------------------------------------------


def qlen(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QLEN queue [WHERE name value ...] [STATUS s] [CLUSTER] → number of jobs, by default of those ready here."""
    if len(argv) > 2:
        words = Words(argv, 2)
        steps = _counted_everywhere if words.is_clusterwide else _counted
        return incremental.begin(broker, client, steps(broker, client, argv[1], words))
    queue = broker.queues.get(argv[1])
    return integer(queue.pending if queue is not None else 0)


def _counted(broker: Broker, client: Client, name: bytes, words: Words) -> incremental.Steps:
    return integer((yield from shares.length(broker, name, words.where, words.status)))


def _counted_everywhere(broker: Broker, client: Client, name: bytes, words: Words) -> incremental.Steps:
    asked = [name, shares.pack_where(words.where), words.status]
    _, lengths = yield from _gathered(broker, client, shares.SUBJECT_QLEN, asked, shares.length_of)
    return integer(sum(lengths))


# -- QPEEK ------------------------------------------------------------------------------------------


def qpeek(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QPEEK queue count [WHERE …] [STATUS s] [WITHMETA] [CLUSTER] → up to |count| jobs; negative: from the end."""
    count = read_integer(argv[2])
    words = Words(argv, 3, may_have_meta=True)
    if not count:
        return EMPTY_ARRAY
    steps = _peeked_everywhere if words.is_clusterwide else _peeked
    return incremental.begin(broker, client, steps(broker, client, argv[1], count, words))


def _peeked(broker: Broker, client: Client, name: bytes, count: int, words: Words) -> incremental.Steps:
    """Reply with the jobs as entries, perhaps after their bodies were read from disk."""
    found: list[Job] = yield from shares.first_jobs(broker, name, count, words.where, words.status)
    if not found:
        return EMPTY_ARRAY
    bodies = yield from spilling.borrowed(broker, client, found)
    head = bulk(name)
    entries: list[bytes] = []
    for at in range(0, len(found), shares.PEEK_PART):
        part = [job for job in found[at : at + shares.PEEK_PART] if job in bodies]
        if words.with_meta:
            entries += [entry_of(broker, job, bodies[job], META) for job in part]
        else:
            entries += [_entry(head, job.id, bodies[job]) for job in part]
        if at + shares.PEEK_PART < len(found):
            yield
    return array(entries)


def _peeked_everywhere(broker: Broker, client: Client, name: bytes, count: int, words: Words) -> incremental.Steps:
    asked = [name, shares.pack_where(words.where), words.status, count]
    _, found = yield from _gathered(broker, client, shares.SUBJECT_QPEEK, asked, shares.peeked_of)
    head = bulk(name)
    best = yield from shares.best_of(found, count, len(name))
    entries: list[bytes] = []
    for at in range(0, len(best), shares.PEEK_PART):
        part = best[at : at + shares.PEEK_PART]
        if words.with_meta:
            entries += [_entry_with_meta(head, job) for job in part]
        else:
            entries += [_entry(head, job.id, job.body) for job in part]
        if at + shares.PEEK_PART < len(best):
            yield
    return array(entries)


def _entry(head: bytes, job_id: bytes, body: bytes) -> bytes:
    return b"*3\r\n%b$40\r\n%b\r\n$%d\r\n%b\r\n" % (head, job_id, len(body), body)


def _entry_with_meta(head: bytes, job: Peeked) -> bytes:
    return array([head, bulk(job.id), bulk(job.body), bulk(b"meta"), bulk_array(job.meta)])


# -- QDEPTH -----------------------------------------------------------------------------------------


def qdepth(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QDEPTH queue BY name [STATUS s] [COUNT n] [CLUSTER] → values of this metadata name and their numbers of jobs."""
    if len(argv) < 4 or argv[2].lower() != b"by":
        raise CommandError(f"{SYNTAX}: QDEPTH needs BY and a name")
    by = read_name(argv[3])
    count = DEPTH_COUNT
    status = PENDING
    is_clusterwide = False
    at = 4
    while at < len(argv):
        option = argv[at].lower()
        if option == b"cluster":
            is_clusterwide = True
            at += 1
            continue
        if option == b"status":
            status = _read_status(argv, at)
        elif option == b"count" and at + 1 < len(argv):
            count = between(argv[at + 1], 1, DEPTH_COUNT_MAX, DEPTH_COUNT_ERROR)
        else:
            raise CommandError(f"{SYNTAX}: '{text_of(argv[at][:WORD_BYTES_MAX])}'")
        at += 2
    steps = _depths_everywhere if is_clusterwide else _depths
    return incremental.begin(broker, client, steps(broker, client, argv[1], by, status, count))


def _depths(broker: Broker, client: Client, name: bytes, by: bytes, status: bytes, count: int) -> incremental.Steps:
    found = yield from shares.depths(broker, name, by, status, count)
    return _told_depths(found, count, client.protocol)


def _depths_everywhere(
    broker: Broker, client: Client, name: bytes, by: bytes, status: bytes, count: int
) -> incremental.Steps:
    asked = [name, by, status]
    _, found = yield from _gathered(broker, client, shares.SUBJECT_QDEPTH, asked, shares.depths_of)
    sums = yield from shares.sum_of_depths(found, count)
    if len(sums.best) > shares.DEPTH_PART:
        yield
    return _told_depths(sums, count, client.protocol)


def _told_depths(found: shares.Depths, count: int, protocol: int) -> bytes:
    parts: list[bytes] = []
    for number, value in found.best:
        parts += (bulk(value), integer(number))
    if found.without > 0 and len(found.best) < count:
        parts += (nil_bulk(protocol), integer(found.without))
    return array(parts)


# -- QSTAT ------------------------------------------------------------------------------------------


def qstat(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QSTAT queue [CLUSTER|RECENT] → pairs of name and value, or nil if there is no such queue, here or anywhere.

    RECENT: the figures of a walk over all jobs may be a second old (spec Z3).
    """
    is_recent_enough = len(argv) == 3 and argv[2].lower() == b"recent"
    if not is_recent_enough and _is_clusterwide(argv):
        return incremental.begin(broker, client, _stat_everywhere(broker, client, argv[1]))
    if argv[1] not in broker.queues:
        return nil_array(client.protocol)
    return incremental.begin(broker, client, _stat(broker, client, argv[1], is_recent_enough))


def _stat(broker: Broker, client: Client, name: bytes, is_recent_enough: bool) -> incremental.Steps:
    found = yield from shares.stat(broker, name, is_recent_enough)
    if not found.is_known:
        return nil_array(client.protocol)
    return array([part for pair in _fields(name, found, client.protocol) for part in pair])


def _stat_everywhere(broker: Broker, client: Client, name: bytes) -> incremental.Steps:
    question, found = yield from _gathered(broker, client, shares.SUBJECT_QSTAT, [name], shares.stat_of)
    total = shares.sum_of_stats(found)
    if not total.is_known:
        return nil_array(client.protocol)
    missing = broker.sets.names(gathering.missing(broker, question))
    fields = [
        *_fields(name, total, client.protocol),
        (bulk("nodes"), integer(len(found))),
        (bulk("nodes-missing"), bulk_array(missing)),
    ]
    return array([part for pair in fields for part in pair])


def _fields(name: bytes, found: Stat, protocol: int) -> list[tuple[bytes, bytes]]:
    return [
        (bulk("name"), bulk(name)),
        (bulk("len"), integer(found.length)),
        (bulk("age"), integer(found.age_s)),
        (bulk("idle"), integer(found.idle_s)),
        (bulk("blocked"), integer(found.blocked)),
        (bulk("import-from"), bulk_array(found.sources)),
        (bulk("import-rate"), integer(found.import_rate)),
        (bulk("jobs-in"), integer(found.jobs_in)),
        (bulk("jobs-out"), integer(found.jobs_out)),
        (bulk("pause"), bulk(PAUSE_NAMES[found.paused])),
        (bulk("waiting-elsewhere"), integer(found.waiting_elsewhere)),
        (bulk("oldest-ms"), nil_bulk(protocol) if found.oldest_ms < 0 else integer(found.oldest_ms)),
        (bulk("invisible"), integer(found.invisible)),
        (bulk("running"), integer(found.running)),
        (bulk("errored"), integer(found.errored)),
        (bulk("claims"), integer(found.claims)),
        (bulk("tasks"), integer(found.tasks)),
        (bulk("without-key"), integer(found.without_key)),
        (bulk("rate-used"), integer(found.rate_used)),
    ]


# -- SHOW and JOBID ---------------------------------------------------------------------------------


def show(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SHOW id [CLUSTER] → the job's fields as known here, or on the node that knows most of it; nil: no such job."""
    if not _is_clusterwide(argv):
        return showing.show(broker, client, argv)
    if not is_valid_id(argv[1]):
        raise CommandError(BAD_ID)
    return incremental.begin(broker, client, _shown_everywhere(broker, client, argv[1]))


def _shown_everywhere(broker: Broker, client: Client, job_id: bytes) -> incremental.Steps:
    _, found = yield from _gathered(broker, client, shares.SUBJECT_SHOW, [job_id], shares.shown_of)
    values = shares.best_shown(found)
    if values is None:
        return nil_bulk(client.protocol)
    _hide(client, values)
    return array([_value(value, client.protocol) for value in values])


def _hide(client: Client, values: list[Any]) -> None:
    """Take from a job of another node the values that the client's user may not see. CommandError for its queue."""
    places = {name: at + 1 for at in range(0, len(values), 2) if type(name := values[at]) is bytes}
    queue = values[places[b"queue"]] if b"queue" in places else None
    if type(queue) is bytes and not may_name(client, queue):
        raise CommandError(NO_NAME)
    if not sees_bodies(client):
        for name, hidden in ((b"body", None), (b"meta", []), (b"progress-text", None), (b"result", None)):
            if name in places:
                values[places[name]] = hidden


def _value(value: Any, protocol: int) -> bytes:
    if value is None:
        return nil_bulk(protocol)
    if type(value) is int:
        return integer(value)
    return bulk(value) if type(value) is bytes else array([_value(inner, protocol) for inner in value])


def jobid(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """JOBID queue key [key ...] → for each key the id of its job, or nil. Nothing is created."""
    if not all(0 < len(key) <= KEY_BYTES_MAX for key in argv[2:]):
        raise CommandError(KEYS_ERROR)
    return incremental.begin(broker, client, _ids_of_keys(broker, client, argv))


def _ids_of_keys(broker: Broker, client: Client, argv: list[bytes]) -> incremental.Steps:
    nil = nil_bulk(client.protocol)
    parts: list[bytes] = []
    for at in range(2, len(argv), PART):
        if at > 2:
            yield
        keys = [key_chars(argv[1], key) for key in argv[at : at + PART]]
        found = yield from keying.look_up(broker, client, keys)
        parts += [bulk(job_id) if job_id else nil for job_id in found]
    return array(parts)


def pause(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """PAUSE queue option ... → the state after the call; options none, in, out, all, state, bcast."""
    flags = 0
    is_set = False
    is_broadcast = False
    for word in argv[2:]:
        option = word.lower()
        if option in _PAUSE_BITS:
            bits = _PAUSE_BITS[option]
            flags = flags | bits if bits else 0
            is_set = True
        elif option == b"bcast":
            is_broadcast = True
        elif option != b"state":
            raise CommandError(SYNTAX)
    queue = broker.queues.get(argv[1])
    if is_set and flags:
        memory.refuse_queue(broker, argv[1])
    if is_broadcast and not pausing.has_room(broker, argv[1]):
        raise CommandError(pausing.FULL)
    if not is_set:
        flags = queue.paused if queue is not None else 0
    else:
        pausing.set_pause(broker, argv[1], flags)
    if is_broadcast:
        pausing.broadcast(broker, argv[1], flags)
    return simple(PAUSE_NAMES[flags])
