"""A question to all linked nodes, for a client that waits for their answers: QUESTION, ANSWER.

`ask` sends a question to every linked node. `answers` waits until all have answered, for at most ASK_MS, as steps of a
long command (incremental.py). It stops waiting for a node whose link breaks, and for a node that says that it can't
answer. A node of an older version ignores the question, so its answer is missing when the time is over. The question of
a client that hangs up is forgotten.

A question has a subject and some words. The subject's function checks the words and returns a *share*: a generator that
makes this node's answer, one part per step. An answer consists of values that msgpack can pack, and has a bounded size.
While few questions arrive, the first part of a share is done immediately. All other parts are walks (schedule.py),
which share one budget, however many nodes ask. A share is dropped when the asking node no longer waits.
`broker.gatherings.subjects` has the subjects (commands/shares.py).

The node that asked checks the shape of each answer before it uses it. If that check, or the check of the words, raises
ValueError, the sender's link is closed. Each answer is a run of its own, so a frame has at most one. Spec Z1, Z6.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import ANSWER, QUESTION
from disque_py.core import open_questions, stalling
from disque_py.core.errors import CommandError

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client

ASK_MS: Final = 1_000
# Shares that this node makes at a time: in all, and for one other node. Further ones are refused.
SHARES_MAX: Final = 1_000
SHARES_OF_NODE_MAX: Final = 250
SUBJECT_BYTES_MAX: Final = 32
# Shares that begin immediately, per millisecond. Further ones begin later.
BEGUN_PER_MS: Final = 4

# Outcomes of an answer.
ANSWERED: Final = 0
# The subject is unknown, or the node reads its journal, makes too many shares or can't make this one.
UNABLE: Final = 1

# Makes this node's answer. It raises CommandError if the node can't answer.
Share = Generator[None, None, Any]
# Returns the share for the words of a question. It raises ValueError for words that are not valid.
MakeShare = Callable[["Broker", list[Any]], Share]
# Returns an answer in the form that the asking node uses. It raises ValueError for an answer that is not valid.
Check = Callable[[Any], Any]


class Question:
    """A question for whose answers a client waits.

    asked        the nodes that were asked, in the order of their ids
    unanswered   the nodes that have not answered yet
    answers      node -> its answer, checked
    is_over      whether its time is over
    """

    __slots__ = ("answers", "asked", "check", "client", "is_over", "number", "unanswered")

    def __init__(self, client: Client, number: int, asked: tuple[Node, ...], check: Check) -> None:
        self.client = client
        self.number = number
        self.asked = asked
        self.unanswered: dict[Node, None] = dict.fromkeys(asked)
        self.answers: dict[Node, Any] = {}
        self.check = check
        self.is_over = False


class Gatherings:
    """Questions of this node and of others.

    subjects  name -> function that makes the share; dispatch installs them
    number    the number of the last question
    asked     number -> question for whose answers a client of this node waits
    shares    node -> how many shares are being made for it
    begun, begun_ms   number of shares that began in the millisecond `begun_ms`
    """

    __slots__ = ("asked", "begun", "begun_ms", "number", "shares", "subjects")

    def __init__(self) -> None:
        self.subjects: dict[bytes, MakeShare] = {}
        self.number = 0
        self.asked: dict[int, Question] = {}
        self.shares: dict[Node, int] = {}
        self.begun = 0
        self.begun_ms = 0


# -- the node that asks -----------------------------------------------------------------------------


def ask(broker: Broker, client: Client, subject: bytes, words: list[Any], check: Check) -> Question:
    """Ask all linked nodes, including leaving ones. The caller may make this node's own share meanwhile."""
    gatherings = broker.gatherings
    gatherings.number += 1
    linked = broker.cluster.linked
    question = Question(client, gatherings.number, linked, check)
    if linked:
        gatherings.asked[question.number] = question
        broker.send(linked, QUESTION, (question.number, subject, words))
        broker.schedule.call_at(broker.now_ms + ASK_MS, partial(_end, broker, question.number))
    return question


