"""ADDJOB … REPLACE: the job whose place a new one has taken is canceled, on every node that has a copy (REPLACED).

keying.py finds out whether there is such a job, and makes the new one first. The creator of the new job then tells all
linked nodes. Each holder of the old one notes its error and cancels it, as CANCELJOB would. A holder that is not linked
hears of it as of any canceled job (acks.py), and with it that the key is free. Spec TP6.
"""

from __future__ import annotations

from typing import Any

from cluster_bus.messages import REPLACED
from cluster_bus.node import Node
from disque_py.core import acks, changing
from disque_py.core.broker import Broker
from disque_py.core.ids import ID_BYTES
from disque_py.core.job import ACKED, WAIT_REPL
from disque_py.core.windows import REPLACED_BY


def settle(broker: Broker) -> None:
    """Cancel the jobs whose place others have taken in this turn."""
    replaced, broker.producers.replaced = broker.producers.replaced, []
    for old, new in replaced:
        if broker.cluster.linked:
            broker.send(broker.cluster.linked, REPLACED, (old, new))
        _cancel(broker, old, new)


def on_replaced(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Cancel our copies of jobs whose place others have taken."""
    for old, new, *_ in items:
        if type(old) is not bytes or type(new) is not bytes or len(new) != ID_BYTES:
            raise ValueError("a replacement that is no ids")
        _cancel(broker, old, new)


def _cancel(broker: Broker, old: bytes, new: bytes) -> None:
    job = broker.find(old)
    if job is None or job.state == WAIT_REPL:
        return
    if job.state != ACKED:
        changing.fail(broker, job, REPLACED_BY + new)
        acks.cancel_here(broker, old)
