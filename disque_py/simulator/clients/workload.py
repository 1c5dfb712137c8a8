"""Workload: clients of several kinds. Each has its own random generator, and reports its replies to the oracle.

A *producer* adds jobs in bunches, at any node, without waiting for the bunch before. A *consumer* fetches jobs and
works. It acknowledges most of its jobs, some of them late, twice, at another node, or never. It also gives jobs back,
asks for more time, and deletes jobs. An *inspector* sends all commands that change nothing. A client replaces a broken
connection, perhaps with one to another node.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from disque_py.core.ordering import is_held_back
from disque_py.core.queue import PAUSED_OUT
from disque_py.simulator.checks.zones import Asked
from disque_py.simulator.clients.connection import Connection, Request, words
from disque_py.simulator.oracle import Oracle, Promise, RuleBrokenError
from disque_py.simulator.plan import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

RECONNECT_MS: Final = 80
LOOK_AGAIN_MS: Final = 20
OUTSTANDING_MAX: Final = 200
TRAVEL_MS: Final = 3
# Refusals that several clients expect: a node runs an older version; the lease is longer than voters allow.
OLDER_NODE: Final = "ERR not while node"
LEASE_TOO_LONG: Final = "ERR the lease is above claim-lease-max"
# Refusals that every well-behaved client must expect.
EXPECTED_ERRORS: Final = (
    "NOREPL", "LEAVING", "PAUSED", "OOM", "MAXLEN", "NOJOB", "TOOLATE", "MISCONF", "LOADING", "UNREACHABLE", "NOLOG",
    "TRIMMED", "STALE", "CANCELED",
)  # fmt: skip
RETRIES_S: Final = (0, 1, 1, 2, 3, 5)
# The last value is beyond the horizon of the schedule (core/schedule.py), so a sweep has to find the job.
LONG_RETRIES_S: Final = (0, 1, 2, 70, 250)
# The number of jobs that a hoarder acknowledges in one burst, the time to collect them, and the time of the burst.
HOARD_MAX: Final = 300
HOARD_MS: Final = 1_500
BURST_MS: Final = 30
# The share of jobs whose TTL is in milliseconds. All of them have a short TTL.
TTLMS_SHARE: Final = 0.025
BODIES: Final = (8, 8, 20, 100, 700, 4_000)


class Line(Connection):
    """A client's connection: each reply goes, in order, to the request that waits for it.

    since   number of the node's next event at the consumer's last GETJOB
    forever   queues of a GETJOB under way without TIMEOUT
    is_patient   True: a request may take until jobs are over
    answered   number of replies so far
    slowest_ms   the longest time that a request of this client may take, if it is longer than that of others
    """

    __slots__ = ("_owner", "_waiting", "answered", "forever", "is_patient", "since", "slowest_ms")

    def __init__(self, world: World, owner: Actor) -> None:
        super().__init__(world)
        self._owner = owner
        self._waiting: deque[tuple[Callable[[Any, Any], None], Any]] = deque()
        self.answered = 0
        self.since = 0
        self.forever: list[bytes] = []
        self.is_patient = False
        self.slowest_ms = 0

    def ask(self, requests: list[tuple[Request, Callable[[Any, Any], None], Any]], travel_ms: int) -> None:
        """Send requests: (request, function that gets the reply, and its second argument) each."""
        self._waiting.extend((then, about) for _, then, about in requests)
        self.send([request for request, _, _ in requests], travel_ms)

    @property
    def outstanding(self) -> int:
        """Return the number of replies that are still missing."""
        return len(self._waiting)

    def most_copies(self) -> int:
        """Return the most copies that an ADDJOB without a reply asked for; 0 if there is none."""
        return max((_copies_of(about) for _, about in self._waiting), default=0)

    def has_found(self) -> bytes:
        """Return a queue for which a GETJOB without TIMEOUT waits although its node has jobs there; empty if none."""
        queues = self.broker.queues
        for name in self.forever:
            queue = queues.get(name)
            if queue is None or is_held_back(queue):
                continue  # Its jobs wait for better jobs of another node.
            if name in self.broker.caps.limits:
                continue  # Its jobs wait for slots.
            if queue.length and not queue.paused & PAUSED_OUT:
                return name
        return b""

    def first_asked(self) -> str:
        """Return the request to which the next reply belongs."""
        return str(self._waiting[0][1]) if self._waiting else "nothing"

    def on_reply(self, reply: Any) -> None:
        """Give a reply to the request that waits for it."""
        if not self._waiting:
            raise RuleBrokenError("one answer", f"{reply!r} was not asked for")
        then, about = self._waiting.popleft()
        self.answered += 1
        if isinstance(reply, Exception):
            text = str(reply)
            self._owner.oracle.failed(text)
            if not text.startswith((*EXPECTED_ERRORS, *self._owner.REFUSALS)):
                raise RuleBrokenError("no odd errors", f"{text!r} for {about!r}")
        then(reply, about)

    def on_unseen(self, reply: Any) -> None:
        """Note replies that the client never reads. The node believes in a promise that the client didn't get."""
        if self._waiting:  # An incremental GETJOB is noted twice: its jobs at the hang-up, and those at its end.
            self._waiting.popleft()
        self._owner.oracle.unread(reply)

    def on_lost(self) -> None:
        """Note that open requests will get no reply."""
        self._waiting.clear()
        self._owner.on_lost(self)


