"""Deliveries under a claim: exclusive queues, and queues with `assign quorum`. FREED, CLAIM_ENDED.

A job with a stamp (claim_stamps.py) is delivered only under claims that a majority of the voters granted: first on its
value, then on its own id. While a claim is under way, the job is set aside (parking.py) and stays pending. Meanwhile
this node offers no other job of the same value. The consumer gets the job in the turn in which the grant arrives, if
the claim has not ended by then. A grant is released if it arrives too late, or if its consumer or its job is gone. Then
its attempt does not count.

A key is *busy* while this node claims it, has a delivery under it, or was refused because another holder has it. A busy
key has no room, so its jobs stay aside. A voter that refused a claim tells us when the other grant ends (FREED). Its
refusal also says how long that grant can run. After this span the key is tried again.

The claim of a delivery ends at ACKJOB or NACK, or lapses with the lease. WORKING renews it. A claim that lapses is not
released, because another node may have renewed it for the worker. `running` has the claims of this node's deliveries.
Any holder of the job may get a command with the delivery's fence, because LEASED tells every holder the fence and the
claim's holder. So several nodes may have the same claim in `running`, and each of them keeps its key busy. The node at
which the claim ends tells the others.

After a claim found no majority, no claim begins for a moment, because it would fail as well. Consumers wait.
Spec EX3, EX4, EX5, EX6, EX7.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final

from cluster_bus.messages import CLAIM_ENDED, QUEUED_RELEASED
from cluster_bus.node import ID_BYTES, Node
from disque_py.core import changing, claim_stamps, claiming, lifecycle, requeue
from disque_py.core.broker import Broker
from disque_py.core.changeable import LEASE_EXPIRED
from disque_py.core.claim_stamps import JOB_PREFIX, Stamp
from disque_py.core.claiming import Result, WantedClaim
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.exclusive_state import GRANTED, LACKING, OVER, REFUSED, UNDECIDED, Pick, Running
from disque_py.core.fetch_options import FetchOptions
from disque_py.core.grants import FENCE_AHEAD, HELD
from disque_py.core.grants import GRANTED as IS_GRANTED
from disque_py.core.job import ACKED, QUEUED, Cancellation, Job
from disque_py.core.queue import PAUSED_OUT, Queue
from disque_py.core.spilled import Spilled
from disque_py.event_format import CANCELED

# A claim's lease is longer than the job's, because the job's lease begins when the grant has arrived. It is longer by
# this span and by the time that claims took lately. That time falls by one part in TOOK_PARTS with each faster claim.
SLACK_MS: Final = 50
TOOK_PARTS: Final = 8
PERCENT: Final = 100
# After a claim found no majority, no claim begins for a random span within these limits.
GATE_MS: Final = (100, 300)
# A key that another holder has is tried again after this span, in case the news of its end was lost.
RECHECK_MS: Final = 700
# The most keys that are tried again per step.
RECHECKS_PER_STEP: Final = 20
# A key keeps a timer that is due at most this much after the end of the grant that refused it.
TIMED_LATE_MS: Final = 50
# The most claims that one node may have under way.
UNDER_WAY_MAX: Final = 1_000

FENCED: Final = "FENCED A later claim is known"
DENIED: Final = "FENCED The claim of this delivery is over"
NO_CLAIM: Final = "FENCED No claim of this delivery is known here, name its FENCE"
LEASE_TOO_LONG: Final = "ERR the lease is above claim-lease-max"


# -- beginning -----------------------------------------------------------------------------------------------


def is_closed(broker: Broker) -> bool:
    """Return whether no claim may begin now: the voters have no majority, or too many claims are under way."""
    state = broker.exclusive
    return state.gate_until_ms > broker.now_ms or state.under_way >= UNDER_WAY_MAX


def begin(
    broker: Broker,
    queue: Queue,
    job: Job,
    stamp: Stamp,
    client: Client,
    options: FetchOptions,
    decided: Callable[[Pick], None],
) -> Pick | None:
    """Claim a fetched job for a consumer, and set the job aside. Return None if its key is busy, so that it must wait.

    decided   is called once, possibly before this function returns. The callback must deliver a GRANTED pick (`start`)
              or give it back
    """
    state = broker.exclusive
    assert queue.parking is not None
    value_key, job_key = claim_stamps.value_key(job, stamp), claim_stamps.job_key(job, stamp)
    blocked_by = value_key if value_key in state.busy else job_key if job_key in state.busy else b""
    if blocked_by:
        if broker.caps.admitted:
            broker.caps.give_back(job)
        lifecycle.set_aside(queue, job, blocked_by)
        queue.parking.show_due()
        return None
    holder = state.next_holder(broker.me)
    pick = Pick(job, queue, client, options.lease_ms or job.terms.retry_ms, holder, decided)
    pick.value_key, pick.job_key = value_key, job_key
    lifecycle.set_aside(queue, job, pick.key)
    for key in (value_key, job_key):
        if key:
            _occupy(broker, key, queue.name, holder)
    queue.parking.show_due()
    state.under_way += 1
    state.picks.setdefault(client, []).append(pick)
    if value_key:
        claiming.claim(broker, _wanted_claim(broker, pick, value_key), partial(_value_decided, broker, pick))
    else:
        _claim_job(broker, pick)
    return pick


def _occupy(broker: Broker, key: bytes, name: bytes, holder: bytes) -> None:
    """Make a key busy for a delivery's claim."""
    broker.exclusive.holders[key] = holder
    _make_busy(broker, key, name)


