"""Order across nodes: a node delivers better jobs of other nodes before its own worse ones.

A job is *better* than another if it comes first in the order of the queue. A node sends a HINT with its best job to the
nodes whose clients ask for the queue's jobs. Such a node counts the jobs that it delivers while it knows of a better
one on another node. It pulls the better ones with a NEEDJOBS that names a place in the order. The answer is a hand-over
and a HINT with the best job that is left. After WORSE_MAX worse jobs, the next ones wait for that answer. Spec F6, F7,
F8.

A faulty node could announce better jobs for ever and never hand one over. So jobs wait a second at most. If a node does
not hand over a job that it announced, its hints are ignored for DOUBT_MS. Spec F10.

Plain first-in-first-out queues pay little for this. A job without PRIORITY is announced when it is NOTABLE_MS old. Then
nodes whose queues are about equally old exchange two messages per PULL_AFTER jobs.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cluster_bus.messages import HINT, NEEDJOBS
from cluster_bus.node import Node
from disque_py.core import zones
from disque_py.core.broker import Broker
from disque_py.core.job import Job
from disque_py.core.pulls import RETRIED_ONLY, notable, place_of
from disque_py.core.queue import PAUSED_OUT, Queue
from disque_py.core.rivals import NOWHERE, Place, Rivals

# A node delivers this many jobs while it knows of a better one on another node. Then it waits for that one.
WORSE_MAX: Final = 60
# If the better job is older by at most CLEARLY_MS, the node asks only after PULL_AFTER worse jobs. Otherwise, nodes
# with equal backlogs would ask for every job.
PULL_AFTER: Final = 32
CLEARLY_MS: Final = 1_000
# The number of jobs asked for doubles if the last question was within BATCH_MS, and else halves.
BATCH_MIN: Final = 4
BATCH_MAX: Final = 100
BATCH_MS: Final = 200
# If a node does not answer for this time, its better jobs are forgotten.
ANSWER_MS: Final = 1_000
# If a node did not hand over better jobs that it announced, its hints are ignored for this time.
DOUBT_MS: Final = 5_000
# A queue's best job is announced at most this often.
TELL_MS: Final = 100
# The time of a queue's last delivery is noted this often. Consumers are busy if the previous note is younger than
# BUSY_MS.
SERVED_MS: Final = 250
# The first note is repeated after this time if this node has enough jobs to break the bound. Other nodes announce their
# best jobs only when they know of busy consumers. Until then a fast consumer would overtake hundreds of better jobs.
SERVED_FIRST_MS: Final = 5
BUSY_MS: Final = 1_250


# -- consumers ---------------------------------------------------------------------------------------


def note_served(broker: Broker, queue: Queue) -> None:
    """Note that clients get jobs here. If they continue for a while, other nodes are told."""
    now_ms = broker.now_ms
    if queue.served_ms and now_ms - queue.served_ms < BUSY_MS:
        queue.busy_ms = now_ms
        broker.consumers.interest_due[queue] = None
    elif queue.length >= WORSE_MAX:
        now_ms = max(1, now_ms - SERVED_MS + SERVED_FIRST_MS)
    queue.served_ms = now_ms


# -- announcements to other nodes -------------------------------------------------------------------


def tell(broker: Broker, queue: Queue) -> None:
    """Announce our best job to nodes whose clients fetch, if it is better than the one that they know."""
    rivals = queue.rivals
    if queue.is_dropped or not queue.length or queue.paused & PAUSED_OUT:
        return
    if rivals is not None and broker.now_ms < rivals.quiet_until_ms:
        look_again(broker, queue, rivals, rivals.quiet_until_ms)
        return
    job = queue.first(is_picky=bool(broker.journal.disk_level))
    if job is None:
        return
    place = place_of(job)
    receivers = [
        node
        for node, waiting in queue.interested.items()
        if waiting <= 0 and node.is_linked and (rivals is None or place < rivals.told.get(node, (1 << 63, 0)))
    ]
    if not receivers:
        return
    if rivals is None:
        rivals = queue.rivals = Rivals()
    wait_ms = notable(broker, job)
    if wait_ms:
        look_again(broker, queue, rivals, broker.now_ms + wait_ms)
        return
    rivals.quiet_until_ms = broker.now_ms + TELL_MS
    for node in receivers:
        rivals.told[node] = place
    broker.stats.hints_sent += len(receivers)
    broker.send(tuple(receivers), HINT, (queue.name, queue.length, *place))


def look_again(broker: Broker, queue: Queue, rivals: Rivals, at_ms: int) -> None:
    """Check at that moment whether there is a job to announce."""
    if not rivals.is_timed:
        rivals.is_timed = True
        broker.schedule.call_at(at_ms, partial(_look, broker, queue, rivals))


def _look(broker: Broker, queue: Queue, rivals: Rivals) -> None:
    rivals.is_timed = False
    if not queue.is_dropped and queue.interested:
        broker.owe_hint(queue)


# -- announcements of other nodes -------------------------------------------------------------------


def heard(broker: Broker, queue: Queue, sender: Node, best: Place | None, given: int | None) -> None:
    """Note the best job of another node.

    given   the number of jobs that are on their way, if this answers our question; else None
    """
    rivals = queue.rivals
    if rivals is None:
        if best is None:
            return
        rivals = queue.rivals = Rivals()
    if given is not None and rivals.asked is sender:
        if given <= 0 and best is not None and best < rivals.limit:
            _doubt(broker, queue, rivals, sender, best)
            return
        rivals.is_answered = True
        rivals.answer = best
        rivals.coming += given
        settle(broker, queue, rivals)
    elif given is None and sender in rivals.doubted:
        rivals.doubted[sender] = best
    elif given is None and rivals.asked is not sender:
        _note(broker, queue, rivals, sender, best)


def settle(broker: Broker, queue: Queue, rivals: Rivals) -> None:
    """End our question if its answer is complete. Until then, the better jobs are still on the other node."""
    if rivals.is_answered and rivals.coming <= 0:
        node, rivals.asked = rivals.asked, None
        if node is not None:
            _note(broker, queue, rivals, node, rivals.answer)


def settle_all(broker: Broker) -> None:
    """End the questions whose last job came in this turn."""
    answered, broker.consumers.answered = broker.consumers.answered, {}
    for queue in answered:
        if queue.rivals is not None and not queue.is_dropped:
            settle(broker, queue, queue.rivals)


def _note(broker: Broker, queue: Queue, rivals: Rivals, node: Node, best: Place | None) -> None:
    """Note a node's best job, and serve the clients that waited for this message."""
    if best is None:
        broker.consumers.rivals.get(node, {}).pop(queue, None)
    else:
        broker.consumers.rivals.setdefault(node, {})[queue] = None
    rivals.note(node, best)
    if rivals.best is None or rivals.best >= rivals.highest:
        rivals.worse = 0  # No job known on another node was overtaken.
        rivals.highest = NOWHERE
        rivals.held_ms = 0
    broker.wake(queue)


