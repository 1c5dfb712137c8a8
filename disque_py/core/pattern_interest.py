"""Interest in patterns: tell other nodes about clients that wait with FROMMATCH, by pattern instead of by queue.

A node sends its patterns, and the number of clients that wait with each (PATTERN_INTEREST). Other nodes compare the
patterns with the names of their queues. So a waiting client costs one message for any number of matching queues, and a
node immediately knows that clients want a queue that it has just made. Hints and pulls are those of the queues
(interest.py, pulls.py).

Clients with a filter wait in queues (filter_interest.py), so their node must know which queues exist. A node with such
clients is told the name of each matching queue that has or gets a job (PATTERN_QUEUE).

An increase is sent in the turn in which it happens. A decrease is sent later, if it lasts. Spec TP3, I1, I3.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from cluster_bus.messages import PATTERN_INTEREST, PATTERN_QUEUE
from cluster_bus.node import Node
from disque_py.core import handover
from disque_py.core.broker import Broker
from disque_py.core.errors import CommandError
from disque_py.core.interest import DECREASE_MS, ENTRIES_PER_LINK_MAX, LINGER_MS, NAME_BYTES_PER_LINK_MAX
from disque_py.core.patterns import (
    COMPARED_PER_PART,
    GONE,
    NO_CLIENTS,
    PATTERN_BYTES_MAX,
    PATTERNS_MAX,
    Counts,
    PatternGroup,
)


def value_of(broker: Broker, group: PatternGroup) -> Counts:
    """Return the numbers of our clients of this group, as other nodes should know them."""
    if broker.is_leaving or broker.memory_level >= 2:
        return NO_CLIENTS  # This node would refuse jobs that other nodes hand over.
    waiting = len(group.waiting)
    plain = waiting - group.picky or _lately(broker, group.asked_ms)
    filtered = len(group.filtered) or _lately(broker, group.filtered_ms)
    return waiting or max(plain, _lately(broker, group.picky_ms)), plain, filtered


def _lately(broker: Broker, at_ms: int) -> int:
    return 0 if at_ms and broker.now_ms - at_ms < LINGER_MS else GONE


def settle(broker: Broker) -> None:
    """Once per turn, tell other nodes the changes: numbers of our clients, and queues that their clients wait for."""
    patterns = broker.patterns
    due, patterns.due = patterns.due, {}
    for group in due:
        if not group.is_dropped:
            _tell_change(broker, group)
    found, patterns.found = patterns.found, {}
    for group, name in found:
        for node, counts in group.interested.items():
            if counts[2] >= 0 and node.is_linked:
                broker.send(broker.sets.only(node), PATTERN_QUEUE, (name,))


def _tell_change(broker: Broker, group: PatternGroup) -> None:
    counts = value_of(broker, group)
    told = group.told
    if any(new > old for new, old in zip(counts, told, strict=True)):
        _tell(broker, group, counts)
        if 0 in counts:
            _recheck_in(broker, group, LINGER_MS)
    elif counts != told:
        _recheck_in(broker, group, DECREASE_MS)


def _recheck_in(broker: Broker, group: PatternGroup, span_ms: int) -> None:
    if not group.is_timed:
        group.is_timed = True
        broker.schedule.call_at(broker.now_ms + span_ms, partial(_recheck, broker, group))


def _recheck(broker: Broker, group: PatternGroup) -> None:
    """Send a decrease that has lasted."""
    group.is_timed = False
    if group.is_dropped:
        return
    counts = value_of(broker, group)
    if counts != group.told:
        _tell(broker, group, counts)
    if 0 in counts:
        _recheck_in(broker, group, LINGER_MS)


def _tell(broker: Broker, group: PatternGroup, counts: Counts) -> None:
    group.told = counts
    if counts[0] == GONE:
        group.offers = {}
    if counts[2] == GONE:
        group.elsewhere = {}
    linked = broker.cluster.linked
    if linked:
        broker.send(linked, PATTERN_INTEREST, (group.words, *counts))


def tell_all_again(broker: Broker) -> None:
    """Compare all groups with what was told, because this node starts or stops refusing jobs of other nodes."""
    for group in broker.patterns.groups.values():
        broker.patterns.due[group] = None


def on_link_up(broker: Broker, node: Node) -> None:
    """Send a newly linked node all numbers. INTEREST has just told it to forget those from before."""
    only = broker.sets.only(node)
    for group in broker.patterns.groups.values():
        if group.told != NO_CLIENTS:
            broker.send(only, PATTERN_INTEREST, (group.words, *group.told))
        counts = group.interested.get(node)
        if counts is not None:
            _owe(broker, group, node, counts)  # These could not be sent while there was no link.


def on_interest(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note the patterns with which clients of the sender wait or no longer wait."""
    state = handover.exchange(sender)
    for words, waiting, plain, filtered, *_ in items:
        key = _checked(words)
        if type(waiting) is not int or type(plain) is not int or type(filtered) is not int:
            raise ValueError("an interest without numbers")
        counts = (max(waiting, GONE), max(plain, GONE), max(filtered, GONE))
        if counts == NO_CLIENTS:
            if state.patterns.pop(key, False) is None:
                state.pattern_bytes -= sum(map(len, key))
                _forget(broker, sender, key)
            continue
        if key not in state.patterns:
            size = state.pattern_bytes + sum(map(len, key))
            if len(state.patterns) >= ENTRIES_PER_LINK_MAX or size > NAME_BYTES_PER_LINK_MAX:
                broker.stats.ignored("interest in too many patterns")
                continue
        try:
            group = broker.patterns.group(key)
        except CommandError:
            broker.stats.ignored("interest in too many patterns")
            continue
        if key not in state.patterns:
            state.patterns[key] = None
            state.pattern_bytes += sum(map(len, key))
        before = group.interested.get(sender, NO_CLIENTS)
        group.interested[sender] = counts
        broker.patterns.build_soon(group)
        if any(new > old for new, old in zip(counts, before, strict=True)):
            _owe(broker, group, sender, counts)


