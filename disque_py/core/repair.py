"""The repair of lost copies: which copies are suspect, and which jobs take a turn, and when. TAKETURN.

A node's copies are *suspect* in three cases:

- The node was forgotten here.
- A new process of the node is linked, which this node has not asked yet.
- The node has been `fail` for `repair-after`.

Then a *walk* visits all jobs that have the node in their holder set, a part per tick. Each of these jobs takes a *turn*
(repair_turns.py): this holder counts the job's copies and makes the missing ones.

The holders of a job take turns in the order of their node ids. The first holder begins immediately, and each further
one TURN_MS later. So the walk has two passes: the jobs of which this node is the first holder, then all others.

Nothing is stored for jobs whose copies are not suspect. At most a few thousand jobs take turns at a time, and the walk
waits for them. repair_state.py has the state. Spec RC1, RC2, RC3, RC10, RC11.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from cluster_bus.node import FAIL, LEAVING, Node
from disque_py import event_format
from disque_py.core import repair_turns
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.job import WAIT_REPL, Job
from disque_py.core.repair_state import Repairs, Walk
from disque_py.core.repair_turns import TURN_MS, TURNS_PER_PART, in_scope
from disque_py.core.versions import REPAIR

# A process that is linked for the first time is asked after this time, or after `repair-after` if that is shorter. By
# then most nodes of a starting cluster are linked.
FIRST_ASK_MS: Final = 10_000
# If no node could take a job's copies, the job takes a turn again after this time, plus a millisecond per such job.
SHORT_MS: Final = 60_000
# It does so earlier if the cluster has changed, but not before this time, because nodes often come and go together.
CHANGED_MS: Final = 2_000
# The pass over all other jobs continues while fewer than this many jobs take turns, the first pass below twice that.
TURNS_MAX: Final = 1_000
# The number of jobs and shards that are visited per tick, which takes about half a millisecond.
LOOKED_PER_PART: Final = 1_000
# A job that takes a turn counts as this many.
LOOKED_PER_TURN: Final = 5
LOOK_MS: Final = 1_000


# -- suspicion ----------------------------------------------------------------------------------------


def suspect(broker: Broker, node: Node, why: str) -> None:
    """Start a walk in which all jobs with this node in their holder set take turns."""
    repairs = broker.repairs
    if not broker.settings.repair_after:
        return
    _begin_cycle(repairs)
    for known, reason in ((node, why), *repairs.again.items()):
        repairs.cycle.setdefault(known, reason)
        repairs.counting.add(known, SHARDS)
        repairs.first.left.pop(known, None)
        repairs.rest.left.pop(known, None)
    repairs.again = {}
    repairs.since_ms = broker.now_ms
    if node is not broker.me:
        _begin_anew(broker, node)


def _begin_cycle(repairs: Repairs) -> None:
    if not repairs.cycle:
        repairs.is_told = False
        repairs.has_short = False
        repairs.found = repairs.passed = repairs.made = repairs.missing = 0


def forgotten(broker: Broker, node: Node) -> None:
    """Suspect the copies of a node immediately, because it was forgotten here."""
    repairs = broker.repairs
    repairs.runs.pop(node, None)
    repairs.due.pop(node, None)
    repairs.failed.pop(node, None)
    repairs.presumed.pop(node, None)
    broker.era += 1
    suspect(broker, node, "forgotten")


def on_link_up(broker: Broker, node: Node) -> None:
    """Plan to ask a process for its copies if this node has not asked it yet.

    Ask it again if it could not be asked for a while, because its copies were then counted (`presumed`) or not counted
    (`failed`) without an answer.
    """
    repairs = broker.repairs
    now_ms = broker.now_ms
    if node.unlinked_ms and now_ms - node.unlinked_ms > broker.membership.node_timeout_ms:
        broker.era += 1
    if node.protocol < REPAIR:
        return
    if repairs.runs.get(node) != node.run:
        repairs.runs[node] = node.run
        repairs.due[node] = now_ms + min(FIRST_ASK_MS, broker.settings.repair_after * 1000)
    elif node in repairs.due:
        pass
    elif node in repairs.presumed or node in repairs.failed:
        repairs.due[node] = now_ms
    repairs.presumed.pop(node, None)


def on_link_lost(broker: Broker, node: Node) -> None:
    """Restart the turns of the node's jobs without answers, because its next process may have no copies."""
    for question in broker.repairs.questions.values():
        question.unanswered.pop(node, None)
    _begin_anew(broker, node)


def _begin_anew(broker: Broker, node: Node) -> None:
    repairs = broker.repairs
    for job, turn in repairs.turns.items():
        if node in job.holders or node in turn.unanswered:
            repair_turns.wait(turn, broker.now_ms + TURN_MS * repair_turns.position(broker, job.holders))


