"""Open questions to several nodes, for whose answers a client waits.

Several conversations ask nodes on behalf of a client: asking.py, gathering.py, electing.py, and keying.py for JOBID.
Each keeps its open questions by number, and decides what an answer means and when a question is over. This module has
their common part: no question waits for a node whose link broke, and a client that has disconnected has no questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client


class OpenQuestion(Protocol):
    """A question to several nodes.

    client       the client that waits
    unanswered   nodes that have not answered yet
    """

    client: Client
    unanswered: dict[Node, None]


Q = TypeVar("Q", bound=OpenQuestion)


def without(questions: dict[int, Q], node: Node) -> dict[int, Q]:
    """Stop waiting for a node whose link broke. Return the questions that waited for it."""
    found = {number: question for number, question in questions.items() if node in question.unanswered}
    for question in found.values():
        del question.unanswered[node]
    return found


def forget_client(questions: dict[int, Q], client: Client) -> None:
    """Forget the questions of a client that has disconnected or waits no longer."""
    for number in [number for number, question in questions.items() if question.client is client]:
        del questions[number]
