"""Fan-out: one ADDJOB to a topic makes a job in each bound queue, or no job at all.

The command reads its options once for each queue and makes a *plan* (commands/adding.py). If no plan has to wait for
copies, nodes or keys, the jobs are made immediately, in one turn. Otherwise each job is made like the job of any
ADDJOB, and *held*: it stays WAIT_REPL even when it has its copies. When the last job has its copies, all jobs are
queued in one turn, and the producer is answered. If a job fails, the others are given up, like the job of an ADDJOB
that misses copies.

Keys are looked up for one queue after the other, in the order of the queues' names. A held job keeps other nodes
waiting that want its key. All fan-outs take keys in the same order, so two fan-outs never wait for each other.

The jobs of a fan-out usually differ only in their ids and queues. Such jobs are made *together*: one set of nodes gets
their copies in one message, and they share one wait (shared_copies.py). If something happens to one of them alone, they
are separated, and the fan-out continues as if they had been made one by one.

Each job has a slot for its reply that no client sees. So replication.py and keying.py treat it like every other job.
`producer_waits.answer` notes the fan-out in `fans_due`, and `settle` continues it at the end of the turn.
Spec TP8, TP9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_py.core import keying, lifecycle, producer_waits, replication, shared_copies
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.job import NO_TERMS, WAIT_REPL, Handover, Job, Replication, Together, Wanted
from disque_py.resp.replies import array, bulk_array, error

if TYPE_CHECKING:
    Slot = list[bytes | None]

NO_TIMEOUT_SUFFIX: Final = (producer_waits.NOREPL_TIMEOUT, producer_waits.NOREPL_REMOVED, producer_waits.LEAVING_REPLY)
# The beginning of a refusal that is about the batch, not about one of the queues (keeping.py).
_OF_BATCH: Final = b"-CLOSED "


class Plan:
    """A job that an ADDJOB will make in one queue, after all checks.

    maxlen   MAXLEN; 0: none
    create   makes a job with a key, and holds it, when the key is known to be free
    slot     the place for its reply
    """

    __slots__ = (
        "create",
        "is_async",
        "is_default",
        "is_external",
        "is_keyed",
        "is_quorum",
        "job",
        "maxlen",
        "slot",
        "timeout_ms",
        "zone_count",
    )

    def __init__(
        self,
        job: Job,
        timeout_ms: int,
        *,
        is_default: bool,
        is_external: bool,
        is_async: bool,
        zone_count: int,
        is_quorum: bool,
        create: keying.Create | None,
        maxlen: int = 0,
    ) -> None:
        self.job = job
        self.timeout_ms = timeout_ms
        self.is_default = is_default
        self.is_external = is_external
        self.is_async = is_async
        self.zone_count = zone_count
        self.is_quorum = is_quorum
        self.maxlen = maxlen
        self.create = create
        self.is_keyed = create is not None
        self.slot: Slot = [None]

    @property
    def is_alone(self) -> bool:
        """Whether the job needs no copy on another node before it is made."""
        return not self.is_external and (self.is_async or self.job.terms.replicate == 1)

    @property
    def is_usual(self) -> bool:
        """Whether the job in another queue without settings differs from this one only in its id and queue."""
        attributes = self.job.attributes
        if self.is_external or self.is_async or self.is_keyed or self.is_quorum or self.zone_count or self.maxlen:
            return False
        if self.job.terms.replicate == 1 or 0 < self.timeout_ms < replication.EXTEND_MS:
            return False
        return attributes is None or (attributes.extras is None and attributes.part is None)


class Fanout:
    """The jobs of one command that are being made.

    slot        the place of the reply in the client's order of replies
    marker      the entry in the client's table of waiting jobs
    started     number of plans that were begun
    is_listed   whether the reply names all jobs (TOPIC PUBLISH), not only the first one
    is_going    whether all jobs have their copies and are being queued
    made        queue and id of each job, once they are queued
    together    the jobs that are made together; None: each job has its own plan
    begin       makes the batch of the jobs, or raises CommandError; None: they have no batch
    """

    __slots__ = ("begin", "client", "is_going", "is_listed", "made", "marker", "plans", "slot", "started", "together")

    def __init__(self, client: Client, plans: list[Plan], slot: Slot, marker: Job, *, is_listed: bool) -> None:
        self.client = client
        self.plans = plans
        self.slot = slot
        self.marker = marker
        self.started = 0
        self.is_listed = is_listed
        self.is_going = False
        self.made: list[tuple[bytes, bytes]] = []
        self.together: Together | None = None
        self.begin: Callable[[], None] | None = None

    def goes_on_as(self, job: Job, again: Job) -> None:
        """Note that a job is tried again under another id of its key (keying.py)."""
        for plan in self.plans:
            if plan.job is job:
                plan.job = again


def start(
    broker: Broker,
    client: Client,
    plans: list[Plan],
    make_alone: Callable[[Broker, Plan], None],
    *,
    is_listed: bool,
    begin: Callable[[], None] | None = None,
) -> bytes | None:
    """Make the planned jobs. Return the reply, or None if the client waits.

    make_alone   makes and queues one job that needs no copy on another node
    begin        makes the batch of the jobs, when each queue has taken its job; None: they have no batch
    """
    if begin is None and all(plan.is_alone and not plan.is_keyed for plan in plans):
        for plan in plans:
            make_alone(broker, plan)
        return _reply_of([(plan.job.terms.queue, plan.job.id) for plan in plans], is_listed=is_listed)
    marker = Job(plans[0].job.id, NO_TERMS, b"", 0, 0, broker.sets.mine)
    slot = producer_waits.wait_for_copies(client, marker)
    broker.waits.blocked_count += 1
    fan = Fanout(client, plans, slot, marker, is_listed=is_listed)
    fan.begin = begin
    _go_on(broker, fan)
    return None


def start_together(
    broker: Broker, client: Client, jobs: list[Job], timeout_ms: int, *, is_default: bool, is_listed: bool
) -> None:
    """Make jobs that differ only in their ids and queues, and let the client wait."""
    marker = Job(jobs[0].id, NO_TERMS, b"", 0, 0, broker.sets.mine)
    slot = producer_waits.wait_for_copies(client, marker)
    broker.waits.blocked_count += 1
    fan = Fanout(client, [], slot, marker, is_listed=is_listed)
    fan.together = together = Together(fan, marker, jobs, shared_copies.ids_of(jobs))
    shared_copies.start(broker, client, together, timeout_ms, slot, is_default=is_default)


def _reply_of(made: list[tuple[bytes, bytes]], *, is_listed: bool) -> bytes:
    if is_listed:
        return array([bulk_array(pair) for pair in made])
    return b"+%b\r\n" % made[0][1]


def settle(broker: Broker) -> None:
    """Continue the fan-outs with jobs that changed in this turn."""
    while broker.producers.fans_due:
        due, broker.producers.fans_due = broker.producers.fans_due, {}
        for fan in due:
            if fan.together is not None:
                if fan.marker in broker.producers.together:
                    _commit_together(broker, fan, fan.together)
                    continue
                _take_over(fan, fan.together)
            if fan.slot[0] is None:
                _go_on(broker, fan)
            else:
                _end(broker, fan)  # Its client is gone, or was sent away.


def _commit_together(broker: Broker, fan: Fanout, together: Together) -> None:
    """Queue all jobs, in one turn, and answer the producer."""
    fan.together = None
    shared_copies.finish_all(broker, broker.producers.together[fan.marker])
    made = [(job.terms.queue, job.id) for job in together.jobs]
    producer_waits.answer(broker, fan.client, fan.marker, fan.slot, _reply_of(made, is_listed=fan.is_listed))


def _take_over(fan: Fanout, together: Together) -> None:
    """Give each job its own plan, because the jobs were separated."""
    fan.together = None
    for job, slot in zip(together.jobs, together.slots, strict=True):
        plan = Plan(
            job, 0, is_default=False, is_external=False, is_async=False, zone_count=0, is_quorum=False, create=None
        )
        plan.slot = slot
        fan.plans.append(plan)
    fan.started = len(fan.plans)


def _go_on(broker: Broker, fan: Fanout) -> None:
    if fan.is_going:
        _answer(broker, fan)
        return
    while True:
        is_waiting = False
        for plan in fan.plans[: fan.started]:
            reply = plan.slot[0]
            if reply is not None and reply.startswith(b"-"):
                _fail(broker, fan, plan, reply)
                return
            is_waiting = is_waiting or (reply is None and not _is_held(plan))
        if fan.client.waiting_jobs.get(fan.marker) is not fan.slot:
            _end(broker, fan)
            return
        if fan.started == len(fan.plans):
            if not is_waiting:
                _begin_batch_and_commit(broker, fan)
            return
        plan = fan.plans[fan.started]
        if plan.is_keyed and is_waiting:
            return
        _begin(broker, fan, plan)
        while fan.started < len(fan.plans) and plan.slot[0] is None:
            plan = fan.plans[fan.started]
            if plan.is_keyed:
                break
            _begin(broker, fan, plan)


def _is_held(plan: Plan) -> bool:
    work = plan.job.work
    return isinstance(work, Replication) and work.is_held


def _begin(broker: Broker, fan: Fanout, plan: Plan) -> None:
    """Begin to make the next job."""
    client, job = fan.client, plan.job
    fan.started += 1
    broker.producers.fans[job] = fan
    client.waiting_jobs[job] = plan.slot
    broker.waits.blocked_count += 1
    if plan.create is None:
        hold(broker, client, plan)
        return
    try:
        reply = keying.add(broker, client, job, plan.timeout_ms, plan.create, plan.slot)
    except CommandError as refused:
        reply = error(refused.text)
    if reply is not None:
        producer_waits.answer(broker, client, job, plan.slot, reply)


def hold(broker: Broker, client: Client, plan: Plan) -> None:
    """Make a job that is not queued before all jobs of its fan-out have their copies."""
    job = plan.job
    if plan.is_alone:
        replication.hold_alone(broker, client, job, plan.timeout_ms, plan.slot)
        return
    replication.start(
        broker,
        client,
        job,
        plan.timeout_ms,
        is_external=plan.is_external,
        is_default=plan.is_default,
        zone_count=plan.zone_count,
        is_quorum=plan.is_quorum,
        slot=plan.slot,
    )


def _begin_batch_and_commit(broker: Broker, fan: Fanout) -> None:
    """Make the batch of the jobs if one of them is new, and queue them. Spec BT1."""
    if fan.begin is not None and any(plan.slot[0] is None for plan in fan.plans):
        try:
            fan.begin()
        except CommandError as refused:
            _give_up(broker, fan, error(refused.text))
            return
    _commit(broker, fan)


def _commit(broker: Broker, fan: Fanout) -> None:
    """Queue all jobs, in one turn, and answer the producer."""
    fan.is_going = True
    made = fan.made
    for plan in fan.plans:
        reply = plan.slot[0]
        job = plan.job
        broker.producers.fans.pop(job, None)
        if reply is not None:
            made.append((job.terms.queue, reply[1:-2]))
            continue
        made.append((job.terms.queue, job.id))
        work = job.work
        assert isinstance(work, Replication)
        work.is_held = False
        if plan.is_alone:
            lifecycle.make_active(broker, job)
            if job.terms.replicate > 1 or plan.is_quorum:
                replication.start_async(broker, job, is_quorum=plan.is_quorum)
            replication.queue_or_delay(broker, job)
            lifecycle.mark_dirty(broker, job)
            broker.stats.jobs_added += 1
            producer_waits.answer(broker, fan.client, job, plan.slot, b"+%b\r\n" % job.id)
        else:
            replication.finish_creation(broker, job, work)
    _answer(broker, fan)


def _answer(broker: Broker, fan: Fanout) -> None:
    """Answer the producer. If the jobs belong to a batch, wait first until a keeper of the batch has recorded them."""
    if fan.client.waiting_jobs.get(fan.marker) is not fan.slot:
        _end(broker, fan)
        return
    for plan in fan.plans:
        reply = plan.slot[0]
        if reply is None:
            broker.producers.fans[plan.job] = fan
            return
        broker.producers.fans.pop(plan.job, None)
        if reply.startswith(b"-"):
            _fail(broker, fan, plan, reply)
            return
    producer_waits.answer(broker, fan.client, fan.marker, fan.slot, _reply_of(fan.made, is_listed=fan.is_listed))


def _fail(broker: Broker, fan: Fanout, failed: Plan, reply: bytes) -> None:
    """Give up all jobs, because one of them can't be made, and answer the producer with its error."""
    if reply not in NO_TIMEOUT_SUFFIX and not reply.startswith(_OF_BATCH):
        reply = reply[:-2] + b": " + failed.job.terms.queue.replace(b"\r", b" ").replace(b"\n", b" ") + b"\r\n"
    _give_up(broker, fan, reply)


def _give_up(broker: Broker, fan: Fanout, reply: bytes) -> None:
    _end(broker, fan)
    if fan.client.waiting_jobs.get(fan.marker) is fan.slot:
        producer_waits.answer(broker, fan.client, fan.marker, fan.slot, reply)


def _end(broker: Broker, fan: Fanout) -> None:
    """Give up the jobs that are not queued yet."""
    client = fan.client
    for plan in fan.plans:
        job = plan.job
        broker.producers.fans.pop(job, None)
        if plan.slot[0] is not None or client.waiting_jobs.get(job) is not plan.slot:
            continue
        work = job.work
        if job.state == WAIT_REPL:
            replication.give_up(broker, job, None)
            continue
        if isinstance(work, Wanted) and not work.is_over:
            work.is_over = True
            producer_waits.caller_out(broker, job)
            broker.producers.key_events[job.id] = None
        elif isinstance(work, Handover):
            work.client = None
        client.waiting_jobs.pop(job, None)
        broker.waits.blocked_count -= 1
