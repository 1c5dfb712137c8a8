"""Firing of schedules: one node adds one job for each tick.

A tick is a planned moment of a schedule. Its job has a KEY made of the schedule's name, its generation and the tick. So
if several nodes fire the same tick and can ask each other, they make one job (keying.py).

Every node that knows a schedule may fire it. The nodes are ranked by a hash of the name and their ids. The first node
fires when its wall clock reaches the tick. The k-th node fires (k - 1) x TURN_MS later, unless it has heard of the tick
by then. A leaving node does not fire.

If the cluster has voters, the firing node takes the claim of the tick first. So in a partition, only the side with a
majority fires.

When the job has its copies, the tick is recorded. The progress of a schedule is cluster-wide state (settings_sync.py),
so other nodes hear of it. The ticks of one schedule are fired one after the other. A try that failed is repeated. A
tick that is late by LATE_MS or more is missed. CATCHUP decides which missed ticks are fired after all. Ticks between
the last recorded tick and the one that is recorded now also count as missed.

`step` does the work that is due. It is called ten times a second, and at the moment of the next tick. It works in
parts, so that ten thousand schedules that are due at midnight do not stop the node. Spec SD4, SD5, SD6, SD7, SD8, SD9,
SD11.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import Final

from cluster_bus.node import LEAVING
from disque_py.core import claiming, own_addjob, settings_sync
from disque_py.core.broker import Broker
from disque_py.core.claiming import Result, WantedClaim
from disque_py.core.command_entry import Handler
from disque_py.core.cron import Ticks
from disque_py.core.grants import GRANTED
from disque_py.core.ids import is_valid_id
from disque_py.core.job import ACKED
from disque_py.core.queue_settings import SCHEDULE, state_key
from disque_py.core.recurring import (
    PAUSE,
    PROGRESS,
    SPEC,
    Firing,
    Progress,
    Recurring,
    Schedule,
    unpack_definition,
    unpack_pause,
    unpack_progress,
)
from disque_py.log_lines import tell
from disque_py.resp.replies import error

# For an unknown definition, other nodes are asked at most once in this time.
ASK_MS: Final = 1_000
# A node waits this long for each node that ranks before it.
TURN_MS: Final = 500
# A node that has stood still for this long first hears which ticks others have fired meanwhile.
STOPPED_MS: Final = 5_000
# A tick that is late by less than this is never missed.
LATE_MS: Final = 60_000
# How long the ADDJOB waits for copies; after which span a failed try is repeated; the same for a late tick.
ADD_MS: Final = 2_000
RETRY_MS: Final = 1_000
RETRY_LATE_MS: Final = 5_000
# The most missed ticks that CATCHUP all fires.
CAUGHT_UP_MAX: Final = 1_000
# The lease of a tick's claim. It is longer than one try to make the job takes, and a failed try releases the claim. If
# the firing node dies in between, the tick waits until the lease is over.
LEASE_MS: Final = 10_000
CLAIM_PREFIX: Final = b"T"
# The most schedules that are planned, and that are fired, in one step.
PLANNED_PER_STEP: Final = 50
FIRED_PER_STEP: Final = 25
# The most firings under way at a time.
FIRING_MAX: Final = 200
# The interval at which timers.py calls `step`.
STEP_MS: Final = 100

HELD_ELSEWHERE: Final = "NOQUORUM another node has the claim of this tick"
KEY_PREFIX: Final = b"x-disque-tick:"
META_SCHEDULE: Final = b"x-disque-schedule"
META_TICK: Final = b"x-disque-tick"


def install(broker: Broker, addjob: Handler) -> None:
    """Begin to follow the schedules that this node knows. `addjob` is the handler of ADDJOB."""
    broker.recurring.addjob = addjob
    broker.queue_settings.watch(SCHEDULE, partial(_changed, broker))


def _changed(broker: Broker, name: bytes, fields: dict[bytes, bytes]) -> None:
    """Take over the state of a schedule. It comes from another node, so it may be invalid.

    The fields of a new definition arrive one after the other, so each call judges the progress anew.
    """
    recurring = broker.recurring
    packed = fields.get(SPEC, b"")
    progress = unpack_progress(fields.get(PROGRESS, b""))
    schedule = recurring.known.get(name)
    if schedule is None or schedule.packed != packed:
        definition = unpack_definition(packed) if packed else None
        if definition is None:
            recurring.known.pop(name, None)
            _look_for_definition(recurring, name, progress)
            return
        schedule = recurring.known[name] = Schedule(name, definition, packed)
    schedule.is_paused, floor_ms = unpack_pause(fields.get(PAUSE, b""))
    schedule.floor_ms = max(schedule.floor_ms, floor_ms)
    recurring.fallen.pop(name, None)
    if schedule.merge(progress):
        recurring.fallen[name] = None
    _look_for_definition(recurring, name, progress)
    recurring.unplanned[name] = None
    _wake(broker, 1)


# -- time ---------------------------------------------------------------------------------------------------------


def step(broker: Broker) -> None:
    """Do the work that is due: handle replies of ADDJOBs, compute next ticks, fire ticks."""
    recurring = broker.recurring
    if 0 < recurring.stepped_ms <= broker.now_ms - STOPPED_MS and broker.members():
        recurring.wait_until_ms = broker.now_ms + settings_sync.START_MS
    recurring.stepped_ms = broker.now_ms
    while recurring.answered:
        _on_answer(broker, recurring.answered.pop())
    if recurring.strange:
        _ask_for_definitions(broker)
    if not recurring.known:
        return
    for name in [name for name in recurring.fallen if name not in recurring.strange]:
        del recurring.fallen[name]  # The others are told when their definitions are asked for again.
        schedule = recurring.known.get(name)
        if schedule is not None:
            _tell(broker, schedule)
    for name in list(recurring.unplanned)[:PLANNED_PER_STEP]:
        del recurring.unplanned[name]
        schedule = recurring.known.get(name)
        if schedule is not None:
            _plan(broker, schedule)
    if recurring.unplanned:
        _wake(broker, 1)
    if _may_fire(broker):
        for _ in range(FIRED_PER_STEP):
            schedule = recurring.take_due(broker.wall_ms) if recurring.firing_count < FIRING_MAX else None
            if schedule is None:
                break
            _consider(broker, schedule)
        due_ms = recurring.next_due_ms()
        if due_ms and due_ms - broker.wall_ms <= 2 * STEP_MS and recurring.firing_count < FIRING_MAX:
            _wake(broker, max(1, due_ms - broker.wall_ms))


def _look_for_definition(recurring: Recurring, name: bytes, progress: Progress | None) -> None:
    """Note whether a progress belongs to a definition that is not known here."""
    schedule = recurring.known.get(name)
    if progress is None or (schedule is not None and schedule.definition.generation == progress.generation):
        recurring.strange.pop(name, None)
    else:
        recurring.strange[name] = None


def _ask_for_definitions(broker: Broker) -> None:
    """Ask other nodes for their settings if they record a progress of a definition that is not known here.

    A definition is sent by the node that made it. That node may never have been linked with this one, and be gone.
    Until both know the same definition, each would send its own progress again and again.
    """
    recurring = broker.recurring
    if broker.now_ms >= recurring.ask_at_ms:
        recurring.ask_at_ms = broker.now_ms + ASK_MS
        recurring.strange.clear()
        settings_sync.ask_all(broker)


def _may_fire(broker: Broker) -> bool:
    """Return whether this node may fire now: it serves clients, and has heard of the progress on other nodes."""
    return not (
        broker.is_loading
        or broker.is_leaving
        or broker.journal.disk_level
        or broker.queue_settings.exchange.wait_until_ms > broker.now_ms
        or broker.recurring.wait_until_ms > broker.now_ms
    )


def _wake(broker: Broker, span_ms: int) -> None:
    """Call `step` after a span, unless an earlier call is planned."""
    recurring = broker.recurring
    at_ms = broker.now_ms + span_ms
    if not broker.now_ms < recurring.woken_ms <= at_ms:
        recurring.woken_ms = at_ms
        broker.schedule.call_at(at_ms, partial(_woken, broker, at_ms))


def _woken(broker: Broker, at_ms: int) -> None:
    if broker.recurring.woken_ms == at_ms:
        broker.recurring.woken_ms = 0
        step(broker)


def _plan(broker: Broker, schedule: Schedule, *, is_ours: bool = False) -> None:
    """Compute a schedule's next tick.

    is_ours   whether this node fired the last tick. If the next one is also due, it does not wait for its turn again
    """
    if schedule.ticks is None:
        schedule.ticks = broker.recurring.ticks_of(schedule.definition, broker.host.time_zone)
    ticks = schedule.ticks
    next_ms = ticks.after(schedule.base_ms) if ticks is not None and not schedule.is_paused else 0
    if next_ms != schedule.next_ms:
        schedule.next_ms = next_ms
        schedule.fails = 0
        schedule.has_waited = is_ours and schedule.has_waited and 0 < next_ms <= broker.wall_ms
        broker.recurring.set_due(schedule, next_ms)
    elif not schedule.due_serial and not schedule.firing:
        broker.recurring.set_due(schedule, next_ms)


def rank_of(broker: Broker, name: bytes) -> int:
    """Return how many nodes rank before this one."""
    mine = _hash(name, broker.me.id)
    others = [node for node in broker.members() if not node.flags & LEAVING]
    return sum(1 for node in others if _hash(name, node.id) < mine)


def _hash(name: bytes, node_id: bytes) -> bytes:
    return blake2b(name + node_id, digest_size=8).digest()


# -- ticks --------------------------------------------------------------------------------------------------------


def _consider(broker: Broker, schedule: Schedule) -> None:
    """Handle the next tick of a schedule: fire it, wait for this node's turn, or record it without a job."""
    ticks = schedule.ticks
    if schedule.firing is not None or not schedule.next_ms or ticks is None:
        return  # It is planned again when the present firing is over.
    if schedule.name in broker.recurring.unplanned:
        # News has come since it was planned, and this step has not planned it again yet.
        del broker.recurring.unplanned[schedule.name]
        _plan(broker, schedule)
        return
    if not schedule.has_waited:
        schedule.has_waited = True
        rank = rank_of(broker, schedule.name)
        if rank:
            at_ms = schedule.next_ms + rank * TURN_MS  # If that is past, wait from now on: late ticks have turns, too.
            broker.recurring.set_due(schedule, at_ms if at_ms > broker.wall_ms else broker.wall_ms + rank * TURN_MS)
            return
    tick_ms = schedule.next_ms
    late_ms = broker.wall_ms - LATE_MS
    if tick_ms <= late_ms:
        catchup = schedule.definition.catchup
        if catchup == b"none":
            _record(broker, schedule, ticks.last(schedule.base_ms, late_ms), b"")
            return
        if catchup == b"last":
            tick_ms = ticks.last(schedule.base_ms, late_ms)
        else:
            tick_ms = _oldest_caught_up(ticks, schedule.base_ms, late_ms)
    if schedule.definition.overlap == b"skip" and _is_alive(broker, schedule.progress.job_id):
        _record(broker, schedule, tick_ms, b"")
        return
    _fire(broker, schedule, tick_ms)


