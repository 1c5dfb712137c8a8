"""Pushed interest: nodes tell each other where clients wait, and send hints to nodes for whose clients they have jobs.

A node tells every linked node for which queues its clients wait. INTEREST carries the number of waiting clients. It is
0 if none waits but some waited within the last second, and -1 if not even that. A node with jobs for which no client
here waits sends a HINT to such a node. The hinted node pulls with NEEDJOBS. So a job in a queue that was idle for an
hour reaches a consumer on another node after two messages, and an idle cluster sends nothing. Spec I1, I2, I3, I4, I5,
I7. (The original polls, at growing intervals: spec Q25.)

There are two kinds of clients: clients that take every job, and *picky* clients, whose GETJOB has LEASE or TOKEN and
which skip at-most-once jobs (fetch_options.py). INTEREST tells the number of clients of both kinds together. If some
are picky, it also tells how many take every job. A pull for picky clients only is marked as such.

A node tells an increase in the turn in which it happens. It tells a decrease a little later, because a consumer that
asks for the next job immediately would otherwise cost two messages per job.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from cluster_bus.messages import HINT, INTEREST, NEEDJOBS
from cluster_bus.node import Node
from disque_py.core import handover, ordering, pulls, zones
from disque_py.core.broker import Broker
from disque_py.core.ordering import SERVED_MS
from disque_py.core.patterns import demand_of, has_client_for, waiting_in
from disque_py.core.queue import PAUSED_OUT, Queue
from disque_py.core.rivals import Place, Rivals

# Interest in a queue lasts this long after its last client stopped waiting.
LINGER_MS: Final = 1_000
# A decrease of waiting clients is told after this span, if it has lasted.
DECREASE_MS: Final = 50
# After a hint, the node waits this long for a pull before it hints at another node.
HINT_MS: Final = 10
# The same if there is no other node. The span doubles with each repeated hint, this often at most.
HINT_ALONE_MS: Final = 25
HINT_DOUBLINGS_MAX: Final = 3
# A node whose clients poll instead of waiting gets one job at a time, at most once per this span.
POLLER_MS: Final = 100
ENTRIES_PER_LINK_MAX: Final = 100_000
NAME_BYTES_PER_LINK_MAX: Final = 16 * 1024 * 1024

GONE: Final = -1
# A flag of INTEREST: no client waits, but clients fetch jobs.
BUSY: Final = 1
RESET: Final = -2  # In the first item on a new link: everything that was told before is void.


def is_told(broker: Broker) -> bool:
    """Return whether other nodes would be told of a client that asks now. `value_of` has the reasons against it."""
    return bool(broker.cluster.linked) and not broker.is_leaving and broker.memory_level < 2


def value_of(broker: Broker, queue: Queue) -> tuple[int, int]:
    """Return what to tell other nodes about our clients of a queue: the value for all, and for those not picky."""
    if queue.paused or broker.is_leaving or broker.memory_level >= 2:
        return GONE, GONE  # We would refuse jobs that other nodes hand us.
    plain = len(queue.waiting) - queue.picky
    if not plain and not (queue.waited_ms and broker.now_ms - queue.waited_ms < LINGER_MS):
        plain = GONE
    if queue.waiting:
        return len(queue.waiting), plain
    if queue.picky_ms and broker.now_ms - queue.picky_ms < LINGER_MS:
        return 0, plain
    return plain, plain


def is_busy(broker: Broker, queue: Queue) -> bool:
    """Return whether clients fetch jobs of the queue here, so that better jobs of other nodes matter (spec F6)."""
    if not queue.busy_ms or broker.now_ms - queue.busy_ms >= LINGER_MS + SERVED_MS:
        return False
    return not queue.paused and not broker.is_leaving and broker.memory_level < 2


def tell_changes(broker: Broker) -> None:
    """Tell all linked nodes which interest has changed, once per turn."""
    if not broker.consumers.interest_due:
        return
    due = broker.consumers.interest_due
    broker.consumers.interest_due = {}
    for queue in due:
        value, plain = value_of(broker, queue)
        told = broker.consumers.told_interest.get(queue.name, GONE)
        told_plain = broker.consumers.told_plain.get(queue.name, told)
        was_busy = queue.name in broker.consumers.told_busy
        if value > told or plain > told_plain or ((value < told or was_busy) and queue.paused):
            _tell(broker, queue, value, plain)
            if (value == 0 or plain == 0) and not queue.interest_timer:
                _recheck_in(broker, queue, LINGER_MS)
        elif (value < told or plain < told_plain) and not queue.interest_timer:
            _recheck_in(broker, queue, DECREASE_MS)
        elif value == told == GONE and not was_busy and broker.cluster.linked and is_busy(broker, queue):
            _tell(broker, queue, value, plain)
            if not queue.interest_timer:
                _recheck_in(broker, queue, LINGER_MS)


def _recheck_in(broker: Broker, queue: Queue, span_ms: int) -> None:
    queue.interest_timer = True
    broker.schedule.call_at(broker.now_ms + span_ms, lambda: _recheck(broker, queue))


def _recheck(broker: Broker, queue: Queue) -> None:
    """Tell a decrease that has lasted. An interest of 0 ends when no client has waited for LINGER_MS."""
    queue.interest_timer = False
    if queue.is_dropped:
        return
    value, plain = value_of(broker, queue)
    told = broker.consumers.told_interest.get(queue.name, GONE)
    was_busy = queue.name in broker.consumers.told_busy
    if (
        value < told
        or plain < broker.consumers.told_plain.get(queue.name, told)
        or was_busy != _tells_busy(broker, queue, value)
    ):
        _tell(broker, queue, value, plain)
    if value == 0 or plain == 0 or queue.name in broker.consumers.told_busy:
        _recheck_in(broker, queue, LINGER_MS)


def _tell(broker: Broker, queue: Queue, value: int, plain: int) -> None:
    if value == GONE:
        broker.consumers.told_interest.pop(queue.name, None)
    else:
        broker.consumers.told_interest[queue.name] = value
    if plain == value:
        broker.consumers.told_plain.pop(queue.name, None)
    else:
        broker.consumers.told_plain[queue.name] = plain
    if _tells_busy(broker, queue, value):
        broker.consumers.told_busy[queue.name] = None
    else:
        broker.consumers.told_busy.pop(queue.name, None)
    linked = broker.cluster.linked
    if linked:
        broker.send(linked, INTEREST, _told(broker, queue.name, value))


def _tells_busy(broker: Broker, queue: Queue, value: int) -> bool:
    """Return whether to tell other nodes that clients fetch here. If clients wait, the number says it already."""
    return value == GONE and bool(broker.cluster.linked) and is_busy(broker, queue)


def _told(broker: Broker, name: bytes, value: int) -> tuple[bytes | int, ...]:
    if name in broker.consumers.told_busy:
        return name, GONE, GONE, BUSY
    plain = broker.consumers.told_plain.get(name)
    return (name, value) if plain is None else (name, value, plain)


def on_link_up(broker: Broker, node: Node) -> None:
    """Tell a node everything over its new link, because it knows nothing yet."""
    only = broker.sets.only(node)
    broker.send(only, INTEREST, (b"", RESET))
    for name, value in broker.consumers.told_interest.items():
        broker.send(only, INTEREST, _told(broker, name, value))
    for name in broker.consumers.told_busy:
        broker.send(only, INTEREST, _told(broker, name, GONE))
    # Without the link, no hint could be sent to the node.
    for name in handover.exchange(node).interest:
        queue = broker.queues.get(name)
        if queue is not None:
            if queue.rivals is not None:
                queue.rivals.told.pop(node, None)
            if queue.length:
                broker.consumers.hint_due[queue] = None


def forget_node(broker: Broker, node: Node) -> None:
    """Forget the interest of a node, because the link over which it told us is gone."""
    state = handover.exchange(node)
    ordering.forget_node(broker, node)
    for name in state.interest:
        nodes = broker.consumers.interest.get(name)
        if nodes is not None:
            nodes.pop(node, None)
            if not nodes and name not in broker.queues:
                del broker.consumers.interest[name]
        if broker.consumers.plain_interest:
            _note_plain(broker, name, node, None)
    state.interest.clear()
    state.standing.clear()
    state.interest_bytes = 0


def _note_plain(broker: Broker, name: bytes, node: Node, plain: int | None) -> None:
    """Note how many of the node's clients take every job. None means that all of them do, or that there are none."""
    nodes = broker.consumers.plain_interest.get(name)
    if plain is not None:
        if nodes is None:
            nodes = broker.consumers.plain_interest[name] = {}
        nodes[node] = plain
    elif nodes is not None:
        nodes.pop(node, None)
        if not nodes:
            del broker.consumers.plain_interest[name]


