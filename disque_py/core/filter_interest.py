"""Interest with a filter: nodes tell each other which filters their clients wait with, and send hints about such jobs.

Each set of pairs is a separate interest (spec I2). Nodes tell it, hint at it and pull for it as for plain interest
(interest.py), but with messages that name the pairs. A node of an older version ignores these messages, so it neither
gets nor gives jobs by a filter. A group of jobs (filters.py) has a `demand`, which is the known number of its clients
on this node and on others.

A node tells an increase in the turn in which it happens, and a decrease later, if it lasts. It tells all filters to a
newly linked node, one part per turn. The number of filters per link is bounded, and clients that ask without waiting
count, too. Further filters wait until others end.

While a node has jobs for which no client here waits, it hints at one other node at a time. Spec W5, W6.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from cluster_bus.messages import FILTER_HINT, FILTER_INTEREST, FILTER_NEED
from cluster_bus.node import Node
from disque_py.core import handover, pulls
from disque_py.core.broker import Broker
from disque_py.core.filters import GONE, PAIRS_MAX, Demand, Filter, Group, filters_of, want
from disque_py.core.interest import (
    DECREASE_MS,
    ENTRIES_PER_LINK_MAX,
    HINT_ALONE_MS,
    HINT_DOUBLINGS_MAX,
    HINT_MS,
    LINGER_MS,
    NAME_BYTES_PER_LINK_MAX,
    POLLER_MS,
    next_node,
)
from disque_py.core.job_attributes import META_BYTES_MAX
from disque_py.core.queue import PAUSED_OUT, Queue

Pairs = tuple[bytes, ...]

# Filters that are told in one turn. With the messages, this is a few milliseconds of work.
TOLD_PER_TURN: Final = 500


# -- telling ----------------------------------------------------------------------------------------


def value_of(broker: Broker, queue: Queue, group: Group) -> tuple[int, int]:
    """Return what to tell other nodes about our clients of a group: the value for all, and for those not picky."""
    if is_closed(broker, queue):
        return GONE, GONE
    if group.waiting:
        plain = len(group.waiting) - group.picky
        return len(group.waiting), plain or GONE
    demand = group.demand
    value = 0 if demand is not None and demand.asked_ms and broker.now_ms - demand.asked_ms < LINGER_MS else GONE
    return value, value


def is_closed(broker: Broker, queue: Queue) -> bool:
    """Return whether this node would refuse jobs of the queue from other nodes."""
    return bool(queue.paused) or broker.is_leaving or broker.memory_level >= 2


def tell_changes(broker: Broker) -> None:
    """Tell all linked nodes which interest has changed, once per turn, before interest.py does so.

    A queue that is paused or reopened may have a hundred thousand filters. So each turn tells only TOLD_PER_TURN.
    """
    consumers = broker.consumers
    for queue in consumers.interest_due:
        if queue.filters is not None:
            reopened(broker, queue)
    due = consumers.filter_due
    if len(due) <= TOLD_PER_TURN:
        consumers.filter_due = {}
    else:
        due = dict(islice(due.items(), TOLD_PER_TURN))
        for group in due:
            del consumers.filter_due[group]
    for group, queue in due.items():
        _tell_change(broker, queue, group)
    untold = consumers.untold_filters
    for group, queue in list(islice(untold.items(), TOLD_PER_TURN)):
        if not _has_room(broker, queue, group):
            break
        del untold[group]
        _tell_change(broker, queue, group)
    else:
        if untold:
            _go_on_soon(broker)
    if consumers.filter_due:
        _go_on_soon(broker)


def _go_on_soon(broker: Broker) -> None:
    """Start another turn in a millisecond."""
    if not broker.consumers.is_telling:
        broker.consumers.is_telling = True
        broker.schedule.call_at(broker.now_ms + 1, partial(_begin_turn, broker))


def _begin_turn(broker: Broker) -> None:
    broker.consumers.is_telling = False  # The end of this turn tells the next part.


def _tell_change(broker: Broker, queue: Queue, group: Group) -> None:
    if queue.filters is None or queue.is_dropped:
        return
    value, plain = value_of(broker, queue, group)
    demand = group.demand
    if demand is None:
        if value == GONE:
            return
        demand = queue.filters.demand(group)
    if value > demand.told or plain > demand.told_plain or (value < demand.told and queue.paused):
        if demand.told == GONE and not _has_room(broker, queue, group):
            broker.consumers.untold_filters[group] = queue
        else:
            _tell(broker, queue, group, demand, value, plain)
            if value == 0:
                _recheck_in(broker, queue, group, demand, LINGER_MS)
    elif value < demand.told or plain < demand.told_plain:
        _recheck_in(broker, queue, group, demand, DECREASE_MS)
    queue.filters.end_demand(group)


def _has_room(broker: Broker, queue: Queue, group: Group) -> bool:
    """Return whether other nodes will keep one more filter of ours."""
    consumers = broker.consumers
    size = consumers.told_filter_bytes + _size(queue.name, group.pairs)
    return len(consumers.told_filters) < ENTRIES_PER_LINK_MAX and size <= NAME_BYTES_PER_LINK_MAX


def has_room_for_asking(broker: Broker) -> bool:
    """Return whether other nodes may be told of a client that asked in vain and does not wait.

    Waiting clients come first.
    """
    consumers = broker.consumers
    count = max(len(consumers.told_filters), consumers.filter_lines) + len(consumers.filter_due)
    return not consumers.untold_filters and count < ENTRIES_PER_LINK_MAX


def _recheck_in(broker: Broker, queue: Queue, group: Group, demand: Demand, span_ms: int) -> None:
    if not demand.is_timed:
        demand.is_timed = True
        broker.schedule.call_at(broker.now_ms + span_ms, partial(_recheck, broker, queue, group, demand))


def _recheck(broker: Broker, queue: Queue, group: Group, demand: Demand) -> None:
    """Tell a decrease that has lasted. An interest of 0 ends when no client has waited for LINGER_MS."""
    demand.is_timed = False
    if queue.is_dropped or queue.filters is None:
        return
    value, plain = value_of(broker, queue, group)
    if value < demand.told or plain < demand.told_plain:
        _tell(broker, queue, group, demand, value, plain)
    if value == 0:
        _recheck_in(broker, queue, group, demand, LINGER_MS)
    queue.filters.end_demand(group)


def _tell(broker: Broker, queue: Queue, group: Group, demand: Demand, value: int, plain: int) -> None:
    was_told = demand.told != GONE
    demand.told = value
    demand.told_plain = plain
    filters = filters_of(broker, queue)
    if was_told != (value != GONE):
        size = _size(queue.name, group.pairs)
        broker.consumers.told_filter_bytes += -size if was_told else size
    if value == GONE:
        broker.consumers.told_filters.pop(group, None)
        filters.told.pop(group, None)
    else:
        broker.consumers.told_filters[group] = queue
        filters.told[group] = None
    if broker.cluster.linked:
        broker.send(broker.cluster.linked, FILTER_INTEREST, (queue.name, group.pairs, value, plain))


def reopened(broker: Broker, queue: Queue) -> None:
    """Tell all groups again if this node has begun or stopped to refuse jobs of the queue (`is_closed`)."""
    filters = queue.filters
    if filters is None or filters.is_closed == is_closed(broker, queue):
        return
    filters.is_closed = not filters.is_closed
    for groups in (filters.lines, filters.told):
        for group in groups:
            broker.consumers.filter_due[group] = queue


def on_link_up(broker: Broker, node: Node) -> None:
    """Tell a node everything over its new link, the first part immediately.

    An INTEREST has just told the node to forget everything from before.
    """
    parts = _everything(broker, node)
    if next(parts, parts) is not parts:
        broker.schedule.walk(parts)


def _everything(broker: Broker, node: Node) -> Iterator[None]:
    """Tell a node all our filters, and plan hints for all its filters, TOLD_PER_TURN in each part.

    Meanwhile the node hears of changes like all linked nodes. So each part tells the numbers of that moment. If the
    link is lost and comes back, another walk begins.
    """
    only = broker.sets.only(node)
    told = broker.consumers.told_filters
    for at, (group, queue) in enumerate(list(told.items()), 1):
        demand = group.demand
        if demand is not None and told.get(group) is queue:
            broker.send(only, FILTER_INTEREST, (queue.name, group.pairs, demand.told, demand.told_plain))
        if at % TOLD_PER_TURN == 0:
            yield
            if not node.is_linked:
                return
    for at, (name, pairs) in enumerate(list(handover.exchange(node).filters), 1):
        owe_hint(broker, name, pairs)
        if at % TOLD_PER_TURN == 0:
            yield


# -- hearing ----------------------------------------------------------------------------------------


def on_interest(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note for which jobs the sender's clients wait, and for which they no longer do."""
    for name, words, value, plain, *_ in items:
        pairs = _pairs(words)
        if type(name) is not bytes or type(value) is not int or type(plain) is not int:
            raise ValueError("an interest that is not a name and numbers")
        state = handover.exchange(sender)
        key = (name, pairs)
        if value < 0:
            if state.filters.pop(key, False) is None:
                state.filter_bytes -= _size(name, pairs)
                _forget(broker, sender, name, pairs)
            continue
        if key not in state.filters:
            size = state.filter_bytes + _size(name, pairs)
            if len(state.filters) >= ENTRIES_PER_LINK_MAX or size > NAME_BYTES_PER_LINK_MAX:
                broker.stats.ignored("interest with too many filters")
                continue
            state.filter_bytes = size
            state.filters[key] = None
        groups = broker.consumers.filters.get(name)
        if groups is None:
            groups = broker.consumers.filters[name] = {}
        nodes = groups.get(pairs)
        if nodes is None:
            nodes = groups[pairs] = {}
            queue = broker.queues.get(name)
            if queue is not None and filters_of(broker, queue).may_index(pairs[::2]):
                want(broker, queue, pairs, nodes)
        nodes[sender] = (value, plain)
        owe_hint(broker, name, pairs)