def _oldest_caught_up(ticks: Ticks, base_ms: int, until_ms: int) -> int:
    """Return the oldest tick after `base_ms` from which at most CAUGHT_UP_MAX ticks follow up to `until_ms`."""
    span_ms = CAUGHT_UP_MAX * 1_000
    while until_ms - span_ms > base_ms and ticks.count(until_ms - span_ms, until_ms) <= CAUGHT_UP_MAX:
        span_ms *= 2
    low_ms, high_ms = max(base_ms, until_ms - span_ms), until_ms
    if ticks.count(low_ms, until_ms) <= CAUGHT_UP_MAX:
        return ticks.after(low_ms)
    while high_ms - low_ms > 1:  # Too many ticks follow `low_ms`, and not too many follow `high_ms`.
        middle_ms = (low_ms + high_ms) // 2
        if ticks.count(middle_ms, until_ms) > CAUGHT_UP_MAX:
            low_ms = middle_ms
        else:
            high_ms = middle_ms
    return ticks.after(high_ms)


def _is_alive(broker: Broker, job_id: bytes) -> bool:
    """Return whether a job is neither over nor errored nor a dead letter, as far as this node knows."""
    job = broker.find(job_id) if job_id and is_valid_id(job_id) else None
    if job is None or job.state == ACKED:
        return False
    part = job.part
    return part is None or not (part.is_errored or part.is_dead_letter)


