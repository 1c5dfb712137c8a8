"""Producers that wait for the outcome of their jobs: their places among the replies, and the answers.

A producer waits for one of these outcomes:

- Enough nodes hold its job (replication.py).
- Another node has taken its job (handover.py).
- It is known whether its key is used (keying.py).
- All jobs of its fan-out are made (fanout.py).

Those modules decide the outcome, and this one tells the producer. A reply never overtakes the reply to an earlier
request: each wait has a slot, and slots are sent in the order of the requests.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from disque_py import event_format
from disque_py.core import events
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, WAITS_FOR_COPIES, WROTE, Client
from disque_py.core.job import Handover, Job, memory_of

NOREPL_TIMEOUT: Final[bytes] = b"-NOREPL Timeout reached before replicating to the requested number of nodes\r\n"
NOREPL_REMOVED: Final[bytes] = b"-NOREPL job removed (expired?) before the requested replication level was achieved\r\n"
NOREPL_REFUSED: Final = b"-NOREPL Not enough reachable nodes for the requested replication level\r\n"
LEAVING_REPLY: Final[bytes] = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"


def wait_for_copies(client: Client, job: Job) -> list[bytes | None]:
    """Make the client wait, and return a slot that keeps the place of this reply among the client's replies."""
    # A slot of length 2 marks a reply that the client does not want (CLIENT REPLY OFF or SKIP).
    slot: list[bytes | None] = [None, None] if client.reply_mode else [None]
    if client.slots is None:
        client.slots = deque()
    client.slots.append(slot)
    client.waiting_jobs[job] = slot
    client.waiting = WAITS_FOR_COPIES
    return slot


def answer(broker: Broker, client: Client, job: Job, slot: list[bytes | None], reply: bytes) -> None:
    """End the wait for this job: fill its slot, and send it with the replies that waited behind it.

    A job of a batch continues to wait until a keeper of the batch has recorded it (keeping.py).
    """
    if job.attributes is not None and reply.startswith(b"+") and broker.batches.is_pending(job):
        broker.batches.hold(client, job, slot, reply)
        return
    client.waiting_jobs.pop(job, None)
    broker.waits.blocked_count -= 1
    slot[0] = reply
    if broker.producers.fans and (fan := broker.producers.fans.get(job)) is not None:
        broker.producers.fans_due[fan] = None
    slots = client.slots
    if slots is None:
        return
    out = client.out
    while slots:
        ready = slots[0][0]
        if ready is None:
            break
        if len(slots.popleft()) == 1:
            out.append(ready)
    if not client.waiting_jobs and client.waiting == WAITS_FOR_COPIES:
        client.waiting = RUNNING
    client.wrote = WROTE  # If the disk failed after this request, the producer is answered once the job is recorded.
    broker.outbox.clients[client] = None


def end_wait(broker: Broker, job: Job, reply: bytes) -> None:
    """Answer the producer that waits for a hand-over of this job, if one does (handover.py)."""
    work = job.work
    if isinstance(work, Handover) and work.client is not None:
        client, work.client = work.client, None
        answer(broker, client, job, work.slot, reply)


def tell_taken(broker: Broker, job: Job) -> None:
    """Tell a producer that waits for a hand-over that the job is added, because another node took it."""
    work = job.work
    if isinstance(work, Handover) and work.client is not None:
        broker.stats.jobs_added += 1
        events.added(broker, job, event_format.ADDED_INVISIBLE if work.due_ms > broker.now_ms else event_format.ADDED)
        end_wait(broker, job, b"+" + job.id + b"\r\n")


def give_up_held(broker: Broker) -> None:
    """Answer the producers that wait for a keeper, because all jobs of this node and their reports are removed."""
    batches = broker.batches
    held, batches.held = batches.held, {}
    for each in held.values():
        if each.client.waiting_jobs.get(each.job) is each.slot:
            answer(broker, each.client, each.job, each.slot, NOREPL_REMOVED)


def caller_out(broker: Broker, job: Job) -> None:
    """Count a caller out that no longer waits for its key. Its job is not registered yet (keying.py)."""
    broker.producers.caller_count -= 1
    broker.used_memory -= memory_of(job)
