"""Commands that work on every node: ASKJOBS, JOBSARE, DOJOBS, DIDJOBS.

A node that does not hold a job asks all linked nodes what they have of it (ASKJOBS). The holder that delivered it is to
act, while that lease runs; else the holder that has it queued; else the one on which it counts as invisible; else the
holder with the lowest node id. The node asks that holder to act (DOJOBS) and waits for its answer. Both steps together
take at most ASK_MS, and the first one at most half of it. So a node that stands still takes no time from the holder
that is to act.

`ask` is the whole conversation, as steps of a long command (incremental.py). An act on a job is a *deed*: a number, and
a function in DEEDS. Another node does it with the same words. So a deed must be safe to repeat, because an
answer may be lost. Spec Y10.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final

from cluster_bus.messages import ASKJOBS, DIDJOBS, DOJOBS, JOBSARE
from cluster_bus.node import Node
from disque_py.core import census, client_acks, fencing, memory, moving, open_questions, stalling
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.ids import is_valid_id
from disque_py.core.job import ACKED, ACTIVE, QUEUED
from disque_py.core.job_attributes import INT64_LIMIT
from disque_py.core.job_snapshot import SPAN_BITS

ASK_MS: Final = 1_000
# The first step of it.
FIRST_MS: Final = ASK_MS // 2
# The most jobs of one question, and words of a deed.
IDS_MAX: Final = 1_000
WORDS_MAX: Final = 16
NUMBER_BYTES_MAX: Final = 20
UNREACHABLE: Final = "UNREACHABLE No node that holds the job can be asked now"

# A node's knowledge of a job.
NOTHING: Final = 0
OVER: Final = 1  # It knows the job as done.
COPY: Final = 2
HAS_QUEUED: Final = 3
HAS_LEASED: Final = 4
HAS_INVISIBLE: Final = 5  # The job counts there as invisible: this node ends the delay, or the pause.
# The higher rank is to act.
RANKS: Final = {NOTHING: 0, OVER: 1, COPY: 2, HAS_INVISIBLE: 3, HAS_QUEUED: 4, HAS_LEASED: 5}

# Deeds. Their numbers travel between nodes: one is never used for another meaning.
CANCEL: Final = 1
PROMOTE: Final = 2
RESCHEDULE: Final = 3
MOVE: Final = 4

NO_COPIES: Final[dict[bytes, int]] = {}

Deed = Callable[[Broker, bytes, list[bytes]], int]
# Steps of a long command that end with a number of jobs.
Count = Generator[None, None, int]


def _cancel(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    if words:
        return fencing.cancel(broker, job_id, fencing.read_fence(words))
    return client_acks.cancel_here(broker, job_id)


def _promote(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    return moving.promote(broker, job_id)


def reschedule_words(delay_ms: int, priority: int | None) -> list[bytes]:
    """Return the words of the deed RESCHEDULE. Spec MV2."""
    return [b"%d" % delay_ms, b"" if priority is None else b"%d" % priority]


def _reschedule(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    if len(words) < 2 or max(len(words[0]), len(words[1])) > NUMBER_BYTES_MAX:
        raise ValueError("a RESCHEDULE without a delay and a priority")
    delay_ms = int(words[0])
    priority = int(words[1]) if words[1] else None
    if not -1 <= delay_ms < 1 << SPAN_BITS or (priority is not None and not -INT64_LIMIT <= priority < INT64_LIMIT):
        raise ValueError("a RESCHEDULE with a number that no node sends")
    return moving.reschedule(broker, job_id, delay_ms, priority)


def _move(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    if len(words) != 1:
        raise ValueError("a MOVE without the name of a queue")
    if memory.is_full(broker) or broker.journal.disk_level:
        return 0
    job = broker.find(job_id)
    return int(job is not None and moving.move(broker, job, words[0]))


# Does a deed to a job that this node holds, with these words; returns 0 to 255, which the asker gets.
DEEDS: Final[dict[int, Deed]] = {CANCEL: _cancel, PROMOTE: _promote, RESCHEDULE: _reschedule, MOVE: _move}


def _rank(what: int) -> int:
    """Return the rank of what a node says that it has; it is 0 for an answer that only newer nodes know."""
    return RANKS.get(what, 0)


class Question:
    """A question to several nodes: the nodes whose answer is due, and the answers."""

    __slots__ = ("answers", "client", "count", "unanswered")

    def __init__(self, client: Client, count: int, nodes: tuple[Node, ...]) -> None:
        self.client = client
        self.count = count
        self.unanswered = dict.fromkeys(nodes)
        self.answers: dict[Node, bytes] = {}


class Answers:
    """The results of `ask`, by id.

    done     what the deed returned where a holder did it. A holder that was chosen may not have answered
    known    the most that any node knows of the job; no entry: no node knows it
    over     whether a node knows the job as done
    """

    __slots__ = ("done", "known", "over")

    def __init__(self) -> None:
        self.done: dict[bytes, int] = {}
        self.known: dict[bytes, int] = {}
        self.over: dict[bytes, bool] = {}


def ask(
    broker: Broker,
    client: Client,
    ids: list[bytes],
    deed: int,
    words: list[bytes],
    has_here: Mapping[bytes, int] = NO_COPIES,
) -> Generator[None, None, Answers]:
    """Have a deed done by holders on other nodes, to at most IDS_MAX jobs that this node does not hold.

    has_here   what this node has of jobs that it knows: only a node that has more is to act
    """
    assert len(ids) <= IDS_MAX
    results = Answers()
    nodes = broker.cluster.linked
    if not ids or not nodes:
        return results
    deadline_ms = broker.now_ms + ASK_MS
    first = _begin(broker, client, nodes, len(ids), broker.now_ms + FIRST_MS, ASKJOBS, (ids,))
    found = yield from _answered(broker, client, *first)
    chosen: dict[Node, list[bytes]] = {}
    for at, job_id in enumerate(ids):
        has = [(answer[at], node) for node, answer in found.items() if answer[at]]
        best = max((what for what, _ in has), key=_rank, default=NOTHING)
        if best:
            results.known[job_id] = best
        if any(what == OVER for what, _ in has):
            results.over[job_id] = True
        if _rank(best) > _rank(has_here.get(job_id, OVER)):
            # The nodes are in the order of their ids.
            node = next(node for node in nodes if (best, node) in has)
            chosen.setdefault(node, []).append(job_id)
    # All are asked before any is waited for: one that stands still takes no time from the others.
    acting = [
        (
            node,
            asked,
            _begin(broker, client, broker.sets.only(node), len(asked), deadline_ms, DOJOBS, (deed, asked, words)),
        )
        for node, asked in chosen.items()
    ]
    for node, asked, question in acting:
        done = yield from _answered(broker, client, *question)
        for job_id, value in zip(asked, done.get(node, b""), strict=False):
            results.done[job_id] = value
    return results


def refuse_unreachable(broker: Broker, ids: list[bytes], answers: Answers) -> None:
    """Refuse a command for jobs that no node knows, while a known node can't be asked. CommandError. Spec Y10.

    For deeds without a memory of their own. CANCELJOB needs it not: a cancellation is remembered.
    """
    if len(broker.cluster.linked) < broker.cluster.size - 1 and any(job_id not in answers.known for job_id in ids):
        raise CommandError(UNREACHABLE)


def _begin(
    broker: Broker,
    client: Client,
    nodes: tuple[Node, ...],
    count: int,
    deadline_ms: int,
    kind: int,
    fields: tuple[Any, ...],
) -> tuple[int, Question]:
    """Ask nodes for answers of `count` bytes, which count until the deadline. Return the question and its number."""
    broker.producers.question_number += 1
    number = broker.producers.question_number
    question = broker.questions[number] = Question(client, count, nodes)
    broker.send(nodes, kind, (number, *fields))
    broker.schedule.call_at(deadline_ms, partial(_end, broker, number))
    return number, question


def _answered(
    broker: Broker, client: Client, number: int, question: Question
) -> Generator[None, None, dict[Node, bytes]]:
    """Wait until a question is over, and return its answers."""
    yield from stalling.until(broker, client, lambda: number not in broker.questions)
    return question.answers


def _end(broker: Broker, number: int) -> None:
    """End a question: all have answered, or its time is over."""
    question = broker.questions.pop(number, None)
    if question is not None:
        stalling.go_on_now(broker, question.client)


def on_askjobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Say what we have of some jobs."""
    for number, ids, *_ in items:
        _check(number, ids)
        broker.send(broker.sets.only(sender), JOBSARE, (number, bytes([what_of(broker, job_id) for job_id in ids])))


