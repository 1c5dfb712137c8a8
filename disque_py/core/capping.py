"""Caps across nodes: the choice of a coordinator, questions for slots, and grants.

The messages are CAP_FOLLOW, CAP_ASK, CAP_GRANT, CAP_SETTLE and CAP_USE. The coordinator is the linked node with the
lowest id that is not leaving. A node follows one coordinator at a time, and tells it so. The coordinator gives out
slots by these rules:

* It counts the slots that each node has reported as used, and the slots of grants that are not settled yet.
* If more than half of the known nodes are on its side, it gives out the whole cap. Otherwise, with s of k nodes on its
  side, it gives out s/k of the cap, rounded down. Each node follows only one coordinator, so no two sides of a
  partition can have the whole cap.
* A lost node keeps its slots until its leases are over, as far as it has reported them.
* A new coordinator waits for GRACE_MS, and then until all linked nodes follow it, for at most two node timeouts. They
  tell it everything that they know about slots.

Nodes that wait for slots of one value get them in the order in which they asked. A grant is used immediately, or given
back after a short time. The messages are small, and only deliveries of queues with caps cause them.
Spec CP2, CP4, CP5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from cluster_bus.messages import CAP_ASK, CAP_FOLLOW, CAP_GRANT, CAP_SETTLE, CAP_USE
from cluster_bus.node import HANDSHAKE, ID_BYTES, LEAVING, Node
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.caps import ADMITTED_MS, HELD_MS, Grant, Key, Limit, Pair, aside_key
from disque_py.core.job import ACTIVE, Job
from disque_py.core.patterns import waiting_in
from disque_py.core.queue import Queue
from disque_py.core.queue_fields import QueueSettings
from disque_py.core.versions import FLOWS

# A new coordinator gives out no slots for this span, so that messages that are on their way can arrive first.
GRACE_MS: Final = 300
# A question for slots is repeated after this span.
ASK_MS: Final = 1_000
# GETJOB NOHANG waits for the coordinator's answer at most this long.
ANSWER_MS: Final = 100
# The most slots that one question asks for.
WANTED_MAX: Final = 64
# If a grant arrives when no client of this node waits any more, the jobs are offered to all nodes after this span.
IDLE_MS: Final = 100
# Nodes that wait for slots of one key, looked at in one go.
WAITS_LOOKED: Final = 200
# Leases, keys and questions checked per step: this many of each.
CHECKED_PER_STEP: Final = 200
# Jobs are counted, and offered again, in parts. A part ends after this many shards, counted jobs or offered jobs.
SHARDS_PER_PART: Final = 64
COUNTED_PER_PART: Final = 1_000
RELEASED_PER_PART: Final = 500
# Of a period up to this, a node tells only the number of deliveries. To know them anew counts them for a while longer.
SHORT_MS: Final = 10_000
COUNT_MAX: Final = 1 << 53
LEASE_MS_MAX: Final = 1 << 53

# Kinds of CAP_USE.
RATE: Final = 0  # The number of new deliveries.
RUNNING: Final = 1  # The number of leases that run now.
# The number of all known deliveries since a moment in the last period, which counts for so many ms more. With 0 ms, the
# number for the whole period. Older nodes send and understand only this, so the last number is the one for the period.
RATE_KNOWN: Final = 2


# -- settings -----------------------------------------------------------------------------------------------------


def settings_changed(broker: Broker, name: bytes, settings: QueueSettings | None) -> None:
    """Take over the caps from a queue's settings. None means that it has no settings any more."""
    caps = broker.caps
    before = caps.limits.get(name)
    if settings is None or not (settings.rate or settings.max_running):
        if caps.limits.pop(name, None) is not None:
            caps.windows.pop(name, None)
            caps.demands.pop(name, None)
            _release(broker, name)
        return
    limit = Limit(settings.rate, settings.rate_ms, settings.rate_by, settings.max_running, settings.max_running_by)
    if limit == before:
        return
    is_first = not caps.limits
    caps.limits[name] = limit
    if before is not None and (not limit.rate or before.rate_by != limit.rate_by):
        caps.windows.pop(name, None)
    _release(broker, name)
    if before is None or (before.running > 0, before.running_by) != (limit.running > 0, limit.running_by):
        broker.schedule.walk(_count_running(broker, name))
    look(broker)
    if is_first:
        for node in broker.cluster.linked:
            _say_whether_we_follow(broker, node)


