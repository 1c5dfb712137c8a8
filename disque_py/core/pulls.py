"""Pulls: a node whose clients wait asks other nodes for jobs, with NEEDJOBS.

The node asks nodes that have jobs. It knows such nodes from hints (interest.py), and because they handed it jobs
recently. Every BROADCAST_MS it asks all nodes. A node that is asked hands over at most half of its queue (handover.py).

A node that constantly gets jobs from other nodes asks ahead of need, with a *standing* pull. It names a count. If the
giver has fewer jobs, it hands over later jobs as they come, without a hint, until the count is reached. So a stream of
jobs costs one question per fifty jobs or so. Both nodes count the jobs that are left of the pull, and the asker renews
it when half of them have come. The asker's count may be wrong after a lost message. Then it asks once too often, or the
giver sends a hint.

This module has both ends of the conversation. It also measures the rate at which other nodes hand us jobs of a queue.
The rate determines how many jobs to ask for, and whether other nodes feed the queue. Spec I6, I9, I10.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any, Final

from cluster_bus.messages import HINT, NEEDJOBS
from cluster_bus.node import Node
from disque_py.core import lifecycle, zones
from disque_py.core.broker import Broker
from disque_py.core.filters import Filter
from disque_py.core.handover import exchange, hand_over
from disque_py.core.job import IMPORT_BITS, Job
from disque_py.core.patterns import demand_of
from disque_py.core.queue import PAUSED_OUT, Queue
from disque_py.core.rivals import Place, Rivals, Standing

# A job that was imported this recently is not passed on, so that two nodes don't hand it to each other for ever.
REST_MS: Final = 100
# After a pull from a nearer node, the hint of a farther node is not answered for this time.
NEAR_MS: Final = 20
# Other nodes are told about a job without PRIORITY as a better one when it is this old.
NOTABLE_MS: Final = 500
NEEDJOBS_MIN: Final = 5
NEEDJOBS_MAX: Final = 100
# At most this many jobs that may not leave yet are skipped in the search for jobs behind them.
HELD_MAX: Final = 2 * NEEDJOBS_MAX
# Flags of NEEDJOBS.
ANSWERS_HINT: Final = 1  # The pull answers a hint.
RETRIED_ONLY: Final = 2  # The asker wants no at-most-once jobs.
STANDING: Final = 4  # The asker also wants jobs that come later.
# The giver ends a standing pull after this time. The asker considers it ended a little earlier.
STANDING_MS: Final = 1_000
RENEWED_MS: Final = 700
# If a client of this node got a job within this time, the queue has consumers here (Queue.served_ms is that coarse).
FETCHED_MS: Final = 1_250
# One YOURJOBS carries about this many bytes of bodies at most, so that its receiver is not busy for long.
BATCH_BYTES_MAX: Final = 256 * 1024
RESPONDER_MS: Final = 5_000
ADHOC_MS_MIN: Final = 25
ADHOC_MS_MAX: Final = 2_000
BROADCAST_MS: Final = 30_000
BROADCAST_SLACK_MS: Final = 1_000
# The import rate (QSTAT) has two buckets of at least a second each. They are forgotten after five seconds.
RATE_BUCKET_MS: Final = 1_000
RATE_WINDOW_MS: Final = 5_000
RATE_SPAN_MS_MIN: Final = 50
# Fewer imports in the window are not a stream. Then the node asks for no jobs before a client waits for them.
IMPORTS_MIN: Final = 5


# -- giving -----------------------------------------------------------------------------------------


def on_needjobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Hand some of our jobs, at most half of the queue, to a node whose clients wait."""
    for name, count, flags, *limit in items:
        if type(count) is not int or type(flags) is not int:
            raise ValueError("a count that is not a number")
        broker.stats.pulls_received += 1
        queue = broker.queues.get(name)
        if len(limit) >= 2 and queue is None and sender.is_linked:
            broker.send(broker.sets.only(sender), HINT, (name, 0, None, None, 0))
        if queue is None or not sender.is_linked:
            continue
        if len(limit) >= 2:
            _give_better(broker, sender, queue, count, (limit[0], limit[1]), is_picky=bool(flags & RETRIED_ONLY))
            continue
        answers_hint = bool(flags & ANSWERS_HINT)
        is_standing = bool(flags & STANDING) and sender in queue.interested
        if queue.hint_sent_to is sender and (
            is_standing or (answers_hint and demand_of(queue, queue.interested).get(sender, 0) > 0)
        ):
            queue.hint_until_ms = 0
        if not answers_hint and import_rate(broker, queue) > 0:
            continue
        is_picky = bool(flags & RETRIED_ONLY)
        count = max(1, min(count, NEEDJOBS_MAX))
        if is_standing:
            exchange(sender).standing[name] = Standing(count, broker.now_ms, is_picky=is_picky)
            if queue.length:
                broker.consumers.hint_due[queue] = None  # The end of the turn hands over the jobs that are here.
            continue
        if not queue.length or queue.paused & PAUSED_OUT:
            continue
        length = queue.retried_length if is_picky else queue.length
        if length:
            give(broker, sender, queue, count if length >= 2 * count else max(1, length // 2), is_picky=is_picky)
        if not queue.is_stalled:
            broker.consumers.hint_due[queue] = None


def standing_of(broker: Broker, node: Node, queue: Queue) -> Standing | None:
    """Return the node's standing pull of this queue, or None if it has none or it is used up."""
    pulls = exchange(node).standing
    standing = pulls.get(queue.name) if pulls else None
    if standing is None:
        return None
    if not standing.left or broker.now_ms - standing.asked_ms >= STANDING_MS:
        del pulls[queue.name]
        return None
    return standing


def give_ahead(broker: Broker, node: Node, queue: Queue, standing: Standing) -> int:
    """Hand a node jobs for its standing pull. Return their number.

    If other consumers may want the jobs, too, the node gets half of the queue, as with any other pull.
    """
    plain = broker.consumers.plain_interest.get(queue.name)
    is_picky = standing.is_picky or (plain is not None and plain.get(node, 1) <= 0)
    length = queue.retried_length if is_picky else queue.length
    if not length:
        return 0
    count = standing.left
    if length < 2 * count and _has_others(broker, queue):
        count = max(1, length // 2)
    given = give(broker, node, queue, count, is_picky=is_picky)
    standing.left -= given
    return given


def _has_others(broker: Broker, queue: Queue) -> bool:
    """Return whether consumers of this node, or of more than one other node, fetch jobs of the queue."""
    now_ms = broker.now_ms
    if len(queue.interested) > 1 or queue.waiting:
        return True
    lately_ms = max(queue.served_ms, queue.polled_ms, queue.waited_ms, queue.picky_ms)
    return bool(lately_ms) and now_ms - lately_ms < FETCHED_MS


def _give_better(broker: Broker, sender: Node, queue: Queue, count: int, limit: Place, *, is_picky: bool) -> None:
    """Hand a node the jobs that come before its own, and tell it about the best job that is left. Spec F7."""
    if type(limit[0]) is not int or type(limit[1]) is not int:
        raise ValueError("a place in the order that is not two numbers")
    # While the disk fails, at-most-once jobs stay here, even if the node's consumers take them (spec F7, P5).
    is_disk_failing = bool(broker.journal.disk_level)
    is_picky = is_picky or is_disk_failing
    given = 0
    is_open = not queue.paused & PAUSED_OUT
    if is_open and queue.length:
        given = give(broker, sender, queue, max(1, min(count, NEEDJOBS_MAX)), is_picky=is_picky, before=limit)
    rivals = queue.rivals
    if rivals is None:
        rivals = queue.rivals = Rivals()
    job = queue.first(is_picky=is_picky) if is_open else None
    is_held = job is not None and not given and place_of(job) < limit
    if is_held:  # The better jobs came in a moment ago, or their bodies are on disk.
        job = _first_from(queue, limit, is_picky=is_picky)
    is_notable = job is not None and not notable(broker, job)
    if is_held or (job is not None and not is_notable):  # The node gets a hint when these jobs may leave.
        broker.schedule.call_at(broker.now_ms + REST_MS, partial(broker.owe_hint, queue))
    if job is None or not is_notable:
        rivals.told.pop(sender, None)
        broker.send(broker.sets.only(sender), HINT, (queue.name, queue.length, None, None, given))
    else:
        best = None if is_held else queue.first(is_picky=is_disk_failing)
        rivals.told[sender] = place_of(job if best is None else best)
        broker.send(broker.sets.only(sender), HINT, (queue.name, queue.length, *place_of(job), given))


def _first_from(queue: Queue, limit: Place, *, is_picky: bool) -> Job | None:
    """Return the first job at this place or behind it. None if there is none within the first HELD_MAX jobs."""
    for job in islice(queue.oldest(), HELD_MAX):
        if place_of(job) >= limit and job.is_listed and (job.terms.retry_ms or not is_picky):
            return job
    return None


def place_of(job: Job) -> Place:
    """Return a job's place in the order, as it is in messages."""
    return job.priority, job.ctime


def notable(broker: Broker, job: Job) -> int:
    """Return the milliseconds until other nodes are told about a job that waits here; 0 if they are told now."""
    attributes = job.attributes
    if attributes is not None and attributes.priority is not None:
        return 0
    return min(NOTABLE_MS, max(0, job.priority + NOTABLE_MS - broker.wall_ms))


def _rest_ms(job: Job, now_ms: int) -> int:
    """Return how long a job that another node handed to us must still stay here.

    The time of the import is stored modulo 25 days or so. Now and then, an old job therefore counts as new for REST_MS.
    """
    return REST_MS - (now_ms - int(job.imported_at) & IMPORT_BITS)


def give(
    broker: Broker,
    node: Node,
    queue: Queue,
    count: int,
    *,
    is_picky: bool = False,
    where: Filter | None = None,
    before: Place | None = None,
) -> int:
    """Hand over up to `count` of a queue's first jobs. Return their number.

    Jobs that were imported less than REST_MS ago stay here.

    is_picky   keep at-most-once jobs here, too
    where      hand over only jobs that match this filter
    before     hand over only jobs that come before this place
    """
    is_picky = is_picky or bool(broker.journal.disk_level)
    jobs: list[Job] = []
    resting: list[Job] = []
    size = 0
    now_ms = broker.now_ms
    # A node that names a place must get the jobs behind resting ones, or it would deliver its worse jobs first (F8).
    resting_max = count if before is None else HELD_MAX
    while len(jobs) < count and size < BATCH_BYTES_MAX:
        if before is not None:
            first = queue.first(is_picky=is_picky)
            if first is None or place_of(first) >= before:
                break
        if where is None:
            job = lifecycle.fetch(broker, queue, is_picky=is_picky, is_capped=False)
        else:
            job = lifecycle.fetch_matching(broker, queue, where, is_picky=is_picky, is_capped=False)
        if job is None:
            break
        if job.imported_at and _rest_ms(job, now_ms) > 0:
            resting.append(job)
            if len(resting) >= resting_max:
                break
            continue
        jobs.append(job)
        size += len(job.body)
    for job in resting:
        lifecycle.put_back(broker, job)
    if queue.parking is not None:
        lifecycle.show_due(broker, queue)
    if resting and not jobs and where is None:
        # No job may leave before the first of these has rested, so no hint is sent until then.
        queue.hint_until_ms = now_ms + _rest_ms(resting[0], now_ms)
        broker.schedule.call_at(queue.hint_until_ms, partial(broker.owe_hint, queue))
    if jobs:
        queue.jobs_out += len(jobs)
        queue.active_ms = now_ms
        hand_over(broker, node, jobs)
    return len(jobs)


# -- the import rate --------------------------------------------------------------------------------


def imported(broker: Broker, queue: Queue, sender: Node) -> None:
    """Remember the source of a job that came in, and count it for the rate."""
    now_ms = broker.now_ms
    broker.stats.jobs_imported += 1
    queue.sources[sender] = now_ms
    queue.adhoc_attempts = 0
    if now_ms - queue.import_start_ms > RATE_BUCKET_MS:
        queue.import_previous = queue.import_count
        queue.import_previous_ms = queue.import_start_ms
        queue.import_count = 0
        queue.import_start_ms = now_ms
    queue.import_count += 1
    if queue.asked is not None:
        asked = queue.asked.get(sender)
        if asked is not None:
            asked.left -= 1
            if asked.left <= asked.half:
                broker.consumers.renewals[queue] = None
    if queue.rivals is not None and queue.rivals.asked is sender:
        queue.rivals.coming -= 1
        if queue.rivals.is_answered:
            broker.consumers.answered[queue] = None


def import_rate(broker: Broker, queue: Queue) -> int:
    """Return the jobs per second that other nodes hand us for this queue (spec I9)."""
    now_ms = broker.now_ms
    if not queue.import_count or now_ms - queue.import_start_ms > RATE_WINDOW_MS:
        return 0
    total = queue.import_count
    since_ms = queue.import_start_ms
    if queue.import_previous and now_ms - queue.import_previous_ms <= RATE_WINDOW_MS:
        total += queue.import_previous
        since_ms = queue.import_previous_ms
    span_ms = max(RATE_SPAN_MS_MIN, now_ms - since_ms)
    return -(-total * 1000 // span_ms)


def has_import_rate(broker: Broker, queue: Queue) -> bool:
    """Return whether enough jobs come in to speak of a rate. A single import would be a rate of 20 per second."""
    return queue.import_count + queue.import_previous >= IMPORTS_MIN and import_rate(broker, queue) > 0


def kinds(queue: Queue) -> int:
    """Return the flag of a pull that says which jobs our clients take: the waiting ones, or the last one that asked."""
    waiting = queue.waiting
    if waiting:
        return RETRIED_ONLY if queue.picky == len(waiting) else 0
    return RETRIED_ONLY if queue.picky_ms > queue.waited_ms else 0


# -- asking -----------------------------------------------------------------------------------------


def ask_count(broker: Broker, queue: Queue) -> int:
    """Return how many jobs to ask one source for: its share of the rate or one per waiting client, from 5 to 100."""
    rate = import_rate(broker, queue) if has_import_rate(broker, queue) else 0
    sources = max(1, len(queue.sources))
    return max(NEEDJOBS_MIN, min(NEEDJOBS_MAX, max(rate // sources, len(queue.waiting))))


def hinted_count(broker: Broker, queue: Queue) -> int:
    """Return how many jobs to ask of a node that has sent a hint: one per waiting client, or its share of the rate."""
    share = 0
    if queue.waiting and has_import_rate(broker, queue):
        share = import_rate(broker, queue) // max(1, len(queue.sources))
    return max(1, min(NEEDJOBS_MAX, max(share, len(queue.waiting))))


def ask_sources(broker: Broker, queue: Queue, *, is_urgent: bool) -> None:
    """Ask the nodes that recently handed us jobs.

    is_urgent   don't wait for the gap since the last question, because the queue ran dry under load
    """
    if broker.is_leaving or not queue.sources or queue.paused:
        return
    now_ms = broker.now_ms
    for node in [node for node, last_ms in queue.sources.items() if now_ms - last_ms > RESPONDER_MS]:
        del queue.sources[node]
    if not queue.sources:
        return
    if not is_urgent:
        gap_ms = min(ADHOC_MS_MIN << min(queue.adhoc_attempts, 10), ADHOC_MS_MAX)
        if now_ms - queue.adhoc_at_ms < gap_ms:
            return
    elif queue.adhoc_at_ms == now_ms:
        return
    queue.adhoc_attempts += 1
    queue.adhoc_at_ms = now_ms
    count = ask_count(broker, queue)
    flags = kinds(queue)
    is_standing = has_import_rate(broker, queue)
    for node in _near_sources(broker, queue):
        if node.is_linked:
            if is_standing:
                if _is_asked(broker, queue, node):
                    continue  # The node hands over jobs as they come.
                note_asked(broker, queue, node, count)
            broker.stats.pulls_sent += 1
            broker.send(
                broker.sets.only(node), NEEDJOBS, (queue.name, count, flags | STANDING if is_standing else flags)
            )


def _near_sources(broker: Broker, queue: Queue) -> list[Node]:
    """Return the nearest of the nodes that recently had jobs, or all of them if the nearest gave none. Spec ZN5."""
    sources = list(queue.sources)
    if queue.adhoc_attempts > 1 or len(sources) < 2:
        return sources
    distances = [zones.distance(broker.me, node) for node in sources]
    nearest = min(distances)
    return [node for node, far in zip(sources, distances, strict=True) if far == nearest]


def is_near_enough(broker: Broker, queue: Queue, node: Node) -> bool:
    """Return whether a hint of this node may be answered now: no nearer node was asked within NEAR_MS. Spec ZN5."""
    if broker.now_ms - queue.pulled_ms >= NEAR_MS:
        return True
    return zones.distance(broker.me, node) <= queue.pulled_distance


def note_pull(broker: Broker, queue: Queue, node: Node) -> None:
    """Note that a hint of this node is answered with a pull."""
    queue.pulled_ms = broker.now_ms
    queue.pulled_distance = zones.distance(broker.me, node)


def _is_asked(broker: Broker, queue: Queue, node: Node) -> bool:
    """Return whether our standing pull at this node is in force and less than half used."""
    asked = None if queue.asked is None else queue.asked.get(node)
    return asked is not None and asked.left > asked.half and broker.now_ms - asked.asked_ms < RENEWED_MS


def note_asked(broker: Broker, queue: Queue, node: Node, count: int) -> None:
    """Note that this node has a standing pull at `node`."""
    if queue.asked is None:
        queue.asked = {}
    queue.asked[node] = Standing(count, broker.now_ms)


def asks_ahead(broker: Broker, queue: Queue) -> bool:
    """Return whether to ask for jobs before a client waits.

    Jobs come from other nodes, clients fetch them, and few are left.
    """
    if queue.paused or broker.is_leaving or broker.memory_level >= 2 or not has_import_rate(broker, queue):
        return False
    is_fetched = bool(queue.served_ms) and broker.now_ms - queue.served_ms < FETCHED_MS
    return (is_fetched or bool(queue.waiting)) and queue.length <= ask_count(broker, queue) // 2


def renew(broker: Broker) -> None:
    """Once per turn, renew standing pulls that are half used, if consumers still fetch jobs. Spec I10."""
    due = broker.consumers.renewals
    broker.consumers.renewals = {}
    for queue in due:
        if queue.is_dropped or not asks_ahead(broker, queue):
            continue
        count = ask_count(broker, queue)
        flags = kinds(queue) | STANDING
        for node, asked in list((queue.asked or {}).items()):
            if asked.left <= asked.half and node.is_linked:
                note_asked(broker, queue, node, count)
                broker.stats.pulls_sent += 1
                broker.send(broker.sets.only(node), NEEDJOBS, (queue.name, count, flags))


def ask_all_nodes(broker: Broker, queue: Queue) -> None:
    """Ask all linked nodes for jobs of a queue where clients wait. This is the fallback, every 30 seconds. Spec I8."""
    if broker.is_leaving or queue.paused or not (queue.waiting or broker.now_ms in (queue.waited_ms, queue.picky_ms)):
        return
    if queue.broadcast_at_ms and broker.now_ms - queue.broadcast_at_ms < BROADCAST_MS - BROADCAST_SLACK_MS:
        return
    queue.broadcast_at_ms = broker.now_ms
    if broker.cluster.linked:
        broker.stats.pulls_sent += 1
        broker.send(broker.cluster.linked, NEEDJOBS, (queue.name, 1, kinds(queue)))


def ask_for_waiting(broker: Broker, count_max: int) -> None:
    """Do a part of the walk that asks all nodes for each queue where clients wait. It starts every BROADCAST_MS."""
    for _ in range(count_max):
        name = next(broker.consumers.asking, None)
        if name is None:
            if broker.now_ms - broker.consumers.asked_all_ms >= BROADCAST_MS:
                broker.consumers.asked_all_ms = broker.now_ms
                broker.consumers.asking = iter([name for name, queue in broker.queues.items() if queue.waiting])
            return
        queue = broker.queues.get(name)
        if queue is not None:
            ask_all_nodes(broker, queue)