def _make_busy(broker: Broker, key: bytes, name: bytes) -> None:
    """Make a key busy. The queue offers none of its jobs until `free`."""
    broker.exclusive.busy[key] = name
    queue = broker.queues.get(name)
    if queue is not None and queue.parking is not None:
        queue.parking.set_room(key, 0)


def _wanted_claim(
    broker: Broker, pick: Pick, key: bytes, keep_ms: int = 0, limit: int = 0, first: int = 1
) -> WantedClaim:
    return WantedClaim(key, pick.holder, _claim_ms(broker, pick.lease_ms), keep_ms, limit, first)


def _claim_ms(broker: Broker, lease_ms: int) -> int:
    """Return how long a claim must last for a job's lease."""
    voter_list = broker.claims.memory.list
    longest_ms = voter_list.lease_max_ms if voter_list is not None else lease_ms
    claim_ms = lease_ms * PERCENT // (PERCENT - broker.settings.claim_drift_max) + SLACK_MS + broker.exclusive.took_ms
    return max(1, min(longest_ms, claim_ms))


def _value_decided(broker: Broker, pick: Pick, result: Result) -> None:
    if result.outcome == IS_GRANTED:
        pick.fence = result.fence
        pick.began_ms, pick.until_ms = result.began_ms, result.until_ms
        if not pick.job_key:
            _granted(broker, pick)
        elif _is_there(pick):
            _claim_job(broker, pick)
        else:
            _give_up(broker, pick)
    elif result.outcome == HELD:
        _refused(broker, pick, pick.value_key, result.until_ms)
    else:
        _lacking(broker, pick, result)


def _claim_job(broker: Broker, pick: Pick) -> None:
    """Claim the job itself. The voters count its attempts if these are limited. Spec EX7."""
    job = pick.job
    part = job.part
    keep_ms = limit = 0
    if part is not None and part.limit:
        keep_ms = max(1, job.expire_at_ms - broker.now_ms)
        limit = part.start + part.limit
    wanted = _wanted_claim(broker, pick, pick.job_key, keep_ms, limit, job.attempt + 1)
    claiming.claim(broker, wanted, partial(_job_decided, broker, pick))


def _job_decided(broker: Broker, pick: Pick, result: Result) -> None:
    if result.outcome == IS_GRANTED:
        pick.own_fence = result.fence
        pick.attempt = result.attempt
        if pick.value_key:
            pick.until_ms = min(pick.until_ms, result.until_ms)
        else:
            pick.fence, pick.began_ms, pick.until_ms = result.fence, result.began_ms, result.until_ms
        _granted(broker, pick)
        return
    if pick.value_key:
        _release(broker, pick.value_key, pick.holder, pick.fence, gives_back=True)
    if result.outcome == HELD:
        _refused(broker, pick, pick.job_key, result.until_ms)
    elif result.outcome == claiming.ALL_SPENT:
        _spent(broker, pick)
    else:
        _lacking(broker, pick, result)


