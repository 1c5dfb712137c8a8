"""Tasks on the jobs of a queue on all nodes: QPURGE, QMOVE, QREDRIVE, QREBALANCE. TASK, TASK_STATE, SYNC, SYNCED.

The node that got the command *leads* the task. Each linked node, the leader included, has a *share*: the jobs that
count there (spec Z2). A share walks over all jobs of its node, a slice per tick, and *offers* up to OFFER_MAX of them
to the leader. The leader *grants* a number of the offered jobs. The share acts on these, a slice per tick, and offers
the next ones. So LIMIT and RATE apply to the whole cluster, and a share without a leader does nothing.

An *ordered* task acts on the jobs of all nodes in one order. Its shares offer the *places* of their first jobs, which
are numbers that say where a job is in that order. The leader merges the offers of all shares. Each walk keeps the first
CHOSEN_MAX places, so memory is bounded. Further walks find the places behind them (task_jobs.py). A share checks its
jobs again before each offer, and leaves out those that changed meanwhile. In other tasks, a share offers jobs as its
walk finds them, independently of other shares.

A rebalance has a plan (rebalance.py). Each share reports the length of its queue and whether its node takes jobs. Each
grant of the leader names a receiver. The share hands the jobs over to that node, and waits until all are answered. A
share ends when the plan moves no more jobs from its node. Spec ZN7, ZN8.

After each grant, a share asks all linked nodes whether they have handled its messages (SYNC), and waits for the
answers. So a slow node slows down the task, and no link accumulates the changes of a million jobs.

Messages may be lost. A share repeats its state once a second, and rounds are numbered. The leader repeats a grant if
the state shows that it was lost. A share whose leader is not linked ends. A leader gives up a node that is silent for
SILENCE_MS. Spec MV5, MV6, MV7, MV8.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import SYNC, SYNCED, TASK, TASK_STATE
from disque_py.core import stalling, task_jobs
from disque_py.core.broker import Broker
from disque_py.core.errors import CommandError
from disque_py.core.filters import PAIRS_MAX, Filter
from disque_py.core.rebalance import Balance
from disque_py.core.task_state import (
    ABORTED,
    BEGIN,
    CANCELED,
    COMMAND_NAMES,
    DONE,
    END,
    GO,
    GOES_ON,
    OFFER_MAX,
    OVER,
    REBALANCE,
    RUNNING,
    STATUSES,
    UNABLE,
    Helper,
    Share,
    Steps,
    Task,
    Work,
)
from disque_py.core.zones import zone_of

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client

# A node leads at most this many tasks at the same time, and has at most this many shares for each other leader.
RUNNING_MAX: Final = 16
FULL: Final = f"ERR too many tasks, at most {RUNNING_MAX}"
# Finished tasks are kept for this time, and up to this number of tasks.
KEPT_MS: Final = 3_600_000
KEPT_MAX: Final = 1_000
REPEAT_MS: Final = 1_000
SILENCE_MS: Final = 10_000
SYNC_MS: Final = 1_000
LIMIT_MAX: Final = (1 << 63) - 1
RATE_MAX: Final = 1_000_000
# With RATE, at most the jobs of this span are granted in one burst.
BURST_MS: Final = 100
NUMBER_MAX: Final = 1 << 53

# -- the leader -------------------------------------------------------------------------------------


def begin(broker: Broker, client: Client | None, work: Work) -> Task:
    """Start a task on all linked nodes. CommandError if too many tasks run."""
    tasks = broker.tasks
    _forget_old(broker)
    if len(tasks.running) >= RUNNING_MAX:
        raise CommandError(FULL)
    tasks.number += 1
    task_id = b"%b-%b" % (broker.me.name[:8], broker.rng.randbytes(8).hex().encode())
    task = Task(task_id, tasks.number, work, client)
    task.started_ms = broker.wall_ms
    task.level_ms = broker.now_ms
    task.level = 1_000
    tasks.known[task_id] = task
    tasks.running[task.number] = task
    linked = [node for node in broker.cluster.linked if _takes_part(work, node)]
    if _takes_part(work, broker.me):
        task.helpers[broker.me] = Helper(broker.now_ms)
    for node in linked:
        task.helpers[node] = Helper(broker.now_ms)
    task.missing = [
        node
        for node in broker.members()
        if not node.is_newcomer and node not in task.helpers and _takes_part(work, node)
    ]
    if linked:
        broker.send(broker.sets.others(broker.sets.of(linked)), TASK, _begin_item(task))
        broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_watch, broker, task))
    if broker.me in task.helpers:
        _begin_share(broker, broker.me, task.number, work)
    else:
        _go_on(broker, task)
    return task


def _takes_part(work: Work, node: Node) -> bool:
    return not work.zones or zone_of(node) in work.zones


def _begin_item(task: Task) -> tuple[Any, ...]:
    work = task.work
    pairs: list[bytes] = []
    if work.where is not None:
        for name, value in zip(work.where.names, work.where.values, strict=True):
            pairs += (name, value)
    return (task.number, BEGIN, work.command, work.queue, pairs, work.status, work.to, int(work.is_ordered))


def wait(broker: Broker, client: Client, task: Task) -> Generator[None, None, None]:
    """Wait for the end of a task, as the steps of an incremental command."""
    yield from stalling.until(broker, client, lambda: task.state_name != RUNNING)


def cancel(broker: Broker, task_id: bytes) -> bool:
    """Stop a task; jobs that it has changed stay changed. Return whether it was running. Spec MV8."""
    task = broker.tasks.known.get(task_id)
    if task is None or task.state_name != RUNNING:
        return False
    _end(broker, task, CANCELED)
    return True


def known(broker: Broker) -> list[Task]:
    """Return the tasks that this node leads, or has led within the last hour, oldest first."""
    _forget_old(broker)
    return list(broker.tasks.known.values())


def find(broker: Broker, task_id: bytes) -> Task | None:
    """Return the task with this id."""
    _forget_old(broker)
    return broker.tasks.known.get(task_id)


def count_of(broker: Broker, name: bytes) -> int:
    """Return the number of running tasks on this queue that this node leads."""
    return sum([task.work.queue == name for task in broker.tasks.running.values()])


def _forget_old(broker: Broker) -> None:
    tasks = broker.tasks
    for task_id, task in list(tasks.known.items()):
        if task.ended_ms and (broker.now_ms - task.ended_ms >= KEPT_MS or len(tasks.known) > KEPT_MAX):
            del tasks.known[task_id]


def on_task_state(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note the state of a node's share."""
    for number, at_round, offers, changed, failed, outcome, *more in items:
        for value in (number, at_round, changed, failed, outcome):
            if type(value) is not int or not 0 <= value <= NUMBER_MAX:
                raise ValueError("a task with a malformed number")
        places = _places_of(offers)
        task = broker.tasks.running.get(number)
        if task is None or sender not in task.helpers:
            # Also for a share that has ended: it repeats its state until it receives this.
            broker.send(broker.sets.only(sender), TASK, (number, END))
            _heard_late(broker, sender, number, changed, failed)
            continue
        if len(more) >= 2 and type(more[0]) is int and 0 <= more[0] <= NUMBER_MAX:
            _note_length(task, sender, more[0], takes=bool(more[1]))
        _heard(broker, task, sender, at_round, places, changed, failed, outcome)


