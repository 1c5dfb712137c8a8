"""ADDJOB … REPLACE: cancel the job that a new one has replaced, on every node that has a copy (REPLACED).

keying.py finds out whether there is such a job, and creates the new job first. The creator of the new job then tells
all linked nodes. Each holder of the old job notes the error and cancels the job, as CANCELJOB would. A holder that is
not linked is told later, as about any canceled job (acks.py). It then knows that the key is free, too. The creator of
the old job writes the event. If that node is not linked, the creator of the new job does. Spec TP6.
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
    """Cancel the jobs that were replaced in this turn, here and on all linked nodes."""
    replaced, broker.producers.replaced = broker.producers.replaced, []
    for old, new in replaced:
        linked = broker.cluster.linked
        if linked:
            broker.send(linked, REPLACED, (old, new))
        is_news = not any(node.name[:8] == old[2:10] for node in linked)
        _cancel(broker, old, new, is_news=is_news)


def on_replaced(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Cancel our copies of jobs that were replaced on another node."""
    for old, new, *_ in items:
        if type(old) is not bytes or type(new) is not bytes or len(new) != ID_BYTES:
            raise ValueError("a replacement with malformed ids")
        _cancel(broker, old, new, is_news=old[2:10] == broker.me.name[:8])


def _cancel(broker: Broker, old: bytes, new: bytes, *, is_news: bool) -> None:
    job = broker.find(old)
    if job is None or job.state == WAIT_REPL:
        return
    if job.state != ACKED:
        changing.fail(broker, job, REPLACED_BY + new)
        acks.acknowledge(broker, job, is_news=is_news, is_canceled=True)
        acks.try_collect(broker, job)