def _granted(broker: Broker, pick: Pick) -> None:
    if not _is_there(pick):
        _give_up(broker, pick)
        return
    broker.exclusive.under_way -= 1
    pick.outcome = GRANTED
    pick.decided(pick)


def _give_up(broker: Broker, pick: Pick) -> None:
    """Give back the grants for a job that is no longer pending here."""
    give_back(broker, pick)
    _decide(broker, pick, REFUSED)


def _is_there(pick: Pick) -> bool:
    """Return whether the job is still aside for this claim: not acknowledged, moved, taken or forgotten meanwhile.

    After a reset or a reloading of the journal, the node may have the job again, as another object in another queue.
    """
    queue, job = pick.queue, pick.job
    if queue.is_dropped or job.state != QUEUED or job.is_listed or queue.parking is None:
        return False
    return queue.parking.values.get(job) == pick.key


def _refused(broker: Broker, pick: Pick, key: bytes, left_ms: int) -> None:
    """Let the jobs of a key wait until a voter tells that the other holder is done, or until its grant is over."""
    state = broker.exclusive
    for other in (pick.value_key, pick.job_key):
        if other and other != key:
            if _is_there(pick) and pick.key != key:
                lifecycle.take_aside(pick.queue, pick.job)
                lifecycle.set_aside(pick.queue, pick.job, key)
            free(broker, other, pick.holder)
    if key not in state.busy:  # A renewed delivery of the same value has ended here meanwhile, and freed it.
        _make_busy(broker, key, pick.queue.name)
    state.holders.pop(key, None)
    wait(broker, key, left_ms)
    _decide(broker, pick, REFUSED)


def wait(broker: Broker, key: bytes, left_ms: int) -> None:
    """Try a busy key again when the grant of its holder is over."""
    state = broker.exclusive
    state.refused[key] = broker.now_ms
    at_ms = broker.now_ms + max(1, left_ms) + 1
    timed_ms = state.timed.get(key)
    # A key may be refused very often before a long grant ends.
    if timed_ms is None or timed_ms > at_ms + TIMED_LATE_MS:
        state.timed[key] = at_ms
        broker.schedule.call_at(at_ms, partial(_try_again, broker, key, at_ms))


def _try_again(broker: Broker, key: bytes, at_ms: int) -> None:
    state = broker.exclusive
    if state.timed.get(key) == at_ms:
        del state.timed[key]
        if key in state.refused:
            free(broker, key)


def _lacking(broker: Broker, pick: Pick, result: Result) -> None:
    """Begin no claims for a moment, because there is no majority of voters."""
    state = broker.exclusive
    state.reason = claiming.REASONS.get(result.outcome, claiming.REASONS[claiming.NO_MAJORITY])
    state.gate_until_ms = broker.now_ms + broker.rng.randint(*GATE_MS)
    pick.reason = state.reason
    await_opening(broker)
    _free_keys(broker, pick)
    _decide(broker, pick, LACKING)


def await_opening(broker: Broker) -> None:
    """Serve consumers again as soon as claims may begin."""
    state = broker.exclusive
    if not state.is_timed:
        state.is_timed = True
        broker.schedule.call_at(max(state.gate_until_ms, broker.now_ms + 1), partial(_open, broker))


def _open(broker: Broker) -> None:
    state = broker.exclusive
    state.is_timed = False
    if is_closed(broker):
        await_opening(broker)
        return
    for queue in state.queues:
        if queue.has_clients or queue.patterns is not None:
            broker.wake(queue)
        if queue.interested:
            broker.consumers.hint_due[queue] = None


def _spent(broker: Broker, pick: Pick) -> None:
    """Make a job errored, because the voters know that it has no attempt left. Spec EX7."""
    job = pick.job
    part = job.part
    is_there = _is_there(pick) and part is not None
    _free_keys(broker, pick)
    if is_there and part is not None:
        job.attempt = max(job.attempt, part.start + part.limit)
        if changing.give_up(broker, job, part.error or LEASE_EXPIRED):
            requeue.tell_queued(broker, job, QUEUED_RELEASED)
    _decide(broker, pick, REFUSED)