def _owe(broker: Broker, group: PatternGroup, node: Node, counts: Counts) -> None:
    """Plan hints to the node for all matching queues with jobs."""
    parts = _owed(broker, group, node, is_filtered=counts[2] >= 0)
    if next(parts, parts) is not parts:
        broker.schedule.walk(parts)


def _owed(broker: Broker, group: PatternGroup, node: Node, *, is_filtered: bool) -> Iterator[None]:
    for compared, name in enumerate(list(group.names), 1):
        if compared % COMPARED_PER_PART == 0:
            yield
        queue = broker.queues.get(name)
        if queue is not None and queue.length:
            broker.consumers.hint_due[queue] = None
            if is_filtered and node.is_linked and node in group.interested:
                broker.send(broker.sets.only(node), PATTERN_QUEUE, (name,))


def forget_node(broker: Broker, node: Node) -> None:
    """Forget the interest of a node. It ends with the link that carried it."""
    state = handover.exchange(node)
    for key in state.patterns:
        _forget(broker, node, key)
    state.patterns.clear()
    state.pattern_bytes = 0


def _forget(broker: Broker, node: Node, key: tuple[bytes, ...]) -> None:
    group = broker.patterns.groups.get(key)
    if group is not None:
        group.interested.pop(node, None)


def _checked(words: Any) -> tuple[bytes, ...]:
    """Return the patterns of a message. ValueError if they are malformed or too many."""
    if type(words) not in (list, tuple) or not 0 < len(words) <= PATTERNS_MAX:
        raise ValueError("too many patterns, or none")
    if any(type(word) is not bytes or not 0 < len(word) <= PATTERN_BYTES_MAX for word in words):
        raise ValueError("a pattern that is not bytes, empty or too long")
    if any(words[at] >= words[at + 1] for at in range(len(words) - 1)):
        raise ValueError("patterns that are not sorted")
    return tuple(words)
