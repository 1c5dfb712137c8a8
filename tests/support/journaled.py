"""A node with a journal for tests: real driver, real journal, on a folder in memory and a disk without threads.

`JournaledNode` is one process on a folder. `ask` is a turn with one command. The reply comes when the journal releases
it, after the test has run the disk (`work`, `settle`). `restart` returns the next process on the same folder.

At the end of each turn, the node records the promises in its memory and the position of the journal in a diary. So a
test may kill the node at any moment, and compare the folder with the states that a client could have seen
(`check_folder`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import hiredis

from brokers import ME, NOW_MS, WALL_MS, NotedHost
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.node import Node
from cluster_bus.nodes_file import NodeLine
from cluster_bus.outgoing import Outgoing
from disque_py.config.settings import Settings
from disque_py.core import journaling
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.job import ACKED, ACTIVE, QUEUED, WAIT_REPL, Job, memory_of
from disque_py.core.queue import LINE_BYTES, QUEUE_BYTES
from disque_py.core.queue_settings import Item
from disque_py.core.restoring import Restoring
from disque_py.node import dispatch
from disque_py.node.turn import Driver
from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.journal_service import JournalService
from persistence import layouts
from persistence.backup import NODES_NAME
from persistence.journal import Journal
from persistence.records import JOB, STATE
from persistence.recovery import DamagedJournalError, Recovery

# After a restart a job's moments may differ by this much, because spans are counted in whole milliseconds.
TOLERANCE_MS = 2
OTHER = b"\x02" * 20
RESTORED = -1
RESERVE_BYTES = 4096

State = dict[bytes, tuple[Any, ...]]


class JournalHost(NotedHost):
    """NotedHost with a journal."""

    journal_service: JournalService

    def apply_setting(self, name: str) -> None:
        if name == "appendonly":
            self.journal_service.switch()
        elif name == "appendfsync":
            self.journal_service.set_policy()

    def journal_fields(self) -> list[tuple[str, str | int]]:
        return self.journal_service.fields()

    def rewrite_journal(self) -> bool:
        return self.journal_service.rewrite()

    def backup_journal(
        self, name: str, settings: list[Item], done: Callable[[tuple[str, int, int] | OSError], None]
    ) -> None:
        self.journal_service.backup(name, {NODES_NAME: b"the nodes file"}, done)

    def reload_journal(self, done: Callable[[OSError | None], None]) -> None:
        self.journal_service.reload(done)

    def shutdown_refusal(self) -> str:
        return self.journal_service.refusal()

    def rewrite_for_shutdown(self, done: Callable[[OSError | None], None]) -> None:
        self.journal_service.rewrite_for_shutdown(lambda error: done(OSError(error) if error else None))


class Replies:
    """A client's connection: it takes the replies that the driver releases."""

    def __init__(self, node: JournaledNode) -> None:
        self.node = node
        self.client: Client
        self.reader = hiredis.Reader()
        self.asked: list[tuple[tuple[Any, ...], int, int, Journal | None]] = []
        self.got: list[Any] = []
        self.request: list[list[bytes]] = []  # Commands that were not run yet.

    def wake(self) -> None:
        out, self.client.out = self.client.out, []
        self.reader.feed(b"".join(out))
        while (reply := self.reader.gets()) is not False:
            words, position, level, journal = self.asked.pop(0)
            self.got.append(reply)
            self.node.on_reply(words, reply, position if journal is self.node.journal_service.journal else -1, level)

    def close(self, *, after_replies: bool) -> None:
        """Do nothing: the driver closes no connection here."""

    def input_bytes(self) -> int:
        return 0

    def output_bytes(self) -> int:
        return 0