def on_interest(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note for which queues the sender's clients wait, and for which they no longer do."""
    state = handover.exchange(sender)
    for name, value, *later in items:
        if type(name) is not bytes or type(value) is not int:
            raise ValueError("an interest that is not a name and a number")
        if value == RESET:
            forget_node(broker, sender)
            continue
        plain = later[0] if later else None
        if plain is not None and type(plain) is not int:
            raise ValueError("an interest that is not a number")
        if broker.consumers.plain_interest:
            _note_plain(broker, name, sender, None)
        is_fetched = len(later) > 1 and type(later[1]) is int and bool(later[1] & BUSY)
        if value < 0 and not is_fetched:
            queue = broker.queues.get(name)
            if queue is not None and queue.rivals is not None:
                queue.rivals.told.pop(sender, None)
            state.standing.pop(name, None)
            if state.interest.pop(name, None) is not None:
                state.interest_bytes -= len(name)
                broker.consumers.interest[name].pop(sender, None)
                if not broker.consumers.interest[name] and name not in broker.queues:
                    del broker.consumers.interest[name]
            continue
        if name not in state.interest:
            size = state.interest_bytes + len(name)
            if len(state.interest) >= ENTRIES_PER_LINK_MAX or size > NAME_BYTES_PER_LINK_MAX:
                broker.stats.ignored("interest in too many queues")
                continue
            state.interest_bytes = size
        state.interest[name] = value
        nodes = broker.consumers.interest.get(name)
        queue = broker.queues.get(name)
        if nodes is None:
            nodes = broker.consumers.interest[name] = {} if queue is None else queue.interested
        nodes[sender] = max(value, GONE)
        if plain is not None and value >= 0:
            _note_plain(broker, name, sender, plain)
        if queue is not None and queue.length:
            broker.consumers.hint_due[queue] = None


def send_hints(broker: Broker) -> None:
    """Send hints, once per turn. A queue's hint goes to the node that got the fewest hints per waiting client."""
    due = broker.consumers.hint_due
    broker.consumers.hint_due = {}
    for queue in due:
        _send_hint(broker, queue)
        if queue.length and queue.interested:
            ordering.tell(broker, queue)


def _send_hint(broker: Broker, queue: Queue) -> None:
    """Send a hint about the queue's jobs if it is due. A node with a standing pull gets jobs instead."""
    if queue.hint_until_ms > broker.now_ms or not queue.length or queue.paused & PAUSED_OUT:
        return
    if queue.waiting and (queue.picky < len(queue.waiting) or queue.retried_length):
        return  # Clients of this node get the jobs.
    if queue.patterns is not None and has_client_for(queue):
        return
    if queue.is_stalled:
        return  # The body of its first job is being read back. The hint is sent when that is done.
    while True:
        waiting = queue.interested
        plain = broker.consumers.plain_interest.get(queue.name)
        if plain and not queue.retried_length:
            waiting = {**waiting, **plain}  # There are no jobs for picky clients here.
        silent = queue.hint_sent_to if queue.hint_until_ms else None
        node, is_only = next_node(broker, queue.name, demand_of(queue, waiting), queue.hints, silent)
        if node is None:
            return
        interested = demand_of(queue, queue.interested)
        queue.hints[node] = (queue.hints[node] if node in queue.hints else _hints_before(queue, interested, node)) + 1
        standing = pulls.standing_of(broker, node, queue)
        if standing is None or not pulls.give_ahead(broker, node, queue, standing):
            break
        if not queue.length or queue.is_stalled:
            return
    if queue.hint_until_ms > broker.now_ms:
        return  # All jobs have just arrived here, and may not leave yet.
    queue.hint_repeats = queue.hint_repeats + 1 if node is queue.hint_sent_to and queue.hint_until_ms else 0
    queue.hint_sent_to = node
    span_ms = HINT_MS
    if not interested[node]:
        span_ms = POLLER_MS
    elif is_only:
        # No other node could be asked instead, and this node's link may just be slow.
        span_ms = HINT_ALONE_MS << min(queue.hint_repeats, HINT_DOUBLINGS_MAX)
    queue.hint_until_ms = broker.now_ms + span_ms
    broker.stats.hints_sent += 1
    best = queue.first(is_picky=bool(broker.journal.disk_level))
    if best is None or pulls.notable(broker, best):
        broker.send(broker.sets.only(node), HINT, (queue.name, queue.length))
    else:
        rivals = queue.rivals
        if rivals is None:
            rivals = queue.rivals = Rivals()
        place = rivals.told[node] = pulls.place_of(best)
        broker.send(broker.sets.only(node), HINT, (queue.name, queue.length, *place))
    broker.schedule.call_at(queue.hint_until_ms, partial(broker.owe_hint, queue))


def _hints_before(queue: Queue, interested: dict[Node, int], node: Node) -> int:
    """Return the number of hints with which a new node begins: the lowest number per client of the other nodes.

    So a new node does not get all hints until it has caught up with the others.
    """
    ratios = [count / max(1, interested.get(other, 0)) for other, count in queue.hints.items()]
    return int(min(ratios, default=0.0) * max(1, interested[node]))


def next_node(
    broker: Broker, name: bytes, interested: dict[Node, int], hints: dict[Node, int], silent: Node | None
) -> tuple[Node | None, bool]:
    """Return the node that gets the next hint, and whether it is the only candidate.

    The first of these rules that tells two nodes apart decides:

    * Nodes with waiting clients come before nodes whose clients poll or are busy with a job.
    * The node that ignored the last hint comes after all others.
    * Near nodes come before distant ones (spec ZN5).
    * Nodes with fewer hints per waiting client come first.

    Hints of nodes that are no longer interested are forgotten.

    name         of the queue
    interested   node -> number of clients that wait there for these jobs; below 0: for other jobs only
    hints        node -> number of hints that it got
    silent       the node that ignored the last hint
    """
    best: Node | None = None
    candidates = 0
    now_ms = broker.now_ms
    best_rank = (False, True, zones.REMOTE, 0.0)
    for node, waiting in interested.items():
        if waiting < 0 or not node.is_linked or handover.exchange(node).refuses(name, now_ms):
            continue
        candidates += 1
        rank = (
            waiting == 0,
            node is silent,
            zones.distance(broker.me, node),
            hints.get(node, 0) / max(1, waiting),
        )
        if best is None or rank < best_rank:
            best = node
            best_rank = rank
    if len(hints) > len(interested):
        for node in [node for node in hints if node not in interested]:
            del hints[node]
    return best, candidates == 1


def on_hint(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Pull jobs of which the sender has told, if our clients may wait for them."""
    for name, _, *order in items:
        broker.stats.hints_received += 1
        queue = broker.queues.get(name)
        if queue is None:
            if type(name) is not bytes or not broker.patterns.groups or not broker.patterns.is_wanted(name):
                continue
            queue = broker.queue(name)
        best, given = _best_of(order)
        if best is not None or given is not None:
            ordering.heard(broker, queue, sender, best, given)
            if given is not None:
                continue  # This HINT answers a pull of ours.
        if queue.paused or broker.is_leaving or (best is not None and _has_jobs(queue)):
            continue
        if not pulls.is_near_enough(broker, queue, sender):
            continue  # It will hint again.
        flags = pulls.ANSWERS_HINT | pulls.kinds(queue)
        if pulls.asks_ahead(broker, queue):
            count = pulls.ask_count(broker, queue)
            pulls.note_asked(broker, queue, sender, count)
            flags |= pulls.STANDING
        elif not queue.waiting and not (queue.polled_ms and broker.now_ms - queue.polled_ms < LINGER_MS):
            count = broker.patterns.asked_for(queue, sender) if queue.patterns is not None else 0
            if not count:
                continue  # The client for which we told our interest has been served since.
            waiting, picky = waiting_in(queue)
            flags = pulls.ANSWERS_HINT | (pulls.RETRIED_ONLY if waiting and picky == waiting else 0)
        else:
            count = pulls.hinted_count(broker, queue)
        pulls.note_pull(broker, queue, sender)
        broker.stats.pulls_sent += 1
        broker.send(broker.sets.only(sender), NEEDJOBS, (name, count, flags))


def _best_of(order: list[Any]) -> tuple[Place | None, int | None]:
    """Return the place of the sender's best job, and the number of jobs that it gave if the HINT answers a pull."""
    if len(order) < 2:
        return None, None
    priority, ctime, *more = order
    given = more[0] if more else None
    if given is not None and type(given) is not int:
        raise ValueError("an invalid number of jobs")
    if priority is None:
        return None, given
    if type(priority) is not int or type(ctime) is not int:
        raise ValueError("an invalid place in the order")
    return (priority, ctime), given


def _has_jobs(queue: Queue) -> bool:
    """Return whether there are jobs for all clients here.

    Clients that wait nevertheless wait for better jobs elsewhere.
    """
    waiting = len(queue.waiting)
    return (queue.retried_length if waiting and queue.picky == waiting else queue.length) >= max(1, waiting)
