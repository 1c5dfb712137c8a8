"""PROMOTE, RESCHEDULE, MOVEJOB: the delay, the priority and the queue of jobs, on any node.

The node that has the job queued or leased acts, else a node with a copy (core/asking.py). A node with a copy asks the
others first, because they may have it queued. Spec MV1, MV2, MV10, Y10.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands.adding import PRIORITY_ERROR
from disque_py.commands.id_lists import check_in_parts
from disque_py.commands.options import MS_MAX, SECONDS_MAX, between, read_ids, read_integer
from disque_py.commands.subcommands import text_of
from disque_py.core import asking, incremental
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.incremental import PART
from disque_py.core.moving import NO_DELAY
from disque_py.core.versions import FLOWS, refuse_older
from disque_py.resp.replies import integer

NEEDS_WORDS: Final = f"{SYNTAX}: RESCHEDULE needs DELAY or PRIORITY"
NEEDS_QUEUE: Final = f"{SYNTAX}: MOVEJOB needs TO and a queue"
DELAY_ERROR: Final = f"ERR DELAY must be a number of seconds from 0 to {SECONDS_MAX}"
DELAYMS_ERROR: Final = f"ERR DELAYMS must be a number of milliseconds from 0 to {MS_MAX}"
# Bytes of a wrong word that are quoted.
WORD_BYTES_MAX: Final = 64


def promote(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """PROMOTE id [id ...] → number of jobs whose delay was ended."""
    if len(argv) <= PART:
        read_ids(argv)
    refuse_older(broker)
    return incremental.begin(broker, client, _changed(broker, client, argv, asking.PROMOTE, []))


def movejob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """MOVEJOB id [id ...] TO queue → number of jobs that are in the queue now, and were not before."""
    end = len(argv)
    while end > 3 and argv[end - 2].lower() == b"to":
        end -= 2
    if end == len(argv):
        raise CommandError(NEEDS_QUEUE)
    name = argv[-1]
    ids = argv[:end]
    if len(ids) <= PART:
        read_ids(ids)
    refuse_older(broker, FLOWS)
    return incremental.begin(broker, client, _changed(broker, client, ids, asking.MOVE, [name]))


def _changed(broker: Broker, client: Client, argv: list[bytes], action: int, words: list[bytes]) -> incremental.Steps:
    """Act on many jobs, some at a time.

    argv   the name of the command and the ids
    """
    yield from check_in_parts(argv)
    total = 0
    for at in range(1, len(argv), PART):
        if at > 1:
            yield
        ids = list(dict.fromkeys(argv[at : at + PART]))
        done = yield from _done(broker, client, ids, action, words, is_sure=total > 0)
        total += done
    return integer(total)


def reschedule(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """RESCHEDULE id [DELAY sec|DELAYMS ms] [PRIORITY n] → 1; 0: a worker has the job, or it is errored or over."""
    delay_ms = NO_DELAY
    priority: int | None = None
    for at in range(2, len(argv), 2):
        word = argv[at].lower()
        if word not in (b"delay", b"delayms", b"priority") or at + 1 == len(argv):
            raise CommandError(f"{SYNTAX}: '{text_of(argv[at][:WORD_BYTES_MAX])}'")
        value = argv[at + 1]
        if word == b"delay":
            delay_ms = 1000 * between(value, 0, SECONDS_MAX, DELAY_ERROR)
        elif word == b"delayms":
            delay_ms = between(value, 0, MS_MAX, DELAYMS_ERROR)
        else:
            priority = read_integer(value, PRIORITY_ERROR)
    if delay_ms == NO_DELAY and priority is None:
        raise CommandError(NEEDS_WORDS)
    ids = read_ids(argv[:2])
    refuse_older(broker)
    return incremental.begin(broker, client, _rescheduled(broker, client, ids, delay_ms, priority))


def _rescheduled(
    broker: Broker, client: Client, ids: list[bytes], delay_ms: int, priority: int | None
) -> incremental.Steps:
    words = asking.reschedule_words(delay_ms, priority)
    done = yield from _done(broker, client, ids, asking.RESCHEDULE, words, is_sure=False)
    return integer(done)


def _done(
    broker: Broker, client: Client, ids: list[bytes], action: int, words: list[bytes], *, is_sure: bool
) -> asking.Count:
    """Act on jobs, here or elsewhere, and return how many have changed. CommandError if none is reachable.

    is_sure   other jobs of the command have changed, so the command is not refused any more
    """
    do = asking.ACTIONS[action]
    total = 0
    copies: dict[bytes, int] = {}
    unknown: list[bytes] = []
    for job_id in ids:
        has = asking.what_of(broker, job_id)
        if has in (asking.HAS_QUEUED, asking.HAS_LEASED):
            total += do(broker, job_id, words)
        elif has in (asking.COPY, asking.HAS_INVISIBLE):
            copies[job_id] = has
        elif has == asking.NOTHING:
            unknown.append(job_id)
    answers = yield from asking.ask(broker, client, [*copies, *unknown], action, words, copies)
    for job_id in copies:
        if job_id in answers.done:
            total += answers.done[job_id]
        elif job_id not in answers.over:
            total += do(broker, job_id, words)
    total += sum([answers.done.get(job_id, 0) for job_id in unknown])
    if not total and not is_sure:
        asking.refuse_unreachable(broker, unknown, answers)
    return total