class JournaledNode:
    """One process.

    folder, disk    its journal's directory, and the disk with the work that was started and is not done
    diary           (position, promises in memory), at the end of each turn
    promised        the position up to which the file must have all records, because of replies to clients
    deliveries      at-most-once jobs that clients got, over all processes
    restored        jobs that were read from the journal, and have no new record since
    """

    def __init__(
        self,
        folder: SimFolder | None = None,
        *,
        now_ms: int = NOW_MS,
        wall_ms: int = WALL_MS,
        segment_bytes: int = 1500,
        reserve_bytes: int = RESERVE_BYTES,
        deliveries: dict[bytes, int] | None = None,
        node_id: bytes = ME,
        run: int = 1,
        **settings: Any,
    ) -> None:
        self.folder = folder if folder is not None else SimFolder(Random(7))
        self.disk = InlineDisk(self.folder)
        self.ms, self.wall = now_ms, wall_ms
        self.settings = {"appendonly": True, "appendfsync": "always"} | settings
        self.segment_bytes = segment_bytes
        self.reserve_bytes = reserve_bytes
        self.node_id = node_id
        self.run = run
        self.log: list[str] = []
        self.diary: list[tuple[int, State, dict[bytes, Any]]] = []
        self.has_gap = False
        self.first_number = 0
        self.promised = 0
        self.deliveries = deliveries if deliveries is not None else {}
        self.failed = ""
        self.is_ready = False
        self.restored: set[bytes] = set()
        self._watched: Journal | None = None
        self.frames: list[tuple[Node, bytes]] = []
        values = Settings()
        for name, value in self.settings.items():
            setattr(values, name, value)
        outgoing = Outgoing()
        rng = Random(run)  # Each process must make different ids.
        membership = Membership(Node(node_id, "127.0.0.1", 7711, 17711), outgoing, rng, node_timeout_ms=15_000)
        host = JournalHost()
        self.broker = Broker(membership, outgoing, values, rng, host)
        dispatch.install(self.broker)
        self.driver = Driver(self.broker, membership, outgoing, self, self, lambda: None, lambda: None, self.log.append)
        self.journal_service = host.journal_service = JournalService(
            self.driver,
            lambda: self.disk,
            self.folder.close,
            self.log.append,
            segment_bytes=segment_bytes,
            reserve_bytes=reserve_bytes,
        )
        self.clients = [self._connect(number) for number in (1, 2)]
        self._turn(lambda: self.journal_service.start(self._ready, self._fail))

    def _ready(self) -> None:
        self.is_ready = True
        self._watch()

    def _watch(self) -> None:
        """Note from now on which jobs get records in the journal."""
        journal = self.journal_service.journal
        if journal is None or journal is self._watched:
            return
        if self._watched is not None:  # A new journal has its own positions.
            self.diary.clear()
            self.promised = 0
            self.first_number = journal.number
        self._watched = journal
        self.restored = {job_id for shard in filter(None, self.broker.shards) for job_id in shard}
        journal.watch = self._told

    def _told(self, runs: list[list[Any]], position: int) -> None:
        for run in runs:
            if run[0] in (JOB, STATE):
                self.restored.difference_update(item[0] for item in run[1:])

    def _fail(self, why: str) -> None:
        self.failed = why

    def _connect(self, number: int) -> Replies:
        port = Replies(self)
        port.client = Client(number, port, f"127.0.0.1:{number}", self.ms)
        self.broker.clients[number] = port.client
        return port

    # -- Clock and Wire ----------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.wall

    def stopwatch_ns(self) -> int:
        return 0

    def dial(self, node: Node) -> None:
        """Do nothing: there is no other node."""

    def hang_up(self, node: Node) -> None:
        """Do nothing: there was no other node."""

    def send(self, node: Node, frame: bytes) -> None:
        self.frames.append((node, frame))

    # -- turns -------------------------------------------------------------------------------------

    def _turn(self, *inputs_of_turn: Callable[[], None]) -> None:
        self.driver.begin()
        for port in self.clients:
            self._run(port)
        for each in inputs_of_turn:
            each()
        self.end_turn()

    def end_turn(self) -> None:
        """End the turn, as a loop does when nothing else is ready."""
        if self.driver.is_open:
            self.driver.finish()
            self._note()

    def ask(self, *words: str | bytes | int, client: int = 0) -> list[Any]:
        """Run a turn with one command, and return the replies that came in it."""
        self._turn(lambda: self.put(*words, client=client))
        return self.taken(client)

    def answer(self, *words: str | bytes | int) -> Any:
        """Run a command, let the disks work as long as needed, and return the reply."""
        got = self.ask(*words)
        for _ in range(5_000):
            if got:
                break
            if not self.work():
                self.pass_ms(1)
                self.tick()
            got = self.taken()
        return got[0] if got else None

    def put(self, *words: str | bytes | int, client: int = 0) -> None:
        """Give the node a command within a turn."""
        port = self.clients[client]
        if port.client.waiting:
            return
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        port.asked.append((tuple(argv), -1, self.broker.journal.disk_level, self.journal_service.journal))
        port.request = [argv]
        self._run(port)

    def _run(self, port: Replies) -> None:
        """Run the client's command, unless the client waits for an earlier one."""
        if port.request and not port.client.waiting:
            del port.request[: dispatch.execute(self.broker, port.client, port.request)]
            self.broker.outbox.clients[port.client] = None

    def taken(self, client: int = 0) -> list[Any]:
        """Return the replies since the last call."""
        got, self.clients[client].got = self.clients[client].got, []
        return got

    def tick(self) -> None:
        """Run a turn that does all due work."""
        self._turn(self.driver.tick)

    def say(self, sender: Node, kind: int, *items: Any) -> None:
        """Run a turn with messages of another node."""
        self._turn(lambda: self.driver.receive(sender, [[kind, *items]]))

    def other(self) -> Node:
        """Return another node, with a link to it."""
        membership = self.broker.membership
        if OTHER not in membership.table.nodes:
            membership.load([NodeLine(OTHER, "127.0.0.2", 7711, 17711, 0, 0, 0)])
        node = membership.table.intern(OTHER)
        if not node.is_linked:
            hello = Hello(OTHER, b"2" * 8, "", 7711, 17711, "0.1.0")
            self._turn(lambda: membership.link_up(node, hello, node.host, "127.0.0.1") and None)
        return node

    def work(self, lane: int | None = None) -> bool:
        """Let the disk do one piece of work. Its completion opens a turn."""
        if not self.disk.run_one(lane):
            return False
        self.end_turn()
        return True

    def settle(self, span_ms: int = 0) -> None:
        """Let time pass and the disk work, until there is no more immediate work."""
        end_ms = self.ms + span_ms
        for _ in range(20_000):
            while self.work():
                pass
            due_ms = self.driver.next_ms()
            if due_ms > end_ms and not self.disk.waiting:
                break
            step_ms = min(max(due_ms - self.ms, 0), max(end_ms - self.ms, 0))
            self.pass_ms(step_ms)
            self.tick()
        else:
            raise AssertionError("it never comes to rest")
        self.pass_ms(end_ms - self.ms)

    def pass_ms(self, span_ms: int) -> None:
        """Move the clocks on, without doing any work."""
        self.ms += span_ms
        self.wall += span_ms

    # -- ends --------------------------------------------------------------------------------------

    def stop(self) -> OSError | None:
        """End the process as SIGTERM does: all records and the clean mark are on disk."""
        outcome: list[OSError | None] = []
        self._turn(lambda: self.journal_service.close(outcome.append))
        self.settle()
        assert outcome
        return outcome[0]

    def restart(self, *, away_ms: int = 0, **settings: Any) -> JournaledNode:
        """Return the next process. This one has ended in some way."""
        self.folder.close()
        node = JournaledNode(
            self.folder,
            now_ms=self.ms + away_ms,
            wall_ms=self.wall + away_ms,
            segment_bytes=self.segment_bytes,
            reserve_bytes=self.reserve_bytes,
            deliveries=self.deliveries,
            node_id=self.node_id,
            run=self.run + 1,
            **(self.settings | settings),
        )
        node.settle()
        return node

    # -- what must hold ----------------------------------------------------------------------------

    def on_reply(self, words: tuple[Any, ...], reply: Any, position: int, level: int) -> None:
        """Check a reply that a client reads now."""
        journal = self.journal_service.journal
        name = words[0].lower()
        if name == b"getjob" and isinstance(reply, list):
            for entry in reply:
                if is_once(entry[1]):
                    self.deliveries[entry[1]] = self.deliveries.get(entry[1], 0) + 1
                    assert self.deliveries[entry[1]] == 1, "delivered twice"
        if journal is None or self.broker.is_loading or isinstance(reply, hiredis.ReplyError) or position < 0:
            return
        if name in PROMISES and not level:
            assert is_safe(journal, position), (words, position, journal.written, journal.synced)
            if position <= journal.written:  # Otherwise the disk was stuck, and replies no longer wait for it.
                self.promised = max(self.promised, position)

    def _note(self) -> None:
        """Add the promises in memory and the journal's position to the diary, at the end of a turn."""
        journal = self.journal_service.journal
        for port in self.clients if journal is not None else ():
            port.asked = [
                (words, journal.position if position < 0 else position, level, asked_of)
                for words, position, level, asked_of in port.asked
            ]
        if self.driver.loading is None:
            self._watch()
        if journal is None or (self.driver.compaction is not None and self.driver.compaction.is_first):
            self.diary.clear()
            self.has_gap = True
            return
        if self.driver.loading is None:
            state = {
                job_id: (RESTORED, *each[1:8]) if job_id in self.restored else each
                for job_id, each in state_of(self.broker).items()
            }
            self.diary.append((journal.position, state, pauses_of(self.broker)))

    def memory(self) -> State:
        """Return the promises of memory."""
        return state_of(self.broker)

    def recount(self) -> None:
        """Check that every sum equals the sum of its parts."""
        recount(self.broker)

    def read_folder(self, folder: SimFolder | None = None) -> tuple[Recovery, Restoring, Broker]:
        """Read the folder as a start does, without changing it. Raises DamagedJournalError."""
        folder = folder if folder is not None else self.folder
        broker = blank(self)
        recovery = Recovery(folder)
        restoring = Restoring(broker, recovery.newest.node if recovery.newest is not None else self.node_id)
        while not recovery.is_finished:
            for number, block in recovery.step():
                restoring.block(number, block.wall_ms, block.flags, block.runs)
        if lost := recovery.missing - restoring.dropped:
            raise DamagedJournalError(f"segment {min(lost)} is missing")
        restoring.end_reading()
        return recovery, restoring, broker

    def check_states(self) -> State:
        """Return the jobs that a reader of the folder finds."""
        return state_of(self.read_folder()[2], is_raw=True)

    def check_folder(self, folder: SimFolder | None = None, *, at_least: int = 0) -> int:
        """Check that the folder has the promises of one position from `at_least` on, and return the position."""
        recovery, restoring, broker = self.read_folder(folder)
        found = state_of(broker, is_raw=True)
        position = recovery.position
        assert position >= at_least, f"recovered up to {position}, but promised up to {at_least}"
        known = [(state, pauses) for end, state, pauses in self.diary if end <= position]
        newest = recovery.newest
        if self.has_gap and (not known or newest is None or newest.number < self.first_number):
            return position  # At this position the journal did not have all jobs yet.
        if newest is not None and not newest.before and position == newest.start:
            known = []  # A FLUSHALL began a new journal.
        expected, pauses = known[-1] if known else ({}, {})
        compare(found, expected, self.wall)
        assert {name: each for name, each in restoring.pauses.items() if each[0] or each[1]} == pauses
        recount_jobs(broker)
        return position