def _doubt(broker: Broker, queue: Queue, rivals: Rivals, node: Node, told: Place | None) -> None:
    """Ignore a node's hints for DOUBT_MS, as if it had announced no job. Spec F10."""
    if rivals.asked is node:
        rivals.asked = None
    rivals.worse = 0
    rivals.highest = NOWHERE
    rivals.held_ms = 0
    if node not in rivals.doubted:
        broker.schedule.call_at(broker.now_ms + DOUBT_MS, partial(_believe, broker, queue, rivals, node))
    rivals.doubted[node] = told
    broker.stats.ignored("better job that was not given")
    _note(broker, queue, rivals, node, None)


def _believe(broker: Broker, queue: Queue, rivals: Rivals, node: Node) -> None:
    """Stop ignoring a node's hints, and use the last one."""
    told = rivals.doubted.pop(node, None)
    if told is not None and node.is_linked and not queue.is_dropped and rivals.asked is not node:
        _note(broker, queue, rivals, node, told)


def forget_node(broker: Broker, node: Node) -> None:
    """Forget the jobs that a node announced. Announcements end with the link that carried them."""
    for queue in list(broker.consumers.rivals.pop(node, {})):
        rivals = queue.rivals
        if rivals is not None and not queue.is_dropped:
            if rivals.asked is node:
                rivals.asked = None
            _note(broker, queue, rivals, node, None)