def _release(broker: Broker, name: bytes) -> None:
    """Offer all jobs of a queue again, because its caps have changed."""
    caps = broker.caps
    for pair in [pair for pair in caps.asked if pair[0] == name]:
        del caps.asked[pair]
    _release_soon(broker, list(caps.aside.pop(name, {})))


def _release_soon(broker: Broker, pairs: list[Pair]) -> None:
    """Offer the jobs of these pairs again that are aside: the first part now, and the others later."""
    parts = _released(broker, pairs)
    if next(parts, parts) is not parts:
        broker.schedule.walk(parts)


def _released(broker: Broker, pairs: list[Pair]) -> Iterator[None]:
    """Offer the jobs of pairs again, in parts of RELEASED_PER_PART jobs or pairs."""
    left = RELEASED_PER_PART
    for pair in pairs:
        has_more = True
        while has_more:
            if left <= 0:
                left = RELEASED_PER_PART
                yield
            given = _give_back(broker, pair, left)
            has_more = given == left
            left -= max(given, 1)


def _give_back(broker: Broker, pair: Pair, count: int) -> int:
    """Offer up to `count` jobs of a pair again that are aside, unless slots were asked for. Return their number."""
    queue = broker.queues.get(pair[0])
    key = aside_key(pair)
    if queue is None or queue.parking is None or pair in broker.caps.asked:
        return 0
    given = queue.parking.give_back(key, count)
    if given:
        broker.wake(queue)
        if queue.interested:
            broker.owe_hint(queue)
    if key not in queue.parking.groups:
        broker.caps.aside.get(pair[0], {}).pop(pair, None)
    return given


def _count_running(broker: Broker, name: bytes) -> Iterator[None]:
    """Count the leases that run already, one part at a time."""
    caps = broker.caps
    looked = 0
    for at in range(SHARDS):
        jobs = list(broker.shards[at].values())
        looked += len(jobs)
        for job in jobs:
            limit = caps.limits.get(name)
            if job.terms.queue == name and limit is not None and limit.running and _is_running(broker, job):
                caps.ended(job)
                _, _, running = caps.pair_of(job)
                if running is not None:
                    caps.begin(job, (name, running), job.requeue_at_ms)
        if at % SHARDS_PER_PART == 0 or looked >= COUNTED_PER_PART:
            looked = 0
            yield


def _is_running(broker: Broker, job: Job) -> bool:
    if broker.pauses.deferred.get(job) == job.requeue_at_ms:
        return False  # Its lease ended during a pause.
    return job.state == ACTIVE and job.is_leased_here and job.requeue_at_ms > broker.now_ms and not job.is_errored


# -- jobs ---------------------------------------------------------------------------------------------------------


def is_asked(broker: Broker, queue: Queue) -> bool:
    """Return whether another node, the coordinator, was asked for slots of this queue a moment ago."""
    caps = broker.caps
    if caps.coordinator is broker.me or broker.is_leaving:
        return False
    pairs = caps.aside.get(queue.name, {})
    return any(caps.asked.get(pair, 0) + ANSWER_MS > broker.now_ms for pair in pairs)


def _give(broker: Broker, queue: Queue, pair: Pair, count: int) -> None:
    """Offer the first `count` jobs of a pair again that are aside. If more jobs are aside, ask for more slots."""
    caps = broker.caps
    if queue.parking is None:
        return
    queue.parking.give_back(aside_key(pair), count)
    broker.wake(queue)
    aside = caps.aside.get(pair[0], {})
    if aside_key(pair) not in queue.parking.groups:
        aside.pop(pair, None)
    elif pair in aside:  # Else the cap has changed since we asked, and `_released` offers the other jobs.
        caps.asked[pair] = broker.now_ms
        caps.to_ask[pair] = (caps.wanted(queue, broker.now_ms), 0)