PROMISES = frozenset(
    (b"addjob", b"ackjob", b"fastack", b"deljob", b"enqueue", b"dequeue", b"pause", b"getjob", b"nack", b"working")
)


def is_once(job_id: bytes) -> bool:
    """Return whether this is the id of an at-most-once job."""
    return int(job_id[-4:], 16) & 1 == 0


def is_safe(journal: Journal, position: int) -> bool:
    """Return whether the policy lets a reply leave whose record ends at this position."""
    return (journal.synced if journal.policy == "always" else journal.written) >= position


def state_of(broker: Broker, *, is_raw: bool = False) -> State:
    """Return the journal's promises about each job. `is_raw`: as read, before jobs are put in their places."""
    found: State = {}
    for shard in filter(None, broker.shards):
        for job in shard.values():
            if job.state == WAIT_REPL:
                continue
            flags = journaling.flags_of(job)
            if is_raw and job.was_announced:
                flags |= layouts.IS_QUEUED
            if not job.retry_ms:  # A job that was handed over counts as delivered.
                flags |= layouts.IS_DELIVERED if flags & layouts.IS_GIVEN else 0
                flags &= ~layouts.IS_LEASED
            flags &= ~layouts.IS_GIVEN
            is_waiting = job.state == ACTIVE and not flags & layouts.IS_QUEUED
            due_ms = job.requeue_at_ms - broker.now_ms + broker.wall_ms if is_waiting and job.requeue_at_ms else 0
            found[job.id] = (
                flags,
                job.queue,
                job.body,
                job.ctime,
                job.retry_ms,
                job.delay_ms,
                job.replicate,
                tuple(sorted(node.id for node in job.holders)),
                job.attempt,
                job.nacks,
                job.deliveries,
                due_ms,
                job.expire_at_ms - broker.now_ms + broker.wall_ms,
            )
    return found