# -- serving ----------------------------------------------------------------------------------------


def may_serve(broker: Broker, queue: Queue, rivals: Rivals, *, is_picky: bool) -> bool:
    """Return whether our next job may be delivered now.

    It must wait if too many jobs have overtaken one of another node.
    """
    best = rivals.best
    if best is None:
        return True
    is_picky = is_picky or bool(broker.journal.disk_level)
    job = queue.first(is_picky=is_picky)
    if job is None:
        return True
    own = place_of(job)
    if own <= best or queue.paused or broker.is_leaving or broker.memory_level >= 2:
        rivals.held_ms = 0
        return True
    if rivals.asked is None and (rivals.worse >= PULL_AFTER or _is_clearly_worse(job, own, best)):
        _ask(broker, queue, rivals, own, is_picky=is_picky)
    if rivals.worse < WORSE_MAX or rivals.asked is None:
        rivals.worse += 1
        rivals.highest = max(rivals.highest, own)
        rivals.held_ms = 0
        return True
    if not rivals.held_ms:
        rivals.held_ms = broker.now_ms
        broker.schedule.call_at(broker.now_ms + ANSWER_MS, partial(_end_hold, broker, queue, rivals, broker.now_ms))
    return False


def _end_hold(broker: Broker, queue: Queue, rivals: Rivals, held_ms: int) -> None:
    """End the wait of our jobs if none was delivered for ANSWER_MS, although nodes answered."""
    if rivals.held_ms == held_ms and not queue.is_dropped:
        node = rivals.asked or rivals.best_node
        rivals.held_ms = 0
        if node is not None:
            _doubt(broker, queue, rivals, node, rivals.known.get(node))


def is_held_back(queue: Queue) -> bool:
    """Return whether jobs of the queue wait here for better ones of another node."""
    rivals = queue.rivals
    return (
        rivals is not None
        and rivals.asked is not None
        and rivals.worse >= WORSE_MAX
        and queue.length > 0
        and not queue.paused & PAUSED_OUT
    )


def _is_clearly_worse(job: Job, own: Place, best: Place) -> bool:
    attributes = job.attributes
    margin = CLEARLY_MS if attributes is None or attributes.priority is None else 0
    return own[0] - best[0] > margin


def _ask(broker: Broker, queue: Queue, rivals: Rivals, own: Place, *, is_picky: bool) -> None:
    """Ask for jobs that are better than our own: the node with the best job, or before that the nearest node."""
    node = rivals.best_node if rivals.worse >= PULL_AFTER else _nearest(broker, rivals, own)
    if node is None or not node.is_linked:
        return
    now_ms = broker.now_ms
    is_fast = now_ms - rivals.asked_ms < BATCH_MS
    rivals.batch = min(BATCH_MAX, 2 * rivals.batch) if is_fast else max(BATCH_MIN, rivals.batch // 2)
    rivals.asked = node
    rivals.asked_ms = now_ms
    rivals.limit = own
    rivals.coming = 0
    rivals.is_answered = False
    rivals.answer = None
    broker.stats.pulls_sent += 1
    flags = RETRIED_ONLY if is_picky else 0
    broker.send(broker.sets.only(node), NEEDJOBS, (queue.name, rivals.batch, flags, *own))
    broker.schedule.call_at(now_ms + ANSWER_MS, partial(_give_up, broker, queue, rivals, now_ms))


def _nearest(broker: Broker, rivals: Rivals, own: Place) -> Node | None:
    """Return the nearest node with a better job than `own`. Of equally near nodes, the best job decides. Spec ZN6."""
    found: Node | None = None
    found_rank = (zones.REMOTE, own)
    for node, place in rivals.known.items():
        rank = (zones.distance(broker.me, node), place)
        if place < own and node.is_linked and (found is None or rank < found_rank):
            found = node
            found_rank = rank
    return found


def _give_up(broker: Broker, queue: Queue, rivals: Rivals, asked_ms: int) -> None:
    """Give up a question that is not answered yet."""
    node = rivals.asked
    if node is not None and rivals.asked_ms == asked_ms and not queue.is_dropped:
        _doubt(broker, queue, rivals, node, rivals.known.get(node))