def _decide(broker: Broker, pick: Pick, outcome: int) -> None:
    if pick.outcome == UNDECIDED:
        broker.exclusive.under_way -= 1
    pick.outcome = outcome
    _forget(broker, pick)
    pick.decided(pick)


def _forget(broker: Broker, pick: Pick) -> None:
    """Forget a pick that is over. Unless its job is delivered, give back its slot of the queue's caps."""
    if pick.outcome != GRANTED and broker.caps.admitted:
        broker.caps.give_back(pick.job)
    picks = broker.exclusive.picks.get(pick.client)
    if picks is not None and pick in picks:
        picks.remove(pick)
        if not picks:
            del broker.exclusive.picks[pick.client]


# -- the end of a claim that was granted ----------------------------------------------------------------------


def start(broker: Broker, pick: Pick) -> int:
    """Begin the delivery of a granted job. Return the milliseconds of its lease; 0 if it can't be delivered any more.

    If the result is not 0, the job is ACTIVE, and the caller must deliver it in this turn.
    """
    job = pick.job
    lease_ms = min(pick.lease_ms, pick.until_ms - broker.now_ms)
    state = broker.exclusive
    took_ms = min(broker.now_ms - pick.began_ms, claiming.DECIDE_MS)
    state.took_ms = max(took_ms, state.took_ms - state.took_ms // TOOK_PARTS)
    if (
        lease_ms <= 0
        or not _is_there(pick)
        or pick.queue.paused & PAUSED_OUT
        or job.expire_at_ms <= broker.now_ms
        or type(job.body) is Spilled
        or not _has_slot(broker, pick)
    ):
        give_back(broker, pick)
        return 0
    _forget(broker, pick)
    pick.outcome = OVER
    lifecycle.take_aside(pick.queue, job)
    if pick.attempt:
        job.attempt = max(job.attempt, pick.attempt - 1)
    stamp = claim_stamps.stamp_of(job)
    assert stamp is not None
    new = stamp._replace(fence=pick.fence, own_fence=pick.own_fence, holder=pick.holder)
    claim_stamps.set_stamp(broker, job, new)
    claim_stamps.remember(broker, job.id)
    changing.begin(broker, job)  # The claim's place in the journal is after the part, so there must be one.
    _run(broker, job, new, broker.now_ms + lease_ms, job.attempt + 1)  # The caller counts the attempt.
    return lease_ms


def _has_slot(broker: Broker, pick: Pick) -> bool:
    """Return whether the queue's caps still allow the delivery, because others may have taken the slots meanwhile."""
    caps = broker.caps
    return pick.queue.name not in caps.limits or caps.admit(pick.job, broker.now_ms, 1)


def _run(broker: Broker, job: Job, stamp: Stamp, until_ms: int, attempt: int) -> None:
    """Note the claim of a delivery. It lapses at `until_ms`."""
    running = Running(
        job.terms.queue,
        claim_stamps.value_key(job, stamp),
        claim_stamps.job_key(job, stamp),
        stamp.holder,
        stamp.fence,
        stamp.own_fence,
        until_ms,
        attempt,
    )
    running.is_shared = stamp.holder[:ID_BYTES] != broker.me.id
    broker.exclusive.running[job.id] = running
    for key, _ in running.keys:
        _occupy(broker, key, running.queue, running.holder)
        broker.exclusive.refused.pop(key, None)
    broker.schedule.call_at(until_ms, partial(_lapse, broker, job.id, running))


def resume(broker: Broker, job: Job) -> None:
    """Note the claim of a delivery that this node made before it was started again. So an ack can end it."""
    stamp = claim_stamps.stamp_of(job)
    if stamp is not None and stamp.holder[:ID_BYTES] == broker.me.id and job.requeue_at_ms > broker.now_ms:
        _run(broker, job, stamp, job.requeue_at_ms, job.attempt)
        running = broker.exclusive.running[job.id]
        running.is_shared = running.is_elsewhere = True  # Another node may have renewed it, and clocks may have jumped.
        for key, _ in running.keys:
            free(broker, key, running.holder)  # Another node may have ended it meanwhile. The voters know.


def _lapse(broker: Broker, job_id: bytes, running: Running) -> None:
    """End a claim whose lease is over. It is not released, because another node may have renewed it."""
    state = broker.exclusive
    if state.running.get(job_id) is not running:
        return
    if running.until_ms > broker.now_ms:
        broker.schedule.call_at(running.until_ms, partial(_lapse, broker, job_id, running))
        return
    del state.running[job_id]
    for key, _ in running.keys:
        free(broker, key, running.holder)


def give_back(broker: Broker, pick: Pick) -> None:
    """Release a claim without a delivery. Its attempt does not count."""
    if pick.outcome == GRANTED:
        pick.outcome = OVER
        _forget(broker, pick)
    if pick.value_key and pick.fence:
        _release(broker, pick.value_key, pick.holder, pick.fence, gives_back=True)
    if pick.job_key and pick.own_fence:
        _release(broker, pick.job_key, pick.holder, pick.own_fence, gives_back=True)
    _free_keys(broker, pick)


def _free_keys(broker: Broker, pick: Pick) -> None:
    for key in (pick.value_key, pick.job_key):
        if key:
            free(broker, key, pick.holder)


def free(broker: Broker, key: bytes, holder: bytes = b"") -> None:
    """Offer the jobs of a key again. Spec EX4.

    holder   the delivery whose claim is over. If this node claims the key for another one meanwhile, nothing happens
    """
    state = broker.exclusive
    if holder and state.holders.get(key, holder) != holder:
        return
    state.holders.pop(key, None)
    name = state.busy.pop(key, None)
    state.refused.pop(key, None)
    if name is None:
        return
    queue = broker.queues.get(name)
    if queue is None or queue.parking is None:
        return
    if key[:1] == JOB_PREFIX:
        is_shown = queue.parking.give_back(key, 1) > 0
    else:
        is_shown = queue.parking.set_room(key, 1)
    if is_shown:
        broker.wake(queue)
        if queue.interested:
            broker.consumers.hint_due[queue] = None


def _release(broker: Broker, key: bytes, holder: bytes, fence: int, *, gives_back: bool = False) -> None:
    claiming.release(broker, WantedClaim(key, holder, 1), fence, _ignore, gives_back=gives_back)


def _ignore(result: Result) -> None:
    """Do nothing. If the release is lost, the grant ends with its lease."""


def forget_client(broker: Broker, client: Client) -> None:
    """Give back the claims of a consumer that is gone. Claims under way are given back when they are decided."""
    state = broker.exclusive
    state.lines.pop(client, None)
    for pick in list(state.picks.get(client, ())):
        if pick.outcome == GRANTED:
            give_back(broker, pick)


# -- the worker's commands -----------------------------------------------------------------------------------------


def end(broker: Broker, job_id: bytes) -> None:
    """End the claim of this node's delivery of a job, because its worker is done. Spec EX5."""
    running = broker.exclusive.running.pop(job_id, None)
    if running is None:
        return
    _note_end(broker, job_id, running.fence)
    for key, fence in running.keys:
        _release(broker, key, running.holder, fence)
        free(broker, key, running.holder)
    if running.is_shared and broker.cluster.linked:
        broker.send(broker.cluster.linked, CLAIM_ENDED, (job_id, running.fence))


def end_same(broker: Broker, job_id: bytes, fence: int) -> bool:
    """End the claim of this node's delivery of a job if the claim has this fence. Return whether it has."""
    _note_end(broker, job_id, fence)
    running = broker.exclusive.running.get(job_id)
    if running is None or running.fence != fence:
        return False
    end(broker, job_id)
    return True


def end_fenced(broker: Broker, job_id: bytes, fence: int) -> None:
    """End the claim of the delivery with this fence, whichever node made the delivery."""
    if end_same(broker, job_id, fence):
        return
    job = broker.find(job_id)
    stamp = claim_stamps.stamp_of(job) if job is not None else None
    if stamp is not None:
        if stamp.fence > fence:
            return
        if job is not None and stamp.fence == fence and stamp.holder:
            for key, each in _claims_of(job, stamp):
                _release(broker, key, stamp.holder, each)
    elif job is not None and job.state != ACKED:
        return
    if broker.cluster.linked:
        # The job is gone here, or this node has not heard of the delivery yet. All nodes hear of the end, and the node
        # that made the delivery compares the fence.
        broker.send(broker.cluster.linked, CLAIM_ENDED, (job_id, fence))


def end_over(broker: Broker, job_id: bytes, fence: int) -> None:
    """End the claim of a job that is over, because its worker learns that now. Without a fence, only our own claim."""
    if not fence:
        end(broker, job_id)
    elif broker.find(job_id) is not None or job_id in broker.tombstones:
        end_fenced(broker, job_id, fence)


def end_heard(broker: Broker, job: Job | None, job_id: bytes, fence: int) -> None:
    """End the claim of a job that is over, because the reply to a WORKING or a PROGRESS tells its worker now.

    The worker goes on until it learns that its job is over. So only for a canceled job the claim ends at other nodes,
    too. Otherwise it ends only if this node has it in `running`. An ack at another node without FENCE leaves the claim
    to end with its lease.
    """
    is_canceled = isinstance(job.work, Cancellation) if job is not None else broker.ends.get(job_id) == CANCELED
    if is_canceled:
        end_over(broker, job_id, fence)
    elif fence:
        end_same(broker, job_id, fence)
    else:
        end(broker, job_id)


def _claims_of(job: Job, stamp: Stamp) -> list[tuple[bytes, int]]:
    keys = ((claim_stamps.value_key(job, stamp), stamp.fence), (claim_stamps.job_key(job, stamp), stamp.own_fence))
    return [pair for pair in keys if pair[0]]


def is_fenced(job: Job, fence: int) -> bool:
    """Return whether a later claim of the job than the one with this fence is known. False without a fence."""
    return 0 < fence < claim_stamps.fence_of(job)


def refuse_fenced(job: Job | None, fence: int) -> None:
    """Refuse a command that names an older claim. Raise CommandError."""
    if job is not None and is_fenced(job, fence):
        raise CommandError(FENCED)


def learn_fence(broker: Broker, job: Job, fence: int) -> None:
    """Note a claim that a client names, because this node may not have heard of it yet.

    Fences that are too high for a voter are ignored, because they would fence the workers of all later deliveries.
    """
    if 0 < fence <= broker.wall_ms + FENCE_AHEAD:
        claim_stamps.learn(broker, job, fence, 0, b"")


def refuse_long(broker: Broker, lease_ms: int) -> None:
    """Refuse a lease that no voter would grant. Raise CommandError."""
    voter_list = broker.claims.memory.list
    if voter_list is not None and lease_ms > voter_list.lease_max_ms:
        raise CommandError(LEASE_TOO_LONG)


class Renewal:
    """The renewal of a delivery's claims, for WORKING and similar commands.

    A command that ends the claim may come while the voters are asked. Then the lease must not be extended, because the
    job may be another worker's by now.

    fence      the fence of the delivery
    until_ms   the end of the renewed claims; 0: a majority did not renew them
    is_denied  whether so many voters deny a claim that no majority can renew it: another holder has it, or it has ended
    is_ended   whether a command ended the claim meanwhile
    """

    __slots__ = (
        "_broker",
        "_claims",
        "_done",
        "_holder",
        "_job_id",
        "_left",
        "_until",
        "fence",
        "is_denied",
        "is_ended",
        "lease_ms",
        "until_ms",
    )

    def __init__(self, broker: Broker, job: Job, fence: int, lease_ms: int) -> None:
        """Raise CommandError if this node knows no such claim.

        fence   0: the claim of this node's delivery
        """
        stamp = _renewable(broker, job, fence)
        self._broker = broker
        self._job_id = job.id
        self._claims = _claims_of(job, stamp)
        self._holder = stamp.holder
        self._done: Callable[[], None] | None = None
        self._left = 0
        self._until: list[int] = []
        self.fence = stamp.fence
        self.lease_ms = lease_ms
        self.until_ms = 0
        self.is_denied = False
        self.is_ended = False

    def begin(self, done: Callable[[], None]) -> None:
        """Renew all claims of the delivery. `done` is called once, possibly before this method returns."""
        self._done = done
        self._left = len(self._claims)
        self._broker.exclusive.renewals.setdefault(self._job_id, []).append(self)
        lease_ms = _claim_ms(self._broker, self.lease_ms)
        for key, fence in self._claims:
            claiming.renew(self._broker, WantedClaim(key, self._holder, lease_ms), fence, self._take)

    def is_over(self, job: Job) -> bool:
        """Return whether the claim has ended meanwhile, or the job has another claim now."""
        stamp = claim_stamps.stamp_of(job)
        if self.is_ended or stamp is None or stamp.holder != self._holder:
            return True
        return _claims_of(job, stamp) != self._claims

    def _take(self, result: Result) -> None:
        self._left -= 1
        self.is_denied = self.is_denied or result.outcome == claiming.OVER
        self._until.append(result.until_ms if result.outcome == IS_GRANTED else 0)
        if not self._left and self._done is not None:
            until_ms = min(self._until)
            self.until_ms = until_ms if until_ms > self._broker.now_ms else 0
            renewals = self._broker.exclusive.renewals
            renewals[self._job_id].remove(self)
            if not renewals[self._job_id]:
                del renewals[self._job_id]
            self._done()


def _note_end(broker: Broker, job_id: bytes, fence: int) -> None:
    for renewal in broker.exclusive.renewals.get(job_id, ()):
        if renewal.fence == fence:
            renewal.is_ended = True


def _renewable(broker: Broker, job: Job, fence: int) -> Stamp:
    """Return the claim of a delivery that is to be renewed.

    Raise CommandError if no claim has this fence, or if no fence is given and the claim is not of this node.
    """
    stamp = claim_stamps.stamp_of(job)
    if stamp is None:  # The job has moved, so that its claim is over.
        raise CommandError(NO_CLAIM)
    is_mine = stamp.holder[:ID_BYTES] == broker.me.id
    if not stamp.holder or not (fence == stamp.fence or (not fence and is_mine)):
        raise CommandError(NO_CLAIM)
    return stamp


def renewed(broker: Broker, job: Job, until_ms: int) -> None:
    """Note that this node renewed the claim of a job's delivery. From now on it is responsible for the claim."""
    stamp = claim_stamps.stamp_of(job)
    if stamp is None:
        return
    running = broker.exclusive.running.get(job.id)
    if running is not None and running.fence == stamp.fence:
        running.until_ms = max(running.until_ms, until_ms)
        running.is_elsewhere = False
    else:
        _run(broker, job, stamp, until_ms, job.attempt)


# -- other nodes ---------------------------------------------------------------------------------------------------


def on_freed(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Try refused keys again, because the grants of their holders are over."""
    for key in items:
        if type(key) is not bytes:
            raise ValueError("an invalid key of a claim")
        if key in broker.exclusive.refused:
            free(broker, key)


def on_claim_ended(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Forget the claim of a delivery of ours, because the worker has told another node that it is done."""
    for job_id, fence, *_ in items:
        if type(job_id) is not bytes or type(fence) is not int:
            raise ValueError("an invalid end of a claim")
        end_same(broker, job_id, fence)


def settle(broker: Broker) -> None:
    """Note claims that another node has renewed for the worker. Forget claims that a later delivery followed."""
    state = broker.exclusive
    heard, state.heard = state.heard, {}
    for job in heard:
        running = state.running.get(job.id)
        if running is None:
            continue
        fence = claim_stamps.fence_of(job)
        if running.fence == fence:
            running.is_shared = running.is_elsewhere = True
            running.until_ms = max(running.until_ms, job.requeue_at_ms)
        elif running.fence < fence:
            del state.running[job.id]
            for key, _ in running.keys:
                if state.holders.get(key, running.holder) == running.holder:
                    wait(broker, key, running.until_ms - broker.now_ms)


def count_of(broker: Broker, name: bytes) -> int:
    """Return how many deliveries of a queue's jobs have a claim for which this node is responsible."""
    return sum(1 for each in broker.exclusive.running.values() if each.queue == name and not each.is_elsewhere)


def step(broker: Broker) -> None:
    """Try refused keys again for consumers that wait. Called ten times a second."""
    state = broker.exclusive
    if not state.refused:
        return
    for key in list(islice(state.refused, RECHECKS_PER_STEP)):
        since_ms = state.refused.pop(key)
        state.refused[key] = since_ms
        queue = broker.queues.get(state.busy.get(key, b""))
        if broker.now_ms - since_ms >= RECHECK_MS and queue is not None and (queue.has_clients or queue.patterns):
            free(broker, key)
