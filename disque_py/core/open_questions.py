"""Questions to several nodes that clients wait with: the nodes whose answers are due.

Several conversations ask nodes for a client: asking.py, gathering.py, electing.py, and keying.py for JOBID. Each keeps
its open questions by number, decides what an answer means, and when a question is over. They have this in common: a
node whose link broke is not waited for, and a client that is gone has no questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client


class OpenQuestion(Protocol):
    """A question to several nodes.

    client       the client that waits
    unanswered   the nodes whose answer is due
    """

    client: Client
    unanswered: dict[Node, None]


Q = TypeVar("Q", bound=OpenQuestion)


def without(questions: dict[int, Q], node: Node) -> dict[int, Q]:
    """Wait no longer for a node whose link broke. Return the questions that waited for it."""
    found = {number: question for number, question in questions.items() if node in question.unanswered}
    for question in found.values():
        del question.unanswered[node]
    return found


def forget_client(questions: dict[int, Q], client: Client) -> None:
    """Forget the questions of a client that is gone or waits no longer."""
    for number in [number for number, question in questions.items() if question.client is client]:
        del questions[number]
