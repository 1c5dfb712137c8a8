"""Order across nodes: better jobs of other nodes come before worse ones of our own.

A node tells nodes whose clients ask for a queue's jobs of the best job that it has, in a HINT. Such a node counts the
jobs that it delivers while a better one is known elsewhere. It pulls the better ones with a NEEDJOBS that names a place
in the order, and the answer is a hand-over with a HINT of the best job that is left. When WORSE_MAX worse jobs were
delivered, the next ones wait for that answer. Spec F6, F7, F8.

A faulty node could tell of better jobs for ever, and never give one. So jobs wait a second at most, and a node that
does not give what it told of is not believed for DOUBT_MS. Spec F10.

Plain first-in-first-out queues pay little for this. A job without PRIORITY is told of when it is NOTABLE_MS old. Then
nodes whose queues are about as old exchange two messages per PULL_AFTER jobs.
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

# A node delivers so many jobs that are worse than one that it knows elsewhere. Then it waits for that one.
WORSE_MAX: Final = 60
# A queue that is hardly older elsewhere is not asked at once: nodes with equal backlogs would ask for every job.
PULL_AFTER: Final = 32
CLEARLY_MS: Final = 1_000
# Jobs asked for: more if the last ones were delivered within so long, else fewer.
BATCH_MIN: Final = 4
BATCH_MAX: Final = 100
BATCH_MS: Final = 200
# Without an answer for so long, a node's better jobs are forgotten.
ANSWER_MS: Final = 1_000
# A node that did not give the better jobs of which it told is not believed for so long.
DOUBT_MS: Final = 5_000
# A queue's best job is told at most so often.
TELL_MS: Final = 100
# The time of a queue's last delivery is noted so often. Consumers are busy if it was noted before within BUSY_MS.
SERVED_MS: Final = 250
BUSY_MS: Final = 1_250


# -- consumers ---------------------------------------------------------------------------------------


def note_served(broker: Broker, queue: Queue) -> None:
    """Note that clients get jobs here; if they go on for a while, other nodes hear of it."""
    now_ms = broker.now_ms
    if queue.served_ms and now_ms - queue.served_ms < BUSY_MS:
        queue.busy_ms = now_ms
        broker.consumers.interest_due[queue] = None
    queue.served_ms = now_ms


# -- telling ----------------------------------------------------------------------------------------


def tell(broker: Broker, queue: Queue) -> None:
    """Tell nodes whose clients fetch of our best job, if it is better than they know."""
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
    """Look at that moment whether there is a job to tell of."""
    if not rivals.is_timed:
        rivals.is_timed = True
        broker.schedule.call_at(at_ms, partial(_look, broker, queue, rivals))


def _look(broker: Broker, queue: Queue, rivals: Rivals) -> None:
    rivals.is_timed = False
    if not queue.is_dropped and queue.interested:
        broker.owe_hint(queue)


# -- hearing ----------------------------------------------------------------------------------------


def heard(broker: Broker, queue: Queue, sender: Node, best: Place | None, given: int | None) -> None:
    """Note the best job of another node; `given` jobs are on their way if this is an answer to us."""
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
    """End a question whose answer is complete; until then, the better jobs are still elsewhere."""
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
    """Note a node's best job, and serve the clients that waited for the word."""
    if best is None:
        broker.consumers.rivals.get(node, {}).pop(queue, None)
    else:
        broker.consumers.rivals.setdefault(node, {})[queue] = None
    rivals.note(node, best)
    if rivals.best is None or rivals.best >= rivals.highest:
        rivals.worse = 0  # No job that is known elsewhere was overtaken.
        rivals.highest = NOWHERE
        rivals.held_ms = 0
    broker.wake(queue)


def _doubt(broker: Broker, queue: Queue, rivals: Rivals, node: Node, told: Place | None) -> None:
    """Go on as if the node had told of no job. It is believed again after a while (spec F10)."""
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
    """Believe a node again, beginning with its last word."""
    told = rivals.doubted.pop(node, None)
    if told is not None and node.is_linked and not queue.is_dropped and rivals.asked is not node:
        _note(broker, queue, rivals, node, told)


def forget_node(broker: Broker, node: Node) -> None:
    """Forget the jobs that a node told us of: they end with the link that carried the word."""
    for queue in list(broker.consumers.rivals.pop(node, {})):
        rivals = queue.rivals
        if rivals is not None and not queue.is_dropped:
            if rivals.asked is node:
                rivals.asked = None
            _note(broker, queue, rivals, node, None)


# -- serving ----------------------------------------------------------------------------------------


def may_serve(broker: Broker, queue: Queue, rivals: Rivals, *, is_picky: bool) -> bool:
    """Whether our next job may be delivered now. It may not if too many worse ones came before one elsewhere."""
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
    """Serve the queue's clients again if no job was served for long, though nodes answered."""
    if rivals.held_ms == held_ms and not queue.is_dropped:
        node = rivals.asked or rivals.best_node
        rivals.held_ms = 0
        if node is not None:
            _doubt(broker, queue, rivals, node, rivals.known.get(node))


def is_held_back(broker: Broker, queue: Queue) -> bool:
    """Whether the queue has jobs here that wait for better ones of another node."""
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
    """Ask the node with the best job for those that are better than our own; or first a nearer node that has such."""
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
    """Return the nearest node with better jobs than this, of equally near ones the one with the best. Spec ZN6."""
    found: Node | None = None
    found_rank = (zones.REMOTE, own)
    for node, place in rivals.known.items():
        rank = (zones.distance(broker.me, node), place)
        if place < own and node.is_linked and (found is None or rank < found_rank):
            found = node
            found_rank = rank
    return found


def _give_up(broker: Broker, queue: Queue, rivals: Rivals, asked_ms: int) -> None:
    """Go on without an answer."""
    node = rivals.asked
    if node is not None and rivals.asked_ms == asked_ms and not queue.is_dropped:
        _doubt(broker, queue, rivals, node, rivals.known.get(node))
