"""ACKJOB, CANCELJOB, FASTACK, DELJOB: commands that end jobs.

Options follow the ids. ATTEMPT and FENCE name one delivery of one job: a command for an older delivery changes nothing.
Every command that ends a job ends the claim of its delivery, too. The core does the work. Spec R11, Y9, EX5.
"""

from __future__ import annotations

from typing import Final

from disque_py import event_format
from disque_py.commands.id_lists import check_in_parts, count_done, only_id
from disque_py.commands.options import ONE_ID, options_at, read_attempt, read_fence, read_ids, value_of
from disque_py.commands.subcommands import syntax_error
from disque_py.core import asking, client_acks, events, exclusive, fencing, incremental, replication, versions
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import BAD_ID, SYNTAX, CommandError
from disque_py.core.ids import ID_BYTES, is_valid_id
from disque_py.core.incremental import PART
from disque_py.core.job import QUEUED, Job
from disque_py.resp.replies import integer

# Options behind the ids.
ACKJOB_WORDS: Final = frozenset((b"attempt", b"fence", b"result"))
CANCELJOB_WORDS: Final = frozenset((b"fence",))
RESULT_ONE_ID: Final = "ERR RESULT needs exactly one job id"
RESULT_TOO_LONG: Final = "ERR RESULT is longer than result-max-bytes"


def ackjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ACKJOB [id ...] → number of jobs that were known here and not acknowledged yet."""
    if len(argv) == 2:
        job_id = argv[1]
        job: Job | None = None
        if len(job_id) == ID_BYTES:
            job = broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None and not is_valid_id(job_id):
            raise CommandError(BAD_ID)
        if broker.exclusive.running:
            exclusive.end(broker, job_id)
        count = client_acks.ack_unknown(broker, job_id) if job is None else client_acks.ack_known(broker, job)
        return b":1\r\n" if count else b":0\r\n"
    first = options_at(argv, ACKJOB_WORDS)
    if first == len(argv):
        return count_done(broker, client, argv, ack_one)
    attempt = fence = 0
    result: bytes | None = None
    at = first
    while at < len(argv):
        option = argv[at].lower()
        if option not in ACKJOB_WORDS:
            raise CommandError(SYNTAX)
        if option == b"result":
            result = value_of(argv, at)
        elif option == b"fence":
            fence = read_fence(value_of(argv, at))
        else:
            attempt = read_attempt(value_of(argv, at))
        at += 2
    job_id = only_id(argv, first, ONE_ID if result is None else RESULT_ONE_ID)
    if result is not None and len(result) > broker.settings.result_max_bytes:
        raise CommandError(RESULT_TOO_LONG)
    versions.refuse_older(broker, versions.FLOWS if fence or result is not None else versions.ATTEMPTS)
    if fence:
        exclusive.refuse_fenced(broker.find(job_id), fence)
        return integer(fencing.ack(broker, job_id, fence, attempt, result))
    if result is not None:
        count = client_acks.ack_with_result(broker, job_id, attempt, result)
    else:
        count = client_acks.ack_attempt(broker, job_id, attempt)
    if count or client_acks.ends_claim(broker, job_id, attempt):
        exclusive.end(broker, job_id)
    return integer(count)


def ack_one(broker: Broker, job_id: bytes) -> int:
    """ACKJOB one id. Return 1 if it was known here and not acknowledged yet. The claim of its delivery ends."""
    if broker.exclusive.running:
        exclusive.end(broker, job_id)
    return client_acks.ack_here(broker, job_id)


def canceljob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """CANCELJOB id [id ...] → number of jobs that were known, here or on another node, and not over."""
    first = options_at(argv, CANCELJOB_WORDS)
    if first < len(argv):
        return _cancel_fenced(broker, client, argv, first)
    ids = read_ids(argv) if len(argv) <= PART else []
    versions.refuse_older(broker)
    if ids and None not in map(broker.find, ids):
        return integer(sum([client_acks.cancel_here(broker, job_id) for job_id in ids]))
    return incremental.begin(broker, client, _cancel_in_parts(broker, client, argv))


def _cancel_fenced(broker: Broker, client: Client, argv: list[bytes], first: int) -> bytes | None:
    """CANCELJOB id FENCE n: the claim of that delivery ends, too. Spec EX5, EX6."""
    fence = 0
    for at in range(first, len(argv), 2):
        if argv[at].lower() not in CANCELJOB_WORDS or at + 1 == len(argv):
            raise syntax_error(argv[at])
        fence = read_fence(argv[at + 1])
    job_id = only_id(argv, first)
    versions.refuse_older(broker, versions.FLOWS)
    if broker.find(job_id) is not None:
        return integer(_not_fenced(fencing.cancel(broker, job_id, fence)))
    return incremental.begin(broker, client, _cancel_fenced_elsewhere(broker, client, job_id, fence))


def _cancel_fenced_elsewhere(broker: Broker, client: Client, job_id: bytes, fence: int) -> incremental.Steps:
    answers = yield from asking.ask(broker, client, [job_id], asking.CANCEL, [b"%d" % fence])
    if job_id in answers.done:
        return integer(_not_fenced(answers.done[job_id]))
    return integer(client_acks.cancel_here(broker, job_id) if answers.known.get(job_id) != asking.OVER else 0)


def _not_fenced(count: int) -> int:
    """Return a number of canceled jobs. CommandError if the holder knows a later claim."""
    if count == fencing.IS_FENCED:
        raise CommandError(exclusive.FENCED)
    return count


def _cancel_in_parts(broker: Broker, client: Client, argv: list[bytes]) -> incremental.Steps:
    yield from check_in_parts(argv)
    total = 0
    for at in range(1, len(argv), PART):
        if at > 1:
            yield
        elsewhere: list[bytes] = []
        for job_id in dict.fromkeys(argv[at : at + PART]):
            if broker.find(job_id) is not None:
                total += client_acks.cancel_here(broker, job_id)
            elif job_id not in broker.tombstones:
                elsewhere.append(job_id)
        answers = yield from asking.ask(broker, client, elsewhere, asking.CANCEL, [])
        for job_id in elsewhere:
            if job_id in answers.done:
                total += answers.done[job_id]
            elif answers.known.get(job_id) != asking.OVER:
                # No node knows it, or its holder died or stands still: the cancellation is remembered here.
                total += client_acks.cancel_here(broker, job_id)
    return integer(total)


def fastack(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """FASTACK [id ...] → number of jobs deleted here. Other nodes delete their copies, best effort."""
    return count_done(broker, client, argv, _fast_ack)


def _fast_ack(broker: Broker, job_id: bytes) -> int:
    if broker.exclusive.running:
        exclusive.end(broker, job_id)
    return client_acks.fast_ack(broker, job_id)


def deljob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DELJOB [id ...] → number of jobs deleted here. Other nodes are not told."""
    return count_done(broker, client, argv, _delete)


def _delete(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None:
        return 0
    if job.holders is broker.sets.mine:
        events.ended(broker, job, event_format.DELETED)
    elif job.state == QUEUED:
        events.note(broker, job, event_format.DELETED_COPY)  # Another holder will queue the job.
    replication.remove(broker, job)
    return 1