def _heard_late(broker: Broker, node: Node, number: int, changed: int, failed: int) -> None:
    """Note the last numbers of a share whose task was canceled meanwhile."""
    for task in broker.tasks.known.values():
        helper = task.helpers.get(node) if task.number == number and task.state_name == CANCELED else None
        if helper is not None and changed >= helper.changed and failed >= helper.failed:
            helper.changed = changed
            helper.failed = failed


def _note_length(task: Task, node: Node, length: int, *, takes: bool) -> None:
    """Note the length that a node's queue had when its share began."""
    helper = task.helpers[node]
    if helper.length < 0:
        helper.length = length
        helper.takes = takes


def _places_of(offers: Any) -> list[tuple[int, int]] | None:
    """Return the offered places, or None if the share is still acting on jobs. ValueError if they are malformed."""
    if offers is None:
        return None
    if type(offers) not in (list, tuple) or len(offers) % 2 or len(offers) > 2 * OFFER_MAX:
        raise ValueError("malformed offers")
    if not all(type(value) is int for value in offers):
        raise ValueError("offers that are not numbers")
    return list(zip(offers[::2], offers[1::2], strict=True))


def _heard(
    broker: Broker,
    task: Task,
    node: Node,
    at_round: int,
    places: list[tuple[int, int]] | None,
    changed: int,
    failed: int,
    outcome: int,
) -> None:
    helper = task.helpers[node]
    helper.heard_ms = broker.now_ms
    helper.is_heard = True
    if helper.is_over:
        if node is not broker.me:
            broker.send(broker.sets.only(node), TASK, (task.number, END))
        return
    if changed >= helper.changed and failed >= helper.failed:
        helper.changed = changed
        helper.failed = failed
    if outcome != GOES_ON:
        _lose(broker, task, node, is_lost=outcome == UNABLE)
    elif places is None:
        helper.offers = None
    elif at_round == helper.round:
        helper.offers = places
    elif helper.granted and node is not broker.me:
        broker.send(broker.sets.only(node), TASK, _go_item(task, helper))
    _go_on(broker, task)