def forget_node(broker: Broker, node: Node) -> None:
    """Forget the interest of a node, because the link over which it told us is gone."""
    state = handover.exchange(node)
    for name, pairs in state.filters:
        _forget(broker, node, name, pairs)
    state.filters.clear()
    state.filter_bytes = 0


def _forget(broker: Broker, node: Node, name: bytes, pairs: Pairs) -> None:
    groups = broker.consumers.filters.get(name, {})
    nodes = groups.get(pairs)
    if nodes is None:
        return
    nodes.pop(node, None)
    if nodes:
        return
    del groups[pairs]
    if not groups:
        del broker.consumers.filters[name]
    queue = broker.queues.get(name)
    if queue is not None and queue.filters is not None:
        group = queue.filters.group(_filter(pairs))
        if group is not None:
            queue.filters.end_demand(group)


def owe_hint(broker: Broker, name: bytes, pairs: Pairs) -> None:
    """Check at the end of the turn whether other nodes want jobs of this group."""
    queue = broker.queues.get(name)
    if queue is not None and queue.filters is not None:
        group = queue.filters.group(_filter(pairs))
        if group is not None and group.length:
            broker.consumers.filter_hints[group] = queue


# -- hints ------------------------------------------------------------------------------------------


def send_hints(broker: Broker) -> None:
    """Send hints, once per turn. A group's hint goes to the node that got the fewest hints per waiting client."""
    due = broker.consumers.filter_hints
    broker.consumers.filter_hints = {}
    now_ms = broker.now_ms
    for group, queue in due.items():
        demand = group.demand
        if demand is None or demand.hint_until_ms > now_ms or not group.length or queue.is_dropped:
            continue
        if queue.paused & PAUSED_OUT or queue.is_stalled or group.client_for() is not None:
            continue
        retried = group.retried.length
        waiting = {node: value if retried else plain for node, (value, plain) in demand.interested.items()}
        silent = demand.hint_node if demand.hint_until_ms else None
        node, is_only = next_node(broker, queue.name, waiting, demand.hints, silent)
        if node is None:
            continue
        demand.hints[node] = demand.hints.get(node, 0) + 1
        demand.hint_repeats = demand.hint_repeats + 1 if node is demand.hint_node and demand.hint_until_ms else 0
        demand.hint_node = node
        span_ms = HINT_MS
        if not demand.interested[node][0]:
            span_ms = POLLER_MS
        elif is_only:
            span_ms = HINT_ALONE_MS << min(demand.hint_repeats, HINT_DOUBLINGS_MAX)
        demand.hint_until_ms = now_ms + span_ms
        broker.stats.hints_sent += 1
        pairs = group.pairs
        broker.send(broker.sets.only(node), FILTER_HINT, (queue.name, pairs, group.length))
        broker.schedule.call_at(demand.hint_until_ms, partial(owe_hint, broker, queue.name, pairs))


