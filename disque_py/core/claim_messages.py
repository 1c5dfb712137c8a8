"""The table of messages about claims, and the end of a turn for claims.

At the end of a turn, the node handles its messages to itself, and then writes all changes at once. Spec CL3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster_bus import messages
from cluster_bus.node import Node
from disque_py.core import claiming, electing, exclusive, fencing, recalling, voting
from disque_py.core.broker import Broker
from disque_py.core.client import Client

HANDLERS: Final[dict[int, Callable[[Broker, Node, list[Any]], None]]] = {
    messages.VOTERS: voting.on_voters,
    messages.CLAIM: voting.on_claim,
    messages.CLAIM_IS: claiming.on_claim_is,
    messages.RELEASE: voting.on_release,
    messages.RELEASED: claiming.on_released,
    messages.VOTE: voting.on_vote,
    messages.VOTE_IS: electing.on_vote_is,
    messages.RECALL: recalling.on_recall,
    messages.RECALLED: recalling.on_recalled,
    messages.FREED: exclusive.on_freed,
    messages.CLAIM_ENDED: exclusive.on_claim_ended,
    messages.CLAIM_NEWEST: fencing.on_claim_newest,
}


def settle(broker: Broker) -> None:
    """End a turn: handle this node's messages to itself, and write the changes."""
    claims = broker.claims
    while claims.is_due:
        claims.is_due = False
        while claims.local:
            local, claims.local = claims.local, []
            for kind, fields in local:
                HANDLERS[kind](broker, broker.me, [fields])
        voting.write(broker)


def step(broker: Broker) -> None:
    """Do the work that is due. Called ten times a second."""
    voting.step(broker)
    recalling.step(broker)
    exclusive.step(broker)
    fencing.step(broker)


def on_link_lost(broker: Broker, node: Node) -> None:
    """Stop waiting for a node whose link broke."""
    claiming.on_link_lost(broker, node)
    electing.on_link_lost(broker, node)


def forget_client(broker: Broker, client: Client) -> None:
    """Forget the conversations of a client that is gone."""
    electing.forget_client(broker, client)


def on_run_over(broker: Broker, node: Node) -> None:
    """Forget the state shared with a node's process that is gone, or with a node that left the table."""
    voting.on_run_over(broker, node)
    recalling.on_run_over(broker, node)
