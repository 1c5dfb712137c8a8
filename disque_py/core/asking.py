"""Commands that work on every node: ASKJOBS, JOBSARE, DOJOBS, DIDJOBS.

A node that does not hold a job asks all linked nodes what they know of it (ASKJOBS, JOBSARE). Then it asks one holder
to act (DOJOBS) and waits for its answer (DIDJOBS). It chooses the holder in this order:

1. the holder that delivered the job, while the lease runs
2. the holder that has the job queued
3. the holder on which the job counts as invisible
4. the holder with the lowest node id

Both steps together take at most ASK_MS, and the first step at most half of that. So a node that does not respond leaves
enough time for the holder that acts.

`ask` is the whole conversation, as steps of a long command (incremental.py). An action is a number, and a function in
ACTIONS that changes one job. It gets the same words on every node. An action must be safe to repeat, because its answer
may be lost. Spec Y10.
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
# The time for the first step.
FIRST_MS: Final = ASK_MS // 2
# The most jobs of one question, and the most words of an action.
IDS_MAX: Final = 1_000
WORDS_MAX: Final = 16
NUMBER_BYTES_MAX: Final = 20
UNREACHABLE: Final = "UNREACHABLE No node that holds the job can be asked now"

# A node's knowledge of a job.
NOTHING: Final = 0
OVER: Final = 1  # It knows that the job is done.
COPY: Final = 2
HAS_QUEUED: Final = 3
HAS_LEASED: Final = 4
HAS_INVISIBLE: Final = 5  # The job counts there as invisible. That node ends the delay or the pause.
# The node with the highest rank acts.
RANKS: Final = {NOTHING: 0, OVER: 1, COPY: 2, HAS_INVISIBLE: 3, HAS_QUEUED: 4, HAS_LEASED: 5}

# Actions. Nodes send these numbers to each other, so a number never gets another meaning.
CANCEL: Final = 1
PROMOTE: Final = 2
RESCHEDULE: Final = 3
MOVE: Final = 4

NO_COPIES: Final[dict[bytes, int]] = {}

Action = Callable[[Broker, bytes, list[bytes]], int]
# Steps of a long command that end with a number of jobs.
Count = Generator[None, None, int]


def _cancel(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    if words:
        return fencing.cancel(broker, job_id, fencing.read_fence(words))
    return client_acks.cancel_here(broker, job_id)


def _promote(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    return moving.promote(broker, job_id)


def reschedule_words(delay_ms: int, priority: int | None) -> list[bytes]:
    """Return the words of the action RESCHEDULE. Spec MV2."""
    return [b"%d" % delay_ms, b"" if priority is None else b"%d" % priority]


def _reschedule(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    if len(words) < 2 or max(len(words[0]), len(words[1])) > NUMBER_BYTES_MAX:
        raise ValueError("a RESCHEDULE without a delay and a priority")
    delay_ms = int(words[0])
    priority = int(words[1]) if words[1] else None
    if not -1 <= delay_ms < 1 << SPAN_BITS or (priority is not None and not -INT64_LIMIT <= priority < INT64_LIMIT):
        raise ValueError("a RESCHEDULE with a number out of range")
    return moving.reschedule(broker, job_id, delay_ms, priority)


def _move(broker: Broker, job_id: bytes, words: list[bytes]) -> int:
    if len(words) != 1:
        raise ValueError("a MOVE without the name of a queue")
    if memory.is_full(broker) or broker.journal.disk_level:
        return 0
    job = broker.find(job_id)
    return int(job is not None and moving.move(broker, job, words[0]))


# An action changes a job that this node holds. It returns a number from 0 to 255 for the node that asked.
ACTIONS: Final[dict[int, Action]] = {CANCEL: _cancel, PROMOTE: _promote, RESCHEDULE: _reschedule, MOVE: _move}


def _rank(what: int) -> int:
    """Return the rank of a node's knowledge of a job; 0 for an answer that only newer nodes know."""
    return RANKS.get(what, 0)


class Question:
    """A question to several nodes: the nodes that have not answered yet, and the answers."""

    __slots__ = ("answers", "client", "count", "unanswered")

    def __init__(self, client: Client, count: int, nodes: tuple[Node, ...]) -> None:
        self.client = client
        self.count = count
        self.unanswered = dict.fromkeys(nodes)
        self.answers: dict[Node, bytes] = {}