def look(broker: Broker, elapsed_ms: int) -> None:
    """Look at nodes and turns, ten times a second."""
    repairs = broker.repairs
    now_ms = broker.now_ms
    recoveries = broker.membership.recoveries
    if elapsed_ms > broker.membership.node_timeout_ms or recoveries != repairs.healed:
        repairs.healed = recoveries
        broker.era += 1  # This node slept, or could not hear a node. Other nodes may have made copies meanwhile.
    if broker.is_loading:
        return
    if not broker.settings.repair_after:
        if repairs.is_on:
            broker.repairs = Repairs()
            broker.repairs.named = repairs.named
            broker.repairs.runs = repairs.runs
            broker.repairs.healed = repairs.healed
        return
    if not repairs.is_on:
        repairs.is_on = True
        begin_ms = now_ms + min(FIRST_ASK_MS, broker.settings.repair_after * 1000)
        repairs.due[broker.me] = begin_ms
        for node in broker.cluster.linked:
            if node.protocol >= REPAIR:
                repairs.due.setdefault(node, begin_ms)
    if now_ms - repairs.looked_ms >= LOOK_MS or repairs.due:
        repairs.looked_ms = now_ms
        _look_at_nodes(broker)
    _earn(broker)
    if broker.is_leaving:
        return
    if repairs.later:
        _look_at_later(broker)
    if repairs.turns:
        repair_turns.look(broker)
    if repairs.cycle and not repairs.turns and not repairs.is_walking:
        _end_cycle(broker)
    if repairs.again and not repairs.cycle:
        has_changed = repairs.again_epoch != broker.cluster.epoch
        if now_ms >= repairs.again_ms or (has_changed and now_ms - repairs.ended_ms >= CHANGED_MS):
            node, why = next(iter(repairs.again.items()))
            suspect(broker, node, why)


def _look_at_nodes(broker: Broker) -> None:
    repairs = broker.repairs
    now_ms = broker.now_ms
    for node, due_ms in list(repairs.due.items()):
        if due_ms > now_ms:
            continue
        if node is broker.me:
            # The journal's holder sets do not contain forgotten nodes. So each of our jobs is looked at once.
            del repairs.due[node]
            suspect(broker, node, "this node has started")
        elif node.is_linked:
            del repairs.due[node]
            suspect(broker, node, "its copies are asked for")
    after_ms = broker.settings.repair_after * 1000
    for node in broker.cluster.nodes.values():
        if not node.flags & FAIL:
            if node in repairs.failed:
                del repairs.failed[node]
        elif node not in repairs.failed and now_ms - node.fail_at_ms >= after_ms:
            repairs.failed[node] = None
            suspect(broker, node, "failed")


def _earn(broker: Broker) -> None:
    """Add the copies that `repair-rate` allows for the time since the last tick, in thousandths."""
    repairs = broker.repairs
    rate = broker.settings.repair_rate
    elapsed_ms = min(broker.now_ms - repairs.ticked_ms, 1_000)
    repairs.ticked_ms = broker.now_ms
    repairs.tokens = min(repairs.tokens + rate * elapsed_ms, max(1_000, rate * 200))


def _end_cycle(broker: Broker) -> None:
    repairs = broker.repairs
    if repairs.is_told:
        repair_turns.tell(broker, event_format.REPAIR_FINISHED, "repair-finished")
    if repairs.has_short:
        repairs.again = repairs.cycle
        repairs.again_ms = broker.now_ms + SHORT_MS + repairs.missing
        repairs.again_epoch = broker.cluster.epoch
    repairs.ended_ms = broker.now_ms
    repairs.cycle = {}
    repairs.found = repairs.passed = 0


# -- walking ------------------------------------------------------------------------------------------


def step(broker: Broker) -> bool:
    """Do a bounded part of the turns and walks. Return whether the next part may follow immediately."""
    repairs = broker.repairs
    if broker.is_loading or broker.is_leaving:
        return False
    if repairs.to_go_on:
        for job in list(islice(repairs.to_go_on, TURNS_PER_PART)):
            del repairs.to_go_on[job]
            repair_turns.continue_turn(broker, job)
        return True
    if not repairs.is_walking:
        return False
    looked = 0
    while looked < LOOKED_PER_PART:
        if repairs.counting.left:
            looked += _count_shard(broker)
        elif repairs.first.left and len(repairs.turns) < 2 * TURNS_MAX:
            looked += _walk_first(broker)
        elif repairs.rest.left and not repairs.first.left and len(repairs.turns) < TURNS_MAX:
            looked += _walk_rest(broker)
        else:
            return False
    return True


def _shard(broker: Broker, walk: Walk) -> list[Job]:
    walk.shard = (walk.shard + 1) % SHARDS
    shard = broker.shards[walk.shard]
    return list(shard.values()) if shard else []