def answers(broker: Broker, question: Question) -> Generator[None, None, list[Any]]:
    """Wait until the question is over, and return the answers in the order of the nodes' ids."""
    yield from stalling.until(broker, question.client, lambda: not question.unanswered or question.is_over)
    broker.gatherings.asked.pop(question.number, None)
    return [question.answers[node] for node in question.asked if node in question.answers]


def missing(broker: Broker, question: Question) -> list[Node]:
    """Return the known nodes that have not answered, in the order of their ids."""
    nodes = [node for node in broker.members() if not node.is_newcomer and node not in question.answers]
    return sorted(nodes, key=_node_id)


def forget_client(broker: Broker, client: Client) -> None:
    """Forget the question of a client that is gone."""
    open_questions.forget_client(broker.gatherings.asked, client)


def on_answer(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note a node's answer."""
    for number, outcome, answer, *_ in items:
        if type(number) is not int or type(outcome) is not int:
            raise ValueError("an invalid answer")
        question = broker.gatherings.asked.get(number)
        if question is None or sender not in question.unanswered:
            broker.stats.ignored("answer to a question that is over")
            continue
        if outcome == ANSWERED:
            question.answers[sender] = question.check(answer)
        del question.unanswered[sender]
        if not question.unanswered:
            stalling.resume_client(broker, question.client)


def on_link_lost(broker: Broker, node: Node) -> None:
    """Stop waiting for a node whose link broke in either direction."""
    for question in open_questions.without(broker.gatherings.asked, node).values():
        if not question.unanswered:
            stalling.resume_client(broker, question.client)


def _end(broker: Broker, number: int) -> None:
    """End a question whose time is over."""
    question = broker.gatherings.asked.pop(number, None)
    if question is not None:
        question.is_over = True
        stalling.resume_client(broker, question.client)


def _node_id(node: Node) -> bytes:
    return node.id


# -- a node that is asked ---------------------------------------------------------------------------


def on_question(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Begin this node's share, or say that it can't answer."""
    gatherings = broker.gatherings
    for number, subject, words, *_ in items:
        if type(number) is not int or type(subject) is not bytes or len(subject) > SUBJECT_BYTES_MAX:
            raise ValueError("an invalid question")
        if type(words) not in (list, tuple):
            raise ValueError("invalid words of a question")
        make = gatherings.subjects.get(subject)
        of_sender = gatherings.shares.get(sender, 0)
        is_busy = of_sender >= SHARES_OF_NODE_MAX or sum(gatherings.shares.values()) >= SHARES_MAX
        if make is None or broker.is_loading or is_busy:
            broker.send(broker.sets.only(sender), ANSWER, (number, UNABLE, None))
            continue
        share = make(broker, list(words))
        gatherings.shares[sender] = of_sender + 1
        parts = _made(broker, sender, number, share)
        if not (_may_begin(broker) and next(parts, gatherings) is gatherings):
            broker.schedule.walk(parts)


def _may_begin(broker: Broker) -> bool:
    """Return whether the first part of one more share may be done immediately."""
    gatherings = broker.gatherings
    if gatherings.begun_ms != broker.now_ms:
        gatherings.begun_ms = broker.now_ms
        gatherings.begun = 0
    gatherings.begun += 1
    return gatherings.begun <= BEGUN_PER_MS


def _made(broker: Broker, sender: Node, number: int, share: Share) -> Iterator[None]:
    """Make a share and send it. Stop if the sender has restarted, because its new process uses the same numbers."""
    run = sender.run
    until_ms = broker.now_ms + ASK_MS
    is_over = False
    while not is_over and sender.run == run and broker.now_ms < until_ms:
        try:
            next(share)
        except StopIteration as end:
            _answer(broker, sender, (number, ANSWERED, end.value))
            is_over = True
        except CommandError:  # For example, the queue has too many indexes.
            _answer(broker, sender, (number, UNABLE, None))
            is_over = True
        else:
            yield
    shares = broker.gatherings.shares
    shares[sender] -= 1
    if not shares[sender]:
        del shares[sender]


def _answer(broker: Broker, sender: Node, item: tuple[int, int, Any]) -> None:
    broker.outbox.messages.send_alone(broker.sets.only(sender), ANSWER, item)