def _go_item(task: Task, helper: Helper) -> tuple[Any, ...]:
    return (task.number, GO, helper.round, helper.granted, b"" if helper.receiver is None else helper.receiver.id)


def _lose(broker: Broker, task: Task, node: Node, *, is_lost: bool) -> None:
    """End a node's share, because it is done or (`is_lost`) because the node can't finish it."""
    helper = task.helpers[node]
    helper.is_over = True
    helper.is_lost = is_lost
    helper.offers = None
    if node is not broker.me:
        broker.send(broker.sets.only(node), TASK, (task.number, END))


def _go_on(broker: Broker, task: Task) -> None:
    """Grant the jobs that LIMIT and RATE allow now, or end the task."""
    if task.state_name != RUNNING:
        return
    work = task.work
    going = [(node, helper) for node, helper in task.helpers.items() if not helper.is_over]
    if not going:
        mine = task.helpers.get(broker.me)
        _end(broker, task, ABORTED if mine is not None and mine.is_lost else DONE)
        return
    if work.command == REBALANCE:
        _grant_by_plan(broker, task, going)
        return
    ready = [(node, helper) for node, helper in going if helper.offers]
    if not ready or (work.is_ordered and len(ready) < len(going)):
        return
    allowed = LIMIT_MAX
    if work.limit:
        allowed = work.limit - task.changed
        if allowed <= 0:
            _end(broker, task, DONE)
            return
    if work.rate:
        allowed = min(allowed, _rated(broker, task))
        if allowed <= 0:
            return
    if work.is_ordered:
        _grant_in_order(broker, task, ready, min(allowed, OFFER_MAX))
        return
    for node, helper in ready:
        assert helper.offers is not None
        count = min(len(helper.offers), allowed)
        if count:
            allowed -= count
            _grant(broker, task, node, helper, count)


def _grant_in_order(broker: Broker, task: Task, ready: list[tuple[Node, Helper]], count: int) -> None:
    """Grant the first `count` jobs of the cluster: they are among the offers, because each node offers its first."""
    offered: list[tuple[tuple[int, int], int]] = []
    for number, (_, helper) in enumerate(ready):
        assert helper.offers is not None
        offered += [(place, number) for place in helper.offers]
    offered.sort()
    counts = [0] * len(ready)
    for _, number in offered[:count]:
        counts[number] += 1
    for number, (node, helper) in enumerate(ready):
        if counts[number]:
            _grant(broker, task, node, helper, counts[number])