def _copies_of(about: Any) -> int:
    """Return how many copies a request of a placer, publisher or other producer waits for; 0 for other requests."""
    if isinstance(about, Asked):
        return about.most_copies()
    if isinstance(about, list):
        return max(map(_copies_of, about), default=0)
    return about.copies if isinstance(about, Promise) else 0


class Actor:
    """A client: it acts, sleeps, and acts again, until it is told to end."""

    # In plans with `is_apart`: which of every two nodes this kind of client uses.
    SIDE: ClassVar[int] = 0
    # Errors that this kind of client expects, besides those that every client expects.
    REFUSALS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        self.world = world
        self.oracle = oracle
        self.rng: Random = world.stream(f"client {client.number}")
        self.queues = [b"q%d" % number for number in range(plan.queues)]
        self.load = plan.load
        self.is_apart = plan.is_apart
        self.retries_s = LONG_RETRIES_S if plan.is_long else RETRIES_S
        self.number = client.number
        self.is_over = False
        self.line: Line | None = None

    def begin(self) -> None:
        """Start to act."""
        self.world.later(self.rng.randrange(100), self._step)

    def end(self) -> None:
        """Stop acting. Connections stay."""
        self.is_over = True

    def _step(self) -> None:
        if not self.is_over:
            self.world.later(max(1, self.act()), self._step)

    def act(self) -> int:
        """Act, and return the milliseconds until the next act."""
        raise AssertionError("each kind of client overrides this method")

    def reach(self) -> Line | None:
        """Return the connection, and open it if needed; None if no node answers."""
        if self.line is None or not self.line.is_open:
            machine = self.pick()
            if machine is None:
                return None
            self.line = Line(self.world, self)
            self.world.connect(machine, self.line)
        return self.line

    def free_line(self, hang_up_share: float = 0) -> Line | int:
        """Return the connection if it has no request under way, else the milliseconds until the next try.

        A busy connection is closed with the given probability.
        """
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if line.outstanding:
            if hang_up_share and self.rng.random() < hang_up_share:
                line.hang_up()
            return LOOK_AGAIN_MS
        return line

    def some_queues(self, most: int) -> list[bytes]:
        """Return at least one of the queues, and at most `most`."""
        return self.rng.sample(self.queues, self.rng.randrange(1, min(most, len(self.queues)) + 1))

    def pick(self, *, anywhere: bool = False) -> Machine | None:
        """Return a node to connect to. With `is_apart` it is one of the client's own side, except with `anywhere`."""
        machines = [machine for machine in self.world.machines.values() if machine.is_up and not machine.is_stopped]
        if self.is_apart and not anywhere:
            mine = [machine for machine in machines if NAMES.index(machine.name) % 2 == self.SIDE]
            machines = mine or machines
        return self.rng.choice(machines) if machines else None

    def travel(self) -> int:
        """Return how long a request takes to arrive."""
        return 1 + int(self.rng.random() * TRAVEL_MS)

    def on_lost(self, line: Line) -> None:
        """Handle a broken connection."""

    def nothing(self, reply: Any, about: Any) -> None:
        """Ignore a reply."""