def pauses_of(broker: Broker) -> dict[bytes, Any]:
    """Return for each queue how it is paused, with the version if it was set with BCAST."""
    names = [name for name, queue in broker.queues.items() if queue.paused] + list(broker.pauses.versions)
    return {name: journaling.pause_of(broker, name)[1:] for name in names}


def compare(found: State, expected: State, wall_ms: int) -> None:
    """Check that both states are equal. Moments may differ by a tolerance, and past moments count as equal."""
    assert sorted(found) == sorted(expected)
    for job_id, said in found.items():
        known = expected[job_id]
        if known[0] == RESTORED:
            # The journal has no new record, so another restart would give the same state.
            assert said[1:8] == known[1:], (job_id, said, known)
            continue
        assert said[:-2] == known[:-2], (job_id, said, known)
        assert bool(said[-2]) == bool(known[-2]), (job_id, said, known)
        for theirs, ours in zip(said[-2:], known[-2:], strict=True):
            late_ms = max(theirs, wall_ms) - max(ours, wall_ms)
            # News of other holders postpones our timer. If such news is forgotten, that costs one question.
            is_free = theirs is said[-2] and (theirs <= wall_ms or not said[0] & layouts.IS_LEASED)
            assert late_ms <= TOLERANCE_MS, (job_id, said, known)
            assert is_free or late_ms >= -TOLERANCE_MS, (job_id, said, known)