def _grant_by_plan(broker: Broker, task: Task, going: list[tuple[Node, Helper]]) -> None:
    """Grant the jobs that the plan moves next. It is made when all nodes have reported their lengths. Spec ZN7."""
    if task.balance is None:
        if any(helper.length < 0 for _, helper in going):
            return
        known = {node: helper.length for node, helper in task.helpers.items() if helper.length >= 0}
        takers = [node for node, helper in task.helpers.items() if helper.takes and not helper.is_lost]
        task.balance = Balance(known, takers)
    balance = task.balance
    is_ending = False
    for node, helper in going:
        if helper.offers is None:
            continue
        for other, theirs in task.helpers.items():
            if theirs.is_lost:
                balance.deficit.pop(other, None)
        receiver = balance.receiver_of(node) if balance.surplus.get(node) else None
        if receiver is None:
            is_ending = True
            _lose(broker, task, node, is_lost=False)
            continue
        helper.receiver = receiver
        _grant(broker, task, node, helper, balance.grant(node, receiver, len(helper.offers)))
    if is_ending and task.state_name == RUNNING:
        _go_on(broker, task)


def _grant(broker: Broker, task: Task, node: Node, helper: Helper, count: int) -> None:
    helper.round += 1
    helper.granted = count
    helper.offers = None
    if task.work.rate:
        task.level -= 1_000 * count
    if node is broker.me:
        _granted(broker, broker.tasks.shares[node, task.number], helper.round, count, helper.receiver)
    else:
        broker.send(broker.sets.only(node), TASK, _go_item(task, helper))