class Producer(Actor):
    """A client that adds jobs."""

    def act(self) -> int:
        """Send a bunch of ADDJOBs."""
        rng = self.rng
        if rng.random() < 0.03 and self.line is not None and self.line.is_open:
            self.line.hang_up()
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if line.outstanding < OUTSTANDING_MAX:
            count = rng.choice((1, 1, 1, 2, 5, 20))
            line.ask([self._addjob(line.machine) for _ in range(count)], self.travel())
        return 1 + int(rng.expovariate(self.load / 40))

    def _addjob(self, machine: Machine) -> tuple[Request, Callable[[Any, Any], None], Any]:
        rng = self.rng
        dice = rng.random()
        retry_s = rng.choice(self.retries_s)
        ttl_s = rng.choice((4, 8, 15)) if dice < 0.05 else 3_600
        copies = 0
        queue = rng.choice(self.queues)
        timeout_ms = rng.choice((0, 0, 200, 1_000, 3_000))
        options: list[str | int] = ["RETRY", retry_s]
        options += ["TTLMS", ttl_s * 1_000] if dice < TTLMS_SHARE else ["TTL", ttl_s]
        if retry_s:
            copies = rng.choice((1, 1, 2, 2, 3))
            options += ["REPLICATE", copies]
        if 0.05 < dice < 0.12:
            options += ["DELAY", 1 if ttl_s < 10 else rng.choice((1, 2))]
        elif 0.12 < dice < 0.18:
            options.append("ASYNC")
            copies = 0
        elif 0.18 < dice < 0.22:
            options += ["MAXLEN", rng.choice((5, 500))]
        promise = self.oracle.add(queue, rng.choice(BODIES), retry_s * 1000, ttl_s * 1000, copies, self.world.now_ms)
        promise.asked = machine
        return words("ADDJOB", queue, promise.body(), timeout_ms, *options), self._answered, promise

    def _answered(self, reply: Any, promise: Promise) -> None:
        if isinstance(reply, bytes):
            self.oracle.answered(promise, reply, self.world.now_ms)
            if promise.asked is not None:
                promise.asked.check_added(reply, promise.copies)