def _record(broker: Broker, schedule: Schedule, tick_ms: int, job_id: bytes) -> None:
    """Record a tick, with its job if it has one. Ticks before it that are not recorded are missed."""
    ticks = schedule.ticks
    assert ticks is not None
    assert tick_ms > schedule.progress.last_ms
    before = schedule.progress
    passed = max(1, ticks.count(schedule.base_ms, tick_ms))
    fired = 1 if job_id else 0
    schedule.progress = Progress(
        before.generation,
        tick_ms,
        job_id or before.job_id,
        before.fired + fired,
        before.missed + passed - fired,
    )
    _tell(broker, schedule)
    broker.recurring.unplanned.pop(schedule.name, None)
    _plan(broker, schedule, is_ours=True)


def _tell(broker: Broker, schedule: Schedule) -> None:
    """Write the progress to disk, and tell other nodes."""
    key = state_key(SCHEDULE, schedule.name)
    if not settings_sync.note(broker, key, [(PROGRESS, schedule.progress.pack())]):
        broker.stats.ignored("progress of a schedule that has no room")


# -- jobs ---------------------------------------------------------------------------------------------------------


def _fire(broker: Broker, schedule: Schedule, tick_ms: int) -> None:
    """Make the job of a tick, under a claim if there are voters."""
    firing = schedule.firing = Firing(schedule.name, schedule.definition.generation, tick_ms)
    broker.recurring.firing_count += 1
    if broker.claims.memory.list is None:
        _add(broker, schedule, firing)
    else:
        # A release may have been lost, so this node's own grant is replaced.
        claiming.claim(broker, _wanted_claim(broker, firing), partial(_claimed, broker, firing), replaces=True)