def _rated(broker: Broker, task: Task) -> int:
    """Return how many jobs RATE allows now. If it allows none, schedule the next look."""
    rate = task.work.rate
    full = max(2_000, rate * BURST_MS)
    task.level = min(full, task.level + rate * (broker.now_ms - task.level_ms))
    task.level_ms = broker.now_ms
    if task.level < 1_000 and not task.is_timed:
        task.is_timed = True
        wanted = max(1_000, full // 4) - task.level
        broker.schedule.call_at(broker.now_ms + -(-wanted // rate), partial(_on_rate, broker, task))
    return task.level // 1_000


def _on_rate(broker: Broker, task: Task) -> None:
    task.is_timed = False
    _go_on(broker, task)


def _watch(broker: Broker, task: Task) -> None:
    """Send the task again to nodes that have not answered yet, and give up silent nodes."""
    if task.state_name != RUNNING:
        return
    for node, helper in list(task.helpers.items()):
        if helper.is_over or node is broker.me:
            continue
        if broker.now_ms - helper.heard_ms >= SILENCE_MS:
            _lose(broker, task, node, is_lost=True)
        elif not helper.is_heard:
            broker.send(broker.sets.only(node), TASK, _begin_item(task))
    broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_watch, broker, task))
    _go_on(broker, task)


def _end(broker: Broker, task: Task, state: bytes) -> None:
    assert task.state_name == RUNNING
    task.state_name = state
    task.ended_ms = broker.now_ms
    del broker.tasks.running[task.number]
    for node, helper in task.helpers.items():
        if node is broker.me:
            share = broker.tasks.shares.get((node, task.number))
            if share is not None:
                helper.changed, helper.failed = share.changed, share.failed
                _drop(broker, share)
        elif not helper.is_over:
            broker.send(broker.sets.only(node), TASK, (task.number, END))
    client = task.client
    if client is not None:
        task.client = None
        stalling.resume_client(broker, client)


def node_lost(broker: Broker, node: Node) -> None:
    """Handle a broken link to a node: end its share in our tasks, and our shares in the tasks that it leads."""
    tasks = broker.tasks
    for share in list(tasks.shares.values()):
        share.unsynced.pop(node, None)
        if share.leader is node:
            _drop(broker, share)
        elif not share.unsynced:
            task_jobs.wake(broker, share)
    for task in list(tasks.running.values()):
        helper = task.helpers.get(node)
        if helper is not None and not helper.is_over:
            _lose(broker, task, node, is_lost=True)
            _go_on(broker, task)


# -- a node's share ---------------------------------------------------------------------------------


def on_task(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Start, continue or end this node's share of a task."""
    tasks = broker.tasks
    for number, action, *fields in items:
        if type(number) is not int or not 0 <= number <= NUMBER_MAX or type(action) is not int:
            raise ValueError("a malformed task")
        share = tasks.shares.get((sender, number))
        if action == BEGIN:
            work = _work_of(fields)
            if share is not None:
                _tell(broker, share)
            elif broker.is_loading or work is None or _share_count(broker, sender) >= RUNNING_MAX:
                broker.send(broker.sets.only(sender), TASK_STATE, (number, 0, None, 0, 0, UNABLE))
            else:
                _begin_share(broker, sender, number, work)
        elif share is None:
            if action != END:  # A canceled share is forgotten, and its last state is answered with END.
                broker.stats.ignored("message for a task that is over")
        elif action == GO:
            at_round, count, *more = fields
            if type(at_round) is not int or type(count) is not int or not 0 < count <= OFFER_MAX:
                raise ValueError("a malformed grant")
            receiver = more[0] if more and type(more[0]) is bytes else b""
            _granted(broker, share, at_round, count, broker.cluster.known(receiver) if receiver else None)
        else:
            if share.outcome == GOES_ON:  # The task was canceled. The leader still counts what was changed.
                share.outcome = OVER
                _tell(broker, share)
            _drop(broker, share)


def _work_of(fields: list[Any]) -> Work | None:
    """Return the work that a leader asks for; None if only a later version knows it. ValueError if it is malformed."""
    command, queue, pairs, status, to, is_ordered, *_ = fields
    if type(command) is not int or type(is_ordered) is not int or type(pairs) not in (list, tuple):
        raise ValueError("a task without a command")
    if type(queue) is not bytes or type(to) is not bytes or type(status) is not bytes:
        raise ValueError("a task without queues")
    if len(pairs) % 2 or len(pairs) > 2 * PAIRS_MAX or not all(type(word) is bytes for word in pairs):
        raise ValueError("a task with malformed pairs")
    if command not in COMMAND_NAMES or status not in STATUSES:
        return None
    found: dict[bytes, bytes] = dict(zip(pairs[::2], pairs[1::2], strict=True))
    work = Work(command, queue, Filter(found) if found else None, status, to)
    work.is_ordered = bool(is_ordered)
    return work


def _share_count(broker: Broker, leader: Node) -> int:
    return sum([share.leader is leader for share in broker.tasks.shares.values()])


def _begin_share(broker: Broker, leader: Node, number: int, work: Work) -> None:
    share = Share(broker, leader, number, work, _steps)
    broker.tasks.shares[leader, number] = share
    broker.tasks.busy[share] = None
    if leader is not broker.me:
        broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_repeat, broker, share))


def _granted(broker: Broker, share: Share, at_round: int, count: int, receiver: Node | None) -> None:
    if not share.is_offering or at_round != share.round + 1:
        return  # The grant was repeated, and the share has already received it.
    share.granted = min(count, len(share.chosen) - share.at)
    share.receiver = receiver
    share.is_offering = False
    task_jobs.wake(broker, share)


def _drop(broker: Broker, share: Share) -> None:
    """Forget a share, because its task is over or its leader is gone."""
    tasks = broker.tasks
    share.is_dropped = True
    tasks.shares.pop((share.leader, share.number), None)
    tasks.busy.pop(share, None)
    for number in [number for number, waiting in tasks.syncs.items() if waiting is share]:
        del tasks.syncs[number]