class Answers:
    """The results of `ask`, by id.

    done     the result of the action; no entry: no holder was asked to act, or it has not answered
    known    the knowledge of the node with the highest rank; no entry: no node knows the job
    over     True if a node knows that the job is done; else no entry
    silent   a linked node did not answer: it may have jobs that are not in `known`, or has not done its action
    """

    __slots__ = ("done", "known", "over", "silent")

    def __init__(self) -> None:
        self.silent = False
        self.done: dict[bytes, int] = {}
        self.known: dict[bytes, int] = {}
        self.over: dict[bytes, bool] = {}


def ask(
    broker: Broker,
    client: Client,
    ids: list[bytes],
    action: int,
    words: list[bytes],
    has_here: Mapping[bytes, int] = NO_COPIES,
) -> Generator[None, None, Answers]:
    """Ask other nodes to act on at most IDS_MAX jobs.

    has_here   this node's knowledge of the jobs that it knows; another node acts only if its knowledge ranks higher
    """
    assert len(ids) <= IDS_MAX
    results = Answers()
    nodes = broker.cluster.linked
    if not ids or not nodes:
        return results
    deadline_ms = broker.now_ms + ASK_MS
    first = _begin(broker, client, nodes, len(ids), broker.now_ms + FIRST_MS, ASKJOBS, (ids,))
    found = yield from _answered(broker, client, *first)
    results.silent = len(found) < len(nodes)
    chosen: dict[Node, list[bytes]] = {}
    for at, job_id in enumerate(ids):
        has = [(answer[at], node) for node, answer in found.items() if answer[at]]
        best = max((what for what, _ in has), key=_rank, default=NOTHING)
        if best:
            results.known[job_id] = best
        if any(what == OVER for what, _ in has):
            results.over[job_id] = True
        if _rank(best) > _rank(has_here.get(job_id, OVER)):
            # The nodes are in the order of their ids, so this one has the lowest id of the candidates.
            node = next(node for node in nodes if (best, node) in has)
            chosen.setdefault(node, []).append(job_id)
    # Ask all holders before waiting for any, so that one that does not respond takes no time from the others.
    acting = [
        (
            node,
            asked,
            _begin(broker, client, broker.sets.only(node), len(asked), deadline_ms, DOJOBS, (action, asked, words)),
        )
        for node, asked in chosen.items()
    ]
    for node, asked, question in acting:
        done = yield from _answered(broker, client, *question)
        if not done:
            results.silent = True
        for job_id, value in zip(asked, done.get(node, b""), strict=False):
            results.done[job_id] = value
    return results


def refuse_unreachable(broker: Broker, ids: list[bytes], answers: Answers) -> None:
    """Raise CommandError if the outcome for a job is unknown while a known node can't be asked or is silent. Spec Y10.

    A silent node may be reading its journal, and have the job. Only actions that leave no record need this check.
    CANCELJOB does not, because a cancellation is remembered.
    """
    if answers.silent or len(broker.cluster.linked) < broker.cluster.size - 1:
        if any(job_id not in answers.done and job_id not in answers.over for job_id in ids):
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
    """Ask nodes for answers of `count` bytes each, until the deadline. Return the number and the question."""
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
    """End a question, because all nodes have answered or its time is over."""
    question = broker.questions.pop(number, None)
    if question is not None:
        stalling.resume_client_now(broker, question.client)


def on_askjobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Answer what this node knows of some jobs."""
    for number, ids, *_ in items:
        _check(number, ids)
        broker.send(broker.sets.only(sender), JOBSARE, (number, bytes([what_of(broker, job_id) for job_id in ids])))


def what_of(broker: Broker, job_id: bytes) -> int:
    """Return this node's knowledge of a job."""
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
    """Act, for a client of another node, on those of its jobs that this node holds."""
    for number, action, ids, words, *_ in items:
        _check(number, ids)
        if type(words) not in (list, tuple) or len(words) > WORDS_MAX or not all(type(word) is bytes for word in words):
            raise ValueError("invalid words of an action")
        do = ACTIONS.get(action)
        if do is None:
            broker.stats.ignored("an action that only newer nodes know")
            continue
        done = bytes([do(broker, job_id, list(words)) if broker.find(job_id) is not None else 0 for job_id in ids])
        broker.send(broker.sets.only(sender), DIDJOBS, (number, done))


def _check(number: Any, ids: Any) -> None:
    if type(number) is not int or type(ids) not in (list, tuple) or len(ids) > IDS_MAX:
        raise ValueError("an invalid question about jobs")
    if any(type(job_id) is not bytes or not is_valid_id(job_id) for job_id in ids):
        raise ValueError("an invalid job id")


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
    """Stop waiting for a node whose link broke."""
    for number, question in open_questions.without(broker.questions, node).items():
        if not question.unanswered:
            _end(broker, number)