class Hands:
    """The work of a consumer: it takes jobs, and decides for each how its delivery ends."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._side: dict[str, Line] = {}
        # Some consumers only fetch and acknowledge. Others send every command for jobs.
        self._is_tidy = actor.rng.random() < 0.4

    def take(self, reply: Any, line: Line, then: Callable[[list[Promise], Machine], None]) -> None:
        """Handle the reply to a GETJOB, and call `then` with its jobs a moment later."""
        if not isinstance(reply, list):
            return
        actor = self._actor
        deliver, now_ms = actor.oracle.deliver, actor.world.now_ms
        promises = [deliver(entry[0], entry[1], entry[2], now_ms) for entry in reply]
        line.machine.check_delivered(reply, line.since, [])
        actor.world.later(1 + int(actor.rng.expovariate(1 / 15)), then, promises, line.machine)

    def work(self, promises: list[Promise], machine: Machine) -> None:
        """End the work on jobs: it succeeded or not."""
        rng = self._actor.rng
        done = []
        for promise in promises:
            dice = 0.0 if self._is_tidy else rng.random()
            if dice < 0.70:
                done.append(promise)
            elif dice < 0.76:  # At another node, which may not know the job.
                self._actor.world.later(0, self.acknowledge, [promise], None)
            elif dice < 0.82:  # Late, after the job was delivered to another consumer.
                self._actor.world.later(promise.retry_ms + rng.randrange(3_000), self.acknowledge, [promise], machine)
            elif dice < 0.86:  # Twice.
                self._actor.world.later(rng.randrange(500), self.acknowledge, [promise], None)
                done.append(promise)
            elif dice < 0.95:
                self._say(rng.choice(("NACK", "NACK", "WORKING", "ENQUEUE", "DEQUEUE")), promise, machine)
            elif dice < 0.98:
                self._delete("FASTACK", promise, machine)
        if done:
            self.acknowledge(done, machine)

    def acknowledge(self, promises: list[Promise], machine: Machine | None) -> None:
        """Send an ACKJOB to this node, or to any node if it is None or down."""
        if self._actor.is_over:
            return
        line = self.line_to(machine)
        if line is not None:
            for promise in promises:
                self._actor.oracle.acknowledging(promise, self._actor.world.now_ms)
            # A leaving node makes no dummy acks (spec V6), and a single node has no other node to tell.
            broker = line.broker
            counts = not broker.is_leaving and bool(broker.cluster.linked)
            request = words("ACKJOB", *(promise.id for promise in promises))
            line.ask([(request, self._acknowledged, (line, promises, counts))], self._actor.travel())

    def _acknowledged(self, reply: Any, asked: tuple[Line, list[Promise], bool]) -> None:
        line, promises, counts = asked
        if isinstance(reply, int):
            line.machine.check_acked([promise.id for promise in promises])
            for promise in promises if counts else ():
                self._actor.oracle.acknowledged(promise, self._actor.world.now_ms, line.machine)

    def _say(self, command: str, promise: Promise, machine: Machine) -> None:
        line = self.line_to(machine)
        if line is not None:
            self._actor.oracle.freeing(promise)
            promise.renewed += command == "ENQUEUE"
            promise.nacks += command == "NACK"
            line.ask([(words(command, promise.id), self.said, promise)], self._actor.travel())

    def said(self, reply: Any, promise: Promise) -> None:
        """Note the reply to a command that frees a job."""
        self._actor.oracle.freed(promise, self._actor.world.now_ms)

    def _delete(self, command: str, promise: Promise, machine: Machine) -> None:
        self._actor.oracle.acknowledging(promise, self._actor.world.now_ms, is_deletion=True)
        self._say(command, promise, machine)

    def line_to(self, machine: Machine | None) -> Line | None:
        """Return a second connection, for requests that must not wait behind a GETJOB."""
        if machine is None or not machine.is_up:
            machine = self._actor.pick(anywhere=True)
            if machine is None:
                return None
        line = self._side.get(machine.name)
        if line is None or not line.is_open:
            line = self._side[machine.name] = Line(self._actor.world, self._actor)
            self._actor.world.connect(machine, line)
        return line


class Consumer(Actor):
    """A client that fetches jobs and works on them."""

    SIDE: ClassVar[int] = 1

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._hands = Hands(self)

    def act(self) -> int:
        """Fetch, if the last fetch is over."""
        rng = self.rng
        line = self.free_line(0.02)
        if isinstance(line, int):
            return line
        wanted = self.some_queues(4)
        how: list[str | int] = ["NOHANG"] if rng.random() < 0.1 else ["TIMEOUT", rng.choice((20, 300, 2_000))]
        if rng.random() < 0.3:
            how.append("WITHCOUNTERS")
        request = words("GETJOB", *how, "COUNT", rng.choice((1, 1, 3, 10, 50)), "FROM", *wanted)
        line.since = line.machine.next_event()
        line.ask([(request, self._got, line)], self.travel())
        return 1 + int(rng.expovariate(self.load / 10))

    def _got(self, reply: Any, line: Line) -> None:
        self._hands.take(reply, line, self._hands.work)


class PatientConsumer(Actor):
    """A consumer that waits for jobs without a timeout, and goes on with a new connection when one breaks."""

    SIDE: ClassVar[int] = 1

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._hands = Hands(self)

    def act(self) -> int:
        """Wait, unless it already waits."""
        rng = self.rng
        line = self.free_line(0.01)
        if isinstance(line, int):
            return line
        wanted = self.some_queues(4)
        line.since = line.machine.next_event()
        line.forever = wanted
        line.ask([(words("GETJOB", "COUNT", rng.choice((1, 5)), "FROM", *wanted), self._got, line)], self.travel())
        return 1 + int(rng.expovariate(self.load / 10))

    def _got(self, reply: Any, line: Line) -> None:
        line.forever = []
        self._hands.take(reply, line, self._hands.work)


class Hoarder(Actor):
    """A consumer that collects hundreds of jobs, and then acknowledges each with its own command, in one burst."""

    SIDE: ClassVar[int] = 1

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._hands = Hands(self)
        self._hoard: list[tuple[Promise, Machine]] = []
        self._since_ms = 0

    def act(self) -> int:
        """Collect jobs, and acknowledge all when there are enough or it is time."""
        rng, now_ms = self.rng, self.world.now_ms
        if len(self._hoard) >= HOARD_MAX or (self._hoard and now_ms - self._since_ms > HOARD_MS):
            for promise, machine in self._hoard:
                where = None if rng.random() < 0.1 else machine
                self.world.later(rng.randrange(BURST_MS), self._hands.acknowledge, [promise], where)
            self._hoard = []
        line = self.free_line()
        if isinstance(line, int):
            return line
        line.since = line.machine.next_event()
        request = words("GETJOB", "TIMEOUT", 200, "COUNT", HOARD_MAX // 3, "FROM", *self.queues)
        line.ask([(request, self._got, line)], self.travel())
        return 10

    def _got(self, reply: Any, line: Line) -> None:
        self._hands.take(reply, line, self._keep)

    def _keep(self, promises: list[Promise], machine: Machine) -> None:
        if not self._hoard:
            self._since_ms = self.world.now_ms
        self._hoard += [(promise, machine) for promise in promises]


class Inspector(Actor):
    """A client that sends commands that change nothing."""

    QUESTIONS: Final = (
        ("PING",), ("INFO",), ("INFO", "all"), ("HELLO",), ("CLUSTER", "NODES"), ("CLUSTER", "INFO"), ("TIME",),
        ("CLIENT", "LIST"), ("SLOWLOG", "GET"), ("COMMAND", "COUNT"), ("CONFIG", "GET", "*"), ("LATENCY", "LATEST"),
        ("JSCAN", 0, "COUNT", 20), ("JSCAN", 0, "COUNT", 500, "REPLY", "all"), ("QSCAN", 0, "COUNT", 10),
    )  # fmt: skip

    def act(self) -> int:
        """Send a question."""
        rng = self.rng
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        dice = rng.random()
        if dice < 0.4:
            request = words(*rng.choice(self.QUESTIONS))
        elif dice < 0.7 or not self.oracle.by_id:
            request = words(*rng.choice((("QLEN",), ("QSTAT",))), rng.choice(self.queues))
        elif dice < 0.8:
            request = words("QPEEK", rng.choice(self.queues), rng.choice((5, -5)))
        else:
            promise = rng.choice(self.oracle.promises)
            request = words("SHOW", promise.id) if promise.id else words("PING")
        line.ask([(request, self.nothing, request)], self.travel())
        if rng.random() < 0.05:
            line.hang_up()
        return 5 + int(rng.expovariate(self.load / 100))