def on_hint(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Pull jobs of which the sender has told, if our clients may wait for them."""
    for name, words, *_ in items:
        broker.stats.hints_received += 1
        queue = broker.queues.get(name)
        pairs = _pairs(words)
        if queue is None or queue.filters is None or queue.paused or broker.is_leaving:
            continue
        group = queue.filters.group(_filter(pairs))
        if group is None or value_of(broker, queue, group)[0] < 0:
            continue  # The client for which we told our interest has been served since.
        _ask(broker, broker.sets.only(sender), queue, group, pulls.ANSWERS_HINT)


def _ask(broker: Broker, nodes: tuple[Node, ...], queue: Queue, group: Group, flags: int) -> None:
    count = max(1, min(pulls.NEEDJOBS_MAX, len(group.waiting)))
    if group.waiting and group.picky == len(group.waiting):
        flags |= pulls.RETRIED_ONLY
    broker.stats.pulls_sent += 1
    broker.send(nodes, FILTER_NEED, (queue.name, group.pairs, count, flags))


def ask_for_waiting(broker: Broker, count_max: int) -> None:
    """Do a part of a walk that asks all nodes for jobs for our waiting clients. A walk begins every BROADCAST_MS."""
    consumers = broker.consumers
    if not consumers.told_filters:
        return
    for _ in range(count_max):
        found = next(consumers.filter_asking, None)
        if found is None:
            if broker.now_ms - consumers.filter_asked_ms >= pulls.BROADCAST_MS:
                consumers.filter_asked_ms = broker.now_ms
                consumers.filter_asking = iter(list(consumers.told_filters.items()))
            return
        group, queue = found
        if group.waiting and broker.cluster.linked and not is_closed(broker, queue):
            _ask(broker, broker.cluster.linked, queue, group, 0)


def on_need(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Hand over jobs to a node whose clients wait for them. If there are few jobs, hand over at most half of them."""
    for name, words, count, flags, *_ in items:
        pairs = _pairs(words)
        if type(count) is not int or type(flags) is not int:
            raise ValueError("a count that is not a number")
        broker.stats.pulls_received += 1
        queue = broker.queues.get(name)
        if queue is None or not sender.is_linked or not queue.length:
            continue
        filters = filters_of(broker, queue)
        wanted = _filter(pairs)
        index = filters.indexes.get(wanted.names)
        if index is None:
            continue  # The sender's clients no longer wait. As long as some wait, there is an index.
        if index.build is not None:
            filters.build_soon(index)
        group = filters.group(wanted)
        if group is None:
            continue
        answers_hint = bool(flags & pulls.ANSWERS_HINT)
        demand = group.demand
        if answers_hint and demand is not None and demand.hint_node is sender and demand.interested:
            demand.hint_until_ms = 0
        if queue.paused & PAUSED_OUT or not group.length:
            continue
        is_picky = bool(flags & pulls.RETRIED_ONLY)
        count = max(1, min(count, pulls.NEEDJOBS_MAX))
        length = group.retried.length if is_picky else group.length
        if length:
            most = count if length >= 2 * count else max(1, length // 2)
            given = pulls.give(broker, sender, queue, most, is_picky=is_picky, where=wanted)
            if not given and demand is not None:
                # The jobs have just arrived here. Send no hint before they may leave.
                demand.hint_until_ms = broker.now_ms + pulls.REST_MS
                broker.schedule.call_at(demand.hint_until_ms, partial(owe_hint, broker, name, pairs))
        if not queue.is_stalled:
            owe_hint(broker, name, pairs)


def _filter(pairs: Pairs) -> Filter:
    return Filter(dict(zip(pairs[::2], pairs[1::2], strict=True)))


def _size(name: bytes, pairs: Pairs) -> int:
    return len(name) + sum(map(len, pairs))


def _pairs(words: Any) -> Pairs:
    """Return the pairs of a message. Raise ValueError if they are not valid."""
    if type(words) not in (list, tuple) or len(words) & 1 or not 0 < len(words) <= 2 * PAIRS_MAX:
        raise ValueError("a filter that is not a list of pairs")
    if any(type(word) is not bytes for word in words) or sum(map(len, words)) > META_BYTES_MAX:
        raise ValueError("a filter that is not bytes, or is too long")
    names = words[::2]
    if any(names[at] >= names[at + 1] for at in range(len(names) - 1)):
        raise ValueError("a filter whose names are not sorted")
    return tuple(words)