def _count_shard(broker: Broker) -> int:
    repairs = broker.repairs
    walk = repairs.counting
    jobs = _shard(broker, walk)
    names = walk.names
    for job in jobs:
        if names(job.holders) and in_scope(broker, job):
            repairs.found += 1
    for node in walk.passed():
        epoch = broker.cluster.epoch
        repairs.first_epoch = epoch if not repairs.first.left or repairs.first_epoch == epoch else -1
        repairs.first.add(node, SHARDS)
    return 1 + len(jobs)


def _walk_first(broker: Broker) -> int:
    """Give turns to those jobs of a shard that this node repairs first."""
    repairs = broker.repairs
    walk = repairs.first
    jobs = _shard(broker, walk)
    taken = 0
    for job in jobs:
        if not walk.names(job.holders):
            continue
        if in_scope(broker, job):
            repairs.passed += 1
            if job not in repairs.turns and not repair_turns.position(broker, job.holders):
                repair_turns.ask(broker, job, repair_turns.take(broker, job, broker.now_ms))
                taken += LOOKED_PER_TURN
        elif job.state == WAIT_REPL and job.terms.retry_ms and job.terms.replicate > 1:
            repairs.later[job] = None
    for node in walk.passed():
        is_same = not repairs.rest.left or repairs.rest_epoch == repairs.first_epoch
        repairs.rest_epoch = repairs.first_epoch if is_same else -1
        repairs.rest.add(node, SHARDS)
    return 1 + len(jobs) + taken


def _look_at_later(broker: Broker) -> None:
    """Give turns to jobs that may lack a copy, but could not take a turn when that was noted."""
    repairs = broker.repairs
    if len(repairs.turns) >= 2 * TURNS_MAX:
        return
    for job in list(islice(repairs.later, LOOKED_PER_PART)):
        del repairs.later[job]
        if job.state == WAIT_REPL or job in repairs.turns:
            repairs.later[job] = None  # Visit it again after all others. A turn may have counted a copy that is gone.
        elif in_scope(broker, job):
            _begin_cycle(repairs)
            repairs.cycle.setdefault(
                broker.me, "a job that was being added, about to end, or of a node that left, may lack a copy"
            )
            repair_turns.take(broker, job, broker.now_ms + TURN_MS * repair_turns.position(broker, job.holders))


def _walk_rest(broker: Broker) -> int:
    """Give turns to those jobs of a shard that another holder repairs first.

    If the cluster has changed since the first pass, give turns to all jobs of the shard, because the first holder of
    some may be another node by now.
    """
    repairs = broker.repairs
    walk = repairs.rest
    jobs = _shard(broker, walk)
    taken = 0
    is_same = repairs.rest_epoch == broker.cluster.epoch
    for job in jobs:
        if walk.names(job.holders) and job not in repairs.turns and in_scope(broker, job):
            position = repair_turns.position(broker, job.holders)
            if position or not is_same:
                due_ms = repairs.since_ms + TURN_MS * position
                turn = repair_turns.take(broker, job, due_ms)
                if due_ms <= broker.now_ms:
                    repair_turns.ask(broker, job, turn)
                taken += LOOKED_PER_TURN
    walk.passed()
    return 1 + len(jobs) + taken


# -- other nodes --------------------------------------------------------------------------------------


def on_taketurn(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Take the turn of jobs with too few copies, as another holder asks us to.

    The sender comes after us in the order of turns, or it leaves.
    """
    repairs = broker.repairs
    if not broker.settings.repair_after or broker.is_leaving:
        return
    for ids, *_ in items:
        for job_id in repair_turns.ids_of(ids):
            job = broker.find(job_id)
            if job is None or job in repairs.turns or not in_scope(broker, job):
                continue
            if sender.flags & LEAVING:
                repairs.later[job] = None  # There may be many such jobs, and the sender can't repeat the request.
            elif len(repairs.turns) < 3 * TURNS_MAX:
                if not repairs.cycle:
                    suspect(broker, sender, "it says that copies are missing")
                repair_turns.ask(broker, job, repair_turns.take(broker, job, broker.now_ms))


# -- figures for users --------------------------------------------------------------------------------


def waiting_count(broker: Broker) -> int:
    """Return the number of jobs that may lack a copy: those that the walk must still visit, or that take a turn."""
    repairs = broker.repairs
    return max(0, repairs.found - repairs.passed) + len(repairs.turns)


def is_repairing(broker: Broker, job: Job) -> bool:
    """Return whether the job takes a turn now or will take one in this walk."""
    repairs = broker.repairs
    return job in repairs.turns or (
        in_scope(broker, job) and any(walk.names(job.holders) for walk in (repairs.counting, repairs.first))
    )