def what_of(broker: Broker, job_id: bytes) -> int:
    """Return what this node has of a job."""
    job = broker.find(job_id)
    if job is None:
        return OVER if job_id in broker.tombstones else NOTHING
    if job.state == ACKED:
        return OVER if job.holders else NOTHING
    if job.is_leased_here and job.requeue_at_ms > broker.now_ms:
        return HAS_LEASED
    if job.state == QUEUED:
        return HAS_QUEUED
    return HAS_INVISIBLE if job.state == ACTIVE and census.is_invisible(broker, job) else COPY


def on_dojobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Do what a client of another node wants done to jobs that we hold."""
    for number, deed, ids, words, *_ in items:
        _check(number, ids)
        if type(words) not in (list, tuple) or len(words) > WORDS_MAX or not all(type(word) is bytes for word in words):
            raise ValueError("words of a deed that are none")
        do = DEEDS.get(deed)
        if do is None:
            broker.stats.ignored("a deed that only newer nodes know")
            continue
        done = bytes([do(broker, job_id, list(words)) if broker.find(job_id) is not None else 0 for job_id in ids])
        broker.send(broker.sets.only(sender), DIDJOBS, (number, done))


def _check(number: Any, ids: Any) -> None:
    if type(number) is not int or type(ids) not in (list, tuple) or len(ids) > IDS_MAX:
        raise ValueError("a question that is none")
    if any(type(job_id) is not bytes or not is_valid_id(job_id) for job_id in ids):
        raise ValueError("an id that is none")


def on_answer(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note an answer (JOBSARE, DIDJOBS)."""
    for number, answer, *_ in items:
        question = broker.questions.get(number)
        if question is None or sender not in question.unanswered:
            broker.stats.ignored("answer to a question that is over")
            continue
        if type(answer) is not bytes or len(answer) != question.count:
            raise ValueError("an answer for each job was expected")
        question.answers[sender] = answer
        del question.unanswered[sender]
        if not question.unanswered:
            _end(broker, number)


def on_link_lost(broker: Broker, node: Node) -> None:
    """Wait no longer for a node whose link broke."""
    for number, question in open_questions.without(broker.questions, node).items():
        if not question.unanswered:
            _end(broker, number)