def _repeat(broker: Broker, share: Share) -> None:
    """Send the share's state to its leader again, because a message may have been lost."""
    if not share.is_dropped:
        _tell(broker, share)
        broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_repeat, broker, share))


def _tell(broker: Broker, share: Share) -> None:
    """Send the leader this share's state and the places that it offers."""
    offers: list[int] | None = None
    if share.is_offering:
        offers = []
        for place in share.chosen[share.at : share.at + OFFER_MAX]:
            offers += place[:2]
    is_rebalance = share.work.command == REBALANCE
    takes = is_rebalance and task_jobs.takes_jobs(broker, share.work.queue)
    if share.leader is not broker.me:
        item: tuple[Any, ...] = (share.number, share.round, offers, share.changed, share.failed, share.outcome)
        if is_rebalance:
            item = (*item, share.length, int(takes))
        broker.send(broker.sets.only(share.leader), TASK_STATE, item)
        return
    task = broker.tasks.running.get(share.number)
    if task is not None:
        if is_rebalance:
            _note_length(task, broker.me, share.length, takes=takes)
        places = _places_of(offers)
        _heard(broker, task, broker.me, share.round, places, share.changed, share.failed, share.outcome)


def step(broker: Broker) -> None:
    """Do one slice of one share. The other shares follow in the next ticks."""
    busy = broker.tasks.busy
    share = next(iter(busy))
    del busy[share]
    busy[share] = None  # Move it to the end.
    if next(share.steps, broker) is broker or share.is_idle:
        busy.pop(share, None)


def _steps(broker: Broker, share: Share) -> Steps:
    while True:
        yield from task_jobs.choose(broker, share)
        if not share.chosen:
            break
        while share.at < len(share.chosen):
            passed = share.at
            if task_jobs.tell_errored(broker, share):
                yield from _synced(broker, share)
            task_jobs.pass_changed(broker, share)
            if share.at >= min(passed + OFFER_MAX, len(share.chosen)):
                yield  # All of these jobs have changed.
                continue
            share.is_offering = True
            share.is_idle = True
            _tell(broker, share)  # If this node is the leader, it may grant jobs within this call.
            while share.is_idle:
                yield
            yield from (
                task_jobs.give(broker, share)
                if share.work.command == REBALANCE
                else task_jobs.act_on_all(broker, share)
            )
            if share.outcome != GOES_ON:
                _tell(broker, share)
                return
            share.round += 1
            share.granted = 0
            yield from _synced(broker, share)
        if share.work.is_ordered and not share.was_cut:
            break
    share.outcome = OVER
    _tell(broker, share)


# -- waiting for other nodes ------------------------------------------------------------------------


def _synced(broker: Broker, share: Share) -> Steps:
    """Wait until all linked nodes have handled the changes so far, or for at most SYNC_MS."""
    linked = broker.cluster.linked
    if not linked:
        return
    tasks = broker.tasks
    tasks.sync_number += 1
    number = tasks.sync_number
    share.unsynced = dict.fromkeys(linked)
    tasks.syncs[number] = share
    broker.send(linked, SYNC, number)
    until_ms = broker.now_ms + SYNC_MS
    broker.schedule.call_at(until_ms, partial(task_jobs.wake, broker, share))
    while share.unsynced and broker.now_ms < until_ms:
        share.is_idle = True
        yield
    tasks.syncs.pop(number, None)
    share.unsynced = {}


def on_sync(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Answer that all earlier messages of the sender were handled."""
    for number in items:
        if type(number) is not int:
            raise ValueError("a malformed number")
        broker.send(broker.sets.only(sender), SYNCED, number)


def on_synced(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that a node has handled all changes."""
    for number in items:
        share = broker.tasks.syncs.get(number) if type(number) is int else None
        if share is None:
            broker.stats.ignored("answer to a question that is over")
            continue
        share.unsynced.pop(sender, None)
        if not share.unsynced:
            task_jobs.wake(broker, share)