# -- the coordinator ----------------------------------------------------------------------------------------------


def look(broker: Broker) -> None:
    """Choose the coordinator, and compute the part of the caps that this side of a partition may use."""
    caps = broker.caps
    if not caps.limits:
        return
    able = [node for node in broker.cluster.linked if node.protocol >= FLOWS and not node.flags & LEAVING]
    if not broker.is_leaving:
        able.append(broker.me)
    found = min(able, key=_node_id) if able else broker.me
    if found is not caps.coordinator:
        _follow(broker, found)
    known = [node for node in broker.members() if not node.flags & (LEAVING | HANDSHAKE)]
    share = (1 + len(caps.followers), 1 + max(len(known), len(caps.followers)))
    if share != caps.share:
        caps.share = share
        caps.freed.update(dict.fromkeys(caps.waits))


def _follow(broker: Broker, found: Node) -> None:
    caps = broker.caps
    before = caps.coordinator
    if before is not None and before is not broker.me and before.is_linked:
        broker.send(broker.sets.only(before), CAP_FOLLOW, (0,))
    caps.coordinator = found
    _drop_grants(broker)
    for pair in caps.asked:
        caps.to_ask.setdefault(pair, (1, 0))
    if found is broker.me:
        caps.ready_ms = broker.now_ms + GRACE_MS if broker.members() else broker.now_ms
        broker.schedule.call_at(caps.ready_ms, partial(_ready, broker))
        return
    caps.waits.clear()
    only = broker.sets.only(found)
    broker.send(only, CAP_FOLLOW, (1,))
    broker.send_all(only, CAP_USE, list(_known(broker)))


def _drop_grants(broker: Broker) -> None:
    """Stop using the grants of the former coordinator."""
    caps = broker.caps
    for grants in caps.grants.values():
        for grant in grants:
            if grant.node is not broker.me:
                grant.left = 0
    caps.settled.clear()


def _ready(broker: Broker) -> None:
    caps = broker.caps
    caps.freed.update(dict.fromkeys(caps.waits))


def _is_ready(broker: Broker) -> bool:
    """Return whether this node, which is the coordinator, may give out slots."""
    caps = broker.caps
    if broker.now_ms < caps.ready_ms:
        return False
    late_ms = caps.ready_ms + 2 * broker.settings.cluster_node_timeout
    if broker.now_ms >= late_ms:
        return True
    return all(node in caps.followers or node.protocol < FLOWS for node in broker.cluster.linked)


def _known(broker: Broker) -> Iterator[tuple[Any, ...]]:
    """Yield everything that this node knows about slots, as items of CAP_USE."""
    caps = broker.caps
    me = (broker.me.id, broker.run)
    for name, windows in caps.windows.items():
        limit = caps.limits.get(name)
        if limit is None:
            continue
        for value, window in windows.items():
            counts = window.since(broker.now_ms, limit.rate_ms)
            if limit.rate_ms <= SHORT_MS:
                counts = counts[-1:]
            for count, at_ms in counts:
                left_ms = max(1, limit.rate_ms - (broker.now_ms - at_ms)) if limit.rate_ms > SHORT_MS else 0
                yield (*me, name, RATE_KNOWN, value, count, left_ms)
    for key in list(caps.uses):
        caps.used(key, broker.now_ms)
        for owner, use in caps.uses.get(key, {}).items():
            yield (*owner, key[0], RUNNING, key[1], use.count, max(0, use.until_ms - broker.now_ms))