def recount_jobs(broker: Broker) -> None:
    """Check the sums over jobs while no job is in its place yet."""
    jobs = [job for shard in filter(None, broker.shards) for job in shard.values()]
    assert broker.job_count == len(jobs)
    # Lower positions belong to a journal that has ended.
    broker.journal.settle()
    first_place = broker.journal.first_place if broker.is_journaling or not broker.journal.live_bytes else 1
    living = live_bytes([job for job in jobs if job.place >= first_place])
    assert {number: size for number, size in broker.journal.live_bytes.items() if size} == living
    counted = {number: count for number, count in broker.journal.live_records.items() if count}
    places = [job.place for job in jobs if job.place >= max(first_place, 1)]
    assert counted == {place: places.count(place) for place in dict.fromkeys(places)}


def recount(broker: Broker) -> None:
    """Check all sums that a running node keeps."""
    recount_jobs(broker)
    jobs = [job for shard in filter(None, broker.shards) for job in shard.values()]
    assert broker.used_memory == sum(map(memory_of, jobs)) + sum(
        QUEUE_BYTES + len(name) + LINE_BYTES * len(queue.waiting) for name, queue in broker.queues.items()
    )
    assert broker.memory.acked_count == sum(job.state == ACKED for job in jobs)
    assert broker.memory.once_delivered_count == sum(
        not job.retry_ms and job.is_delivered and job.state != ACKED for job in jobs
    )
    for name, queue in broker.queues.items():
        assert queue.length == sum(job.state == QUEUED and job.queue == name for job in jobs)


def live_bytes(jobs: list[Job]) -> dict[int, int]:
    """Return for each segment the bytes of its live bases."""
    found: dict[int, int] = {}
    for job in jobs:
        if job.place:
            found[job.place] = found.get(job.place, 0) + journaling.base_bytes(job)
    return found


def blank(node: JournaledNode) -> Broker:
    """Return an empty broker of the same node, at the same moment."""
    outgoing = Outgoing()
    me = Node(node.node_id, "127.0.0.1", 7711, 17711)
    membership = Membership(me, outgoing, Random(1), node_timeout_ms=15_000)
    broker = Broker(membership, outgoing, Settings(), Random(2), NotedHost())
    broker.now_ms, broker.wall_ms = node.ms, node.wall
    broker.schedule.begin(node.ms)
    return broker