def _wanted_claim(broker: Broker, firing: Firing) -> WantedClaim:
    voter_list = broker.claims.memory.list
    lease_ms = min(LEASE_MS, voter_list.lease_max_ms) if voter_list is not None else LEASE_MS
    return WantedClaim(CLAIM_PREFIX + _key_of(firing), b"%b:%b" % (broker.me.name, broker.run.hex().encode()), lease_ms)


def _key_of(firing: Firing) -> bytes:
    return b"%b%b:%d:%d" % (KEY_PREFIX, firing.name, firing.generation, firing.tick_ms)


def _claimed(broker: Broker, firing: Firing, result: Result) -> None:
    if result.outcome == GRANTED:
        firing.fence = result.fence
        schedule = _wanted(broker, firing)
        if schedule is not None and result.until_ms > broker.now_ms:
            _add(broker, schedule, firing)
            return
    firing.reply = error(claiming.REASONS.get(result.outcome, HELD_ELSEWHERE))
    broker.recurring.answered.append(firing)
    _wake(broker, 1)


def _wanted(broker: Broker, firing: Firing) -> Schedule | None:
    """Return the schedule of a firing; None if its tick no longer has to be fired."""
    schedule = broker.recurring.known.get(firing.name)
    if schedule is None or schedule.firing is not firing or schedule.is_paused:
        return None
    return schedule if firing.tick_ms > schedule.base_ms else None


def _add(broker: Broker, schedule: Schedule, firing: Firing) -> None:
    """Run the ADDJOB of a tick, as if a client had sent it."""
    definition = schedule.definition
    argv = [b"ADDJOB", definition.queue, definition.body, b"%d" % ADD_MS, b"KEY", _key_of(firing)]
    argv += [b"META", META_SCHEDULE, firing.name, b"META", META_TICK, b"%d" % firing.tick_ms, *definition.options]
    broker.recurring.clients[firing] = own_addjob.add(broker, argv, partial(_answered, broker, firing))


def _answered(broker: Broker, firing: Firing, reply: bytes) -> None:
    """Note the reply to the ADDJOB of a tick. `step` handles it."""
    firing.reply = reply
    broker.recurring.clients.pop(firing, None)
    broker.recurring.answered.append(firing)


def _on_answer(broker: Broker, firing: Firing) -> None:
    """Record a tick if its job was made, else try again later."""
    broker.recurring.firing_count -= 1
    reply = firing.reply
    is_added = reply.startswith(b"+")
    if firing.fence and not is_added:
        claiming.release(broker, _wanted_claim(broker, firing), firing.fence, _released)
    schedule = broker.recurring.known.get(firing.name)
    if schedule is None or schedule.firing is not firing:
        return  # The schedule was deleted or replaced.
    schedule.firing = None
    if is_added and firing.tick_ms > schedule.progress.last_ms:
        _record(broker, schedule, firing.tick_ms, reply[1:-2])
        return
    if not is_added and HELD_ELSEWHERE.encode() not in reply:
        schedule.fails += 1
        if schedule.fails == 1:
            name, reason = firing.name.decode("utf-8", "replace"), reply[1:-2].decode("utf-8", "replace")
            tell(broker.host, "schedule-failed", schedule=name, tick_ms=firing.tick_ms, reason=reason)
    is_late = firing.tick_ms <= broker.wall_ms - LATE_MS
    _plan(broker, schedule)
    if not is_added and schedule.next_ms:
        at_ms = broker.wall_ms + (RETRY_LATE_MS if is_late else RETRY_MS)
        broker.recurring.set_due(schedule, max(at_ms, schedule.next_ms))


def _released(result: Result) -> None:
    """Do nothing. If the release was lost, the grant ends with its lease."""