def on_follow(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that a node follows us as its coordinator, or no longer does.

    While we have no link to it, it does not count, because grants could not reach it. With the link we tell it that we
    don't follow it, and it answers that it follows us.
    """
    caps = broker.caps
    for is_following, *_ in items:
        if type(is_following) is not int:
            raise ValueError("a CAP_FOLLOW that says neither yes nor no")
        caps.followers.pop(sender, None)
        if is_following and sender.is_linked:
            caps.followers[sender] = None
            continue
        _forget_asks(broker, sender)
        _count_grants_as_used(broker, sender)
        if not is_following and sender is caps.coordinator:  # It had lost its link to us, and forgot that we follow it.
            broker.send(broker.sets.only(sender), CAP_FOLLOW, (1,))
    _tell_counted(broker, sender)
    look(broker)
    caps.freed.update(dict.fromkeys(caps.waits))


def _tell_counted(broker: Broker, node: Node) -> None:
    """Tell a node how many of its slots we count. It corrects the numbers that are wrong (`_correct`).

    A new link makes a node tell of the leases that it has, but not of those that ended while there was no link.
    """
    owner = (node.id, node.run)
    items: list[tuple[Any, ...]] = []
    for key, uses in broker.caps.uses.items():
        use = uses.get(owner)
        if use is not None:
            left_ms = max(0, use.until_ms - broker.now_ms)
            items.append((*owner, key[0], RUNNING, key[1], use.count, left_ms))
    if items:
        broker.send_all(broker.sets.only(node), CAP_USE, items)


def on_ask(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that a node wants slots."""
    for name, rate, running, count, lease_ms, *_ in items:
        pair = _pair((name, rate, running))
        if type(count) is not int or type(lease_ms) is not int or not 0 < count <= COUNT_MAX:
            raise ValueError("an invalid question for slots")
        if sender in broker.caps.followers:
            _wait(broker, sender, pair, min(count, WANTED_MAX), min(max(0, lease_ms), LEASE_MS_MAX))
        else:
            broker.stats.ignored("question for slots of a node that follows another one")


def _pair(words: tuple[Any, Any, Any]) -> Pair:
    name, rate, running = words
    if type(name) is not bytes or not all(each is None or type(each) is bytes for each in (rate, running)):
        raise ValueError("invalid values of a cap")
    return name, rate, running


def _slots(pair: Pair) -> list[tuple[bool, Key]]:
    name, rate, running = pair
    return [(is_it, (name, value)) for is_it, value in ((False, rate), (True, running)) if value is not None]


def _wait(broker: Broker, node: Node, pair: Pair, count: int, lease_ms: int) -> None:
    for slot in _slots(pair):
        broker.caps.waits.setdefault(slot, {})[node, pair] = (count, lease_ms)
        broker.caps.freed[slot] = None


def _wait_no_more(broker: Broker, node: Node, pair: Pair) -> None:
    for slot in _slots(pair):
        waits = broker.caps.waits.get(slot)
        if waits is not None:
            waits.pop((node, pair), None)
            if not waits:
                del broker.caps.waits[slot]


def _give_out(broker: Broker, slot: tuple[bool, Key]) -> None:
    """Give the free slots of a key to the nodes that wait for them, in their order."""
    caps = broker.caps
    waits = caps.waits.get(slot)
    if not waits or not _is_ready(broker):
        return
    for at, ((node, pair), (count, lease_ms)) in enumerate(list(waits.items())):
        room = caps.room(pair, broker.now_ms)
        if room:
            _wait_no_more(broker, node, pair)
            _grant(broker, node, pair, min(room, count), lease_ms)
        elif at >= WAITS_LOOKED:
            broker.schedule.call_at(broker.now_ms + 1, partial(_look_again, broker, slot))
            break
    _wake_for_rate(broker, slot)


def _wake_for_rate(broker: Broker, slot: tuple[bool, Key]) -> None:
    """Look again when the oldest deliveries of a rate no longer count. Each key has one timer for that."""
    is_running, (name, value) = slot
    caps = broker.caps
    limit = caps.limits.get(name)
    window = caps.windows.get(name, {}).get(value)
    if not is_running and slot in caps.waits and limit is not None and window is not None:
        at_ms = window.free_at_ms(limit.rate_ms)
        if at_ms > broker.now_ms and not broker.now_ms < caps.woken.get(slot, 0) <= at_ms:
            caps.woken[slot] = at_ms
            broker.schedule.call_at(at_ms, partial(_woken, broker, slot, at_ms))


def _woken(broker: Broker, slot: tuple[bool, Key], at_ms: int) -> None:
    if broker.caps.woken.get(slot) == at_ms:
        del broker.caps.woken[slot]
        _look_again(broker, slot)


def _look_again(broker: Broker, slot: tuple[bool, Key]) -> None:
    if slot in broker.caps.waits:
        broker.caps.freed[slot] = None


def _grant(broker: Broker, node: Node, pair: Pair, count: int, lease_ms: int) -> None:
    caps = broker.caps
    caps.reserve(pair, count)
    if node is broker.me:
        _take(broker, Grant(broker.me, 0, pair, count, broker.now_ms + HELD_MS))
        return
    caps.number += 1
    caps.given[caps.number] = Grant(node, caps.number, pair, count, broker.now_ms + lease_ms)
    broker.send(broker.sets.only(node), CAP_GRANT, (caps.number, *pair, count))


def on_grant(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Take granted slots. Give them back immediately if the sender is no longer our coordinator."""
    for number, name, rate, running, count, *_ in items:
        pair = _pair((name, rate, running))
        if type(number) is not int or type(count) is not int or not 0 < count <= COUNT_MAX:
            raise ValueError("an invalid grant of slots")
        if sender is broker.caps.coordinator:
            _take(broker, Grant(sender, number, pair, count, broker.now_ms + HELD_MS))
        else:
            broker.send(broker.sets.only(sender), CAP_SETTLE, (number, count))


def _take(broker: Broker, grant: Grant) -> None:
    caps = broker.caps
    caps.asked.pop(grant.pair, None)
    queue = broker.queues.get(grant.pair[0])
    if queue is None or not (queue.has_clients or waiting_in(queue)[0]):
        caps.return_all(grant)  # The consumer for which we asked no longer waits.
        _offer_one(broker, queue, grant.pair)
        return
    caps.grants.setdefault(grant.pair, deque()).append(grant)
    _give(broker, queue, grant.pair, grant.left)


def _offer_one(broker: Broker, queue: Queue | None, pair: Pair) -> None:
    """Offer one job of a pair, so that the next client of this node asks for slots. The others follow soon.

    A consumer often asks again immediately, and needs slots then. If all jobs were offered now, most of them would have
    to be set aside again.
    """
    if queue is None or queue.parking is None:
        broker.caps.aside.get(pair[0], {}).pop(pair, None)  # Its jobs have ended, and the queue was dropped meanwhile.
        return
    queue.parking.give_back(aside_key(pair), 1)
    if queue.interested:
        broker.owe_hint(queue)
    if aside_key(pair) in queue.parking.groups:
        broker.caps.idle[pair] = broker.now_ms + IDLE_MS
    else:
        broker.caps.aside.get(pair[0], {}).pop(pair, None)


def on_settle(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that slots of a grant were used or given back. A CAP_USE has told of their use before."""
    caps = broker.caps
    for number, count, *_ in items:
        grant = caps.given.get(number)
        if type(count) is not int or count < 0:
            raise ValueError("an invalid number of slots")
        if grant is None or grant.node is not sender:
            broker.stats.ignored("slots of a grant that is over")
            continue
        count = min(count, grant.left)
        grant.left -= count
        if not grant.left:
            del caps.given[number]
        caps.reserve(grant.pair, -count)


def on_use(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note the slots that a node uses."""
    caps = broker.caps
    for node_id, run, name, kind, value, count, left_ms, *_ in items:
        if not all(type(each) is bytes for each in (node_id, run, name, value)) or len(node_id) != ID_BYTES:
            raise ValueError("slots without a valid node, queue or value")
        if not all(type(each) is int and 0 <= each <= COUNT_MAX for each in (count, left_ms)):
            raise ValueError("an invalid count of slots")
        if kind == RUNNING:
            # Also without a cap, because the leases outlive a removed cap, and can be told before a new cap arrives.
            _note_running(broker, sender, (name, value), (node_id, run), count, left_ms)
            continue
        limit = caps.limits.get(name)
        if limit is not None and limit.rate:  # Else the settings of the queue have not arrived yet.
            window = caps.window(name, value)
            if kind != RATE and left_ms:
                at_ms = broker.now_ms - limit.rate_ms + min(left_ms, limit.rate_ms)
                window.add_known(at_ms, count, limit.rate_ms)
                continue
            more = count if kind == RATE else count - window.used(broker.now_ms, limit.rate_ms)
            if more > 0:
                window.add(broker.now_ms, more, limit.rate_ms)


def _note_running(broker: Broker, sender: Node, key: Key, owner: tuple[bytes, bytes], count: int, left_ms: int) -> None:
    caps = broker.caps
    node = broker.cluster.find(owner[0])
    if owner == (broker.me.id, broker.run):
        _correct(broker, key, count)
        return
    if node is None:
        return
    is_first_hand = node is sender and owner[1] == sender.run
    if not is_first_hand and node.is_linked and node.run == owner[1]:
        return  # That node tells us itself.
    use = caps.use(key, node, owner[1])
    use.count = count if is_first_hand else max(use.count, count)
    use.until_ms = max(use.until_ms, broker.now_ms + left_ms)
    if not use.count:
        del caps.uses[key][owner]
        if not caps.uses[key]:
            del caps.uses[key]
    caps.freed[True, key] = None


def _correct(broker: Broker, key: Key, count: int) -> None:
    """Tell all nodes how many leases run here, if a node counts more or fewer of them.

    The node may have missed the end of a lease, or count a grant that was lost on its way. It does not answer.
    """
    caps = broker.caps
    use = caps.uses.get(key, {}).get((broker.me.id, broker.run))
    if count == (use.count if use is not None else 0):
        return
    if caps.grants or caps.admitted:  # These slots may be the ones that the node counts. Wait until they are used.
        broker.schedule.call_at(broker.now_ms + HELD_MS + ADMITTED_MS, partial(_tell_use, broker, key))
    else:
        caps.told_uses[key] = None


def _tell_use(broker: Broker, key: Key) -> None:
    broker.caps.told_uses[key] = None


def _forget_asks(broker: Broker, node: Node) -> None:
    for slot, waits in list(broker.caps.waits.items()):
        for each in [each for each in waits if each[0] is node]:
            del waits[each]
        if not waits:
            del broker.caps.waits[slot]


def on_link_up(broker: Broker, node: Node) -> None:
    """Tell a newly linked node which slots we know of, and whether we follow it."""
    caps = broker.caps
    if not caps.limits or node.protocol < FLOWS:
        return
    broker.send_all(broker.sets.only(node), CAP_USE, list(_known(broker)))
    _say_whether_we_follow(broker, node)
    look(broker)


def _say_whether_we_follow(broker: Broker, node: Node) -> None:
    """Tell a node whether we follow it.

    It may be following us without our knowledge, because we forgot it when our link to it broke while its own link to
    us did not. If we don't follow it, it answers that it follows us.
    """
    if node.protocol >= FLOWS:
        broker.send(broker.sets.only(node), CAP_FOLLOW, (int(node is broker.caps.coordinator),))


def on_link_lost(broker: Broker, node: Node) -> None:
    """Count the grants of a lost node as used, because the node may use them."""
    caps = broker.caps
    caps.followers.pop(node, None)
    if node is caps.coordinator and not caps.limits:
        caps.coordinator = None  # Without caps we choose no other one. With new caps we choose again, and tell it.
    _forget_asks(broker, node)
    _count_grants_as_used(broker, node)
    look(broker)


def _count_grants_as_used(broker: Broker, node: Node) -> None:
    """Count the slots of a node's grants as used, because the node may use them without telling us again."""
    caps = broker.caps
    for number, grant in list(caps.given.items()):
        if grant.node is node:
            del caps.given[number]
            name, rate, running = grant.pair
            limit = caps.limits.get(name)
            if rate is not None and limit is not None and limit.rate:
                caps.window(name, rate).add(broker.now_ms, grant.left, limit.rate_ms)
            if running is not None:
                use = caps.use((name, running), node, node.run)
                use.count += grant.left
                use.until_ms = max(use.until_ms, grant.until_ms)
            caps.reserve(grant.pair, -grant.left)


# -- turns and time -----------------------------------------------------------------------------------------------


def settle(broker: Broker) -> None:
    """End a turn: tell which slots are used, ask for slots, and give out free ones."""
    caps = broker.caps
    linked = broker.cluster.linked
    me = (broker.me.id, broker.run)
    if caps.told_rates or caps.told_uses:
        rates, caps.told_rates = caps.told_rates, {}
        keys, caps.told_uses = caps.told_uses, {}
        if linked:
            items: list[tuple[Any, ...]] = [(*me, name, RATE, value, n, 0) for (name, value), n in rates.items()]
            for key in keys:
                use = caps.uses.get(key, {}).get(me)
                left_ms = max(0, use.until_ms - broker.now_ms) if use is not None else 0
                items.append((*me, key[0], RUNNING, key[1], use.count if use is not None else 0, left_ms))
            broker.send_all(linked, CAP_USE, items)
    coordinator = caps.coordinator
    if caps.settled:
        settled, caps.settled = caps.settled, {}
        if coordinator is not None and coordinator is not broker.me:
            broker.send_all(broker.sets.only(coordinator), CAP_SETTLE, list(settled.items()))
    if caps.to_ask:
        asks, caps.to_ask = caps.to_ask, {}
        for pair, (count, lease_ms) in asks.items():
            if coordinator is broker.me:
                _wait(broker, broker.me, pair, min(count, WANTED_MAX), lease_ms)
            elif coordinator is not None:
                broker.send(broker.sets.only(coordinator), CAP_ASK, (*pair, min(count, WANTED_MAX), lease_ms))
    if caps.freed:
        freed, caps.freed = caps.freed, {}
        if coordinator is broker.me:
            for slot in freed:
                _give_out(broker, slot)


def step(broker: Broker) -> None:
    """Do the work that is due. Called ten times a second."""
    caps = broker.caps
    if not caps.limits and not caps.running and not caps.idle and not caps.uses:
        return
    look(broker)
    caps.expire(broker.now_ms)
    for job in list(islice(caps.running, CHECKED_PER_STEP)):
        if _is_running(broker, job):
            caps.running[job] = caps.running.pop(job)  # To the end, so that the next step begins with the others.
        else:
            caps.ended(job)
    for key in list(islice(caps.uses, CHECKED_PER_STEP)):
        caps.uses[key] = caps.uses.pop(key)
        caps.used(key, broker.now_ms)  # This forgets leases of lost nodes. Without a cap nothing else does.
    if caps.coordinator is broker.me:
        for slot in list(islice(caps.waits, CHECKED_PER_STEP)):
            caps.waits[slot] = caps.waits.pop(slot)
            caps.freed[slot] = None
    due = [pair for pair, at_ms in caps.idle.items() if at_ms <= broker.now_ms]
    for pair in due:
        del caps.idle[pair]
    _release_soon(broker, due)
    for pair, at_ms in list(islice(caps.asked.items(), CHECKED_PER_STEP)):
        caps.asked[pair] = caps.asked.pop(pair)
        if at_ms + ASK_MS <= broker.now_ms:
            if pair in caps.aside.get(pair[0], {}):
                caps.asked[pair] = broker.now_ms
                caps.to_ask.setdefault(pair, (1, 0))
            else:
                del caps.asked[pair]
    _drop_windows(broker)


def _drop_windows(broker: Broker) -> None:
    """Forget values whose deliveries are all older than the period of their cap."""
    caps = broker.caps
    for name, windows in caps.windows.items():
        limit = caps.limits.get(name)
        for value in list(islice(windows, CHECKED_PER_STEP)):
            window = windows.pop(value)
            if limit is not None and window.used(broker.now_ms, limit.rate_ms):
                windows[value] = window


def _node_id(node: Node) -> bytes:
    return node.id
