"""Driver: runs the turns of a node, the same for the server and the simulator.

A turn begins with the first input after a pause of the loop. It reads the clock once and takes any number of inputs.
It ends with `finish`: waiting clients are served, records go to the journal, messages to other nodes, and replies to
clients. Each node and each client gets one write. So a thousand commands of fifty clients cost one write per client
and node.

The Wire, the Clock and the clients' ports do the input and output. Nothing here knows asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from cluster_bus.codec import encode_runs, frames
from cluster_bus.membership import Membership
from cluster_bus.messages import GOTMANY, REPLMANY
from cluster_bus.node import Node
from cluster_bus.outgoing import Outgoing
from disque_py.core import journaling, shared_copies, timers
from disque_py.core.broker import Broker
from disque_py.core.broker_parts import NO_PLACE
from disque_py.core.versions import SHARED_COPIES
from disque_py.log_lines import line
from disque_py.node import dispatch
from disque_py.node.commit_position import CommitPosition
from disque_py.node.output_commit import OutputCommit
from disque_py.ports import Clock, Wire
from disque_py.storage.compaction import Compaction
from disque_py.storage.loading import Loading
from disque_py.storage.spill_service import SpillService
from persistence.event_log import EventLog
from persistence.journal import Journal

# Items per frame: a receiver handles a whole frame at once, which must not take long.
ITEMS_PER_RUN: Final = 512
FRAME_BYTES: Final = 128 * 1024


class EventTurns(Protocol):
    """The event log of a node, as its turns see it (storage/event_log_service.py)."""

    def set_clock(self, now_ms: int, wall_ms: int) -> None:
        """Begin a turn with this time."""

    def record(self) -> None:
        """End a turn: its events go to the log."""

    def tick(self) -> None:
        """Do the work that is due."""

    def next_ms(self) -> int | None:
        """Return when `tick` has to be called; None: at no certain time."""


class Driver:
    """Runs the turns of one node.

    The driver calls `on_turn` when a turn begins, so that the outside calls `finish` soon. It calls `save_nodes` when
    the nodes file is to be written.
    """

    def __init__(
        self,
        broker: Broker,
        membership: Membership,
        outgoing: Outgoing,
        wire: Wire,
        clock: Clock,
        on_turn: Callable[[], None],
        save_nodes: Callable[[], None],
        notice: Callable[[str], None],
    ) -> None:
        self.broker = broker
        self.membership = membership
        self.outgoing = outgoing
        self.wire = wire
        self.clock = clock
        self.is_open = False
        self.has_more = False
        # The last millisecond in which messages were sent.
        self._sent_ms = 0
        # Whether messages of earlier turns wait for it to end.
        self.is_gathering = False
        # Whether the timer has stopped, so that none may wait.
        self._is_ending = False
        # Whether the end of the turn waits for a quick disk.
        self._is_waiting = False
        # Results of `next_ms`: whether `tick` is called for these messages, and when other work is due.
        self._is_for_messages = False
        self._work_ms = 0
        self.turns = 0
        # With a journal or an event log: the replies and messages that wait for them.
        self.output_commit: OutputCommit | None = None
        # With an event log: journal and event log as one.
        self.commit_position: CommitPosition | None = None
        self.events: EventTurns | None = None
        self.loading: Loading | None = None
        self.compaction: Compaction | None = None
        self.spill: SpillService | None = None
        self._on_turn = on_turn
        self._save_nodes = save_nodes
        # Writes the nodes file so that a kill can't lose it, without waiting for the disk.
        self.write_nodes: Callable[[], None] | None = None
        self._notice = notice
        self.read_clock()
        broker.started_ms = broker.upkeep.housekept_ms = broker.now_ms
        broker.stopwatch_ns = clock.stopwatch_ns

    @property
    def journal(self) -> Journal | None:
        """The journal that turns are recorded in, if there is one."""
        output_commit = self.output_commit
        return output_commit.journal if output_commit is not None else None

    def read_clock(self) -> None:
        """Read the clock once, for all parts that work in this turn."""
        broker = self.broker
        now_ms = self.clock.now_ms()
        wall_ms = self.clock.wall_ms()
        broker.now_ms = now_ms
        broker.wall_ms = wall_ms
        broker.schedule.begin(now_ms)
        broker.waits.timeouts.now_ms = now_ms
        table = broker.cluster
        table.now_ms = now_ms
        table.wall_ms = wall_ms
        journal = self.journal
        if journal is not None:
            journal.set_clock(now_ms, wall_ms)
        if self.events is not None:
            self.events.set_clock(now_ms, wall_ms)

    def attach(self, journal: Journal, compaction: Compaction, first_place: int) -> None:
        """Record turns in this journal from now on; replies and messages wait for their records.

        first_place   the first segment that may hold bases of this journal
        """
        journal.set_clock(self.broker.now_ms, self.broker.wall_ms)
        commit_position = self.commit_position
        if commit_position is not None:
            commit_position.journal = journal
        if self.output_commit is None:
            self.output_commit = OutputCommit(self.broker, journal, commit_position or journal)
        else:
            self.output_commit.journal = journal
            self.output_commit.commit_position = commit_position or journal
        self.compaction = compaction
        self.broker.is_journaling = True
        self.broker.journal.first_place = first_place
        journal.begin()

    def detach(self) -> None:
        """Stop recording turns: nothing waits for the journal any more. Events are waited for as before (spec E4)."""
        broker = self.broker
        self.compaction = None
        output_commit = self.output_commit
        if self.commit_position is not None:
            self.commit_position.remove_journal()
            if output_commit is not None:
                output_commit.journal = None
        elif output_commit is not None:
            output_commit.release_all()
            self.output_commit = None
        broker.is_journaling = False
        journaling.clear(broker)
        broker.outbox.gone.clear()
        broker.outbox.pauses = {}
        broker.outbox.moved = {}
        broker.outbox.tokens = {}
        broker.outbox.keys = {}
        broker.outbox.results = {}
        broker.batches.recorded = {}
        broker.outbox.is_void = False
        broker.journal.first_place = NO_PLACE
        broker.journal.live_bytes = {}
        broker.journal.live_records = {}
        broker.journal.stale_places = set()
        broker.journal.disk_level = 0
        broker.journal.disk_trouble = ""

    def attach_events(self, events: EventTurns) -> None:
        """Record the events of turns from now on."""
        self.events = events
        events.set_clock(self.broker.now_ms, self.broker.wall_ms)

    def wait_for_events(self, log: EventLog) -> None:
        """Let replies and messages wait for this log, too."""
        if self.commit_position is None:
            journal = self.journal
            self.commit_position = CommitPosition(journal, journal.position if journal is not None else 0)
            if self.output_commit is None:
                self.output_commit = OutputCommit(self.broker, None, self.commit_position)
            else:
                self.output_commit.commit_position = self.commit_position
        self.commit_position.events = log

    def detach_events(self) -> None:
        """Stop recording events: nothing waits for them any more."""
        self.events = None
        if self.commit_position is not None:
            self.commit_position.events = None

    def link_up(self, node: Node) -> None:
        """Treat a link that came up during the loading as if it came up now."""
        self.begin()
        dispatch.link_up(self.broker, node)

    def wake(self) -> None:
        """Open a turn, and have `tick` called soon."""
        self.begin()
        self.has_more = True

    def journal_changed(self) -> None:
        """Take note of progress or errors of the disk. Clients that waited for it go on at the end of this turn."""
        if not self.is_open:
            self.begin()
        journal = self.journal
        if journal is None:
            return
        broker = self.broker
        if self.loading is not None or (self.compaction is not None and self.compaction.is_running):
            self.has_more = True
        if journal.level != broker.journal.disk_level:
            self.has_more |= self._is_waiting  # Queues that are woken need a turn.
            if journal.level > broker.journal.disk_level == 0:
                self._notice(line("journal-refused", reason=journal.refusal_reason))
            elif not journal.level:
                self._notice(line("journal-recovered"))
                for queue in broker.queues.values():
                    if queue.length:
                        broker.wake(queue)
                        broker.owe_hint(queue)
            broker.journal.disk_level = journal.level
        broker.journal.disk_trouble = journal.refusal_reason

    def begin(self) -> None:
        """Open a turn before an input, if none is open."""
        if not self.is_open:
            self.is_open = True
            self.turns += 1
            self.read_clock()
            self._on_turn()
        elif self._is_waiting:
            self.has_more = True  # This turn has been settled and recorded, so the input needs another one.

    def receive(self, sender: Node, runs: list[Any]) -> None:
        """Handle a frame of job messages from a known node. MalformedMessageError: the caller closes its link."""
        self.begin()
        self._drain_tray()  # The news of the sender's new process comes before the messages of that process.
        dispatch.receive(self.broker, sender, runs)

    def tick(self) -> None:
        """Do the work that is due. The outside calls this at `next_ms`."""
        self.begin()
        if self._is_for_messages and self.broker.now_ms < self._work_ms and not self.has_more:
            return  # Only messages are due, which the end of the turn sends.
        if self.broker.now_ms >= self.membership.next_tick_ms():
            self.membership.tick()
        self.has_more = dispatch.tick(self.broker)
        if self.loading is not None:
            self.has_more |= self.loading.step()
        journal = self.journal
        if journal is not None:
            journal.tick()
        if self.events is not None:
            self.events.tick()
        if self.compaction is not None:
            self.has_more |= self.compaction.step()

    def next_ms(self) -> int:
        """Return the monotonic moment at which `tick` has to be called."""
        if self.has_more:
            return self.broker.now_ms
        at_ms = min(self.membership.next_tick_ms(), timers.next_ms(self.broker))
        journal = self.journal
        if journal is not None:
            journal_ms = journal.next_ms()
            if journal_ms is not None and journal_ms < at_ms:
                at_ms = journal_ms
        if self.events is not None:
            events_ms = self.events.next_ms()
            if events_ms is not None and events_ms < at_ms:
                at_ms = events_ms
        self._work_ms = at_ms
        self._is_for_messages = self.is_gathering and self._sent_ms < at_ms - 1
        return self._sent_ms + 1 if self._is_for_messages else at_ms

    def finish(self) -> None:
        """Close the turn: do its work on the outside, records before the messages and replies that rely on them."""
        broker = self.broker
        self._drain_tray()
        dispatch.settle(broker)
        self._drain_tray()
        spill = self.spill
        if spill is not None:
            spill.settle()
        output_commit = self.output_commit
        if output_commit is not None and output_commit.journal is not None:
            output_commit.record()
            if self.loading is not None:
                self.loading.recorded(output_commit.journal.position)
        if spill is not None:
            spill.write()
        self._is_waiting = True
        if self.events is not None:
            self.events.record()
        if output_commit is not None and output_commit.journal is not None:
            output_commit.journal.await_write()  # Meanwhile, the events were written.
        self._is_waiting = False
        if self.commit_position is not None:
            self.commit_position.note()
        if self.outgoing.runs or (output_commit is not None and output_commit.is_waiting):
            if self._may_gather():
                self.is_gathering = True
            else:
                self._send_messages()
        if broker.waits.incremental and len(broker.waits.incremental) > len(broker.waits.stalled):
            self.has_more = True  # A long command is not over: its next part is due at once.
        # A client that is woken may run its next requests: they belong to the next turn.
        self.is_open = False
        self._is_for_messages = False
        outbox = broker.outbox
        served = outbox.served
        if served:
            outbox.served = []
        clients = outbox.clients
        if clients:
            outbox.clients = {}
        if output_commit is not None:
            if served:
                output_commit.hold_replies(served)
            if clients:
                output_commit.hold_replies(list(clients))
        released = output_commit.released() if output_commit is not None and output_commit.is_waiting else []
        for client in served:
            client.port.wake()
        for client in clients:
            client.port.wake()
        for client in released:
            client.port.wake()

    def release(self) -> None:
        """Release replies and messages that waited for a log that has advanced. No turn is needed for that."""
        output_commit = self.output_commit
        if self.is_open or output_commit is None:
            return
        if output_commit.has_messages:
            self._send_messages()
        for client in output_commit.released():
            client.port.wake()

    def _drain_tray(self) -> None:
        """Do membership's work: hang up and dial links, save the nodes file, pass news on to the core."""
        tray = self.membership.tray
        self.write_first()
        while tray.hang_ups or tray.dials or tray.new_runs or tray.link_events or tray.forgotten or tray.notices:
            hang_ups, tray.hang_ups = tray.hang_ups, {}
            dials, tray.dials = tray.dials, {}
            new_runs, tray.new_runs = tray.new_runs, []
            link_events, tray.link_events = tray.link_events, []
            forgotten, tray.forgotten = tray.forgotten, []
            for node in hang_ups:
                self.wire.hang_up(node)
            for node in dials:
                self.wire.dial(node)
            for node in new_runs:
                self._leave_out(node)
                dispatch.new_run(self.broker, node)
            for node, is_up in link_events:
                tray.note("link-up" if is_up else "link-down", node)
                if is_up:
                    dispatch.link_up(self.broker, node)
                else:
                    dispatch.link_lost(self.broker, node)
            for node in forgotten:
                self._leave_out(node)
                dispatch.forgotten(self.broker, node)
            notices, tray.notices = tray.notices, []
            for name, fields in notices:
                self._notice(line(name, **fields))
            self.write_first()
        if tray.address_changed:
            tray.address_changed.clear()
        if tray.must_save:
            tray.must_save = False
            self._save_nodes()

    def write_first(self) -> None:
        """Write the nodes file before other nodes are told of its contents."""
        tray = self.membership.tray
        if tray.must_write:
            tray.must_write = False
            if self.write_nodes is not None:
                self.write_nodes()

    def _leave_out(self, node: Node) -> None:
        """Drop the messages meant for this node's process: its next process must not get them."""
        self.outgoing.leave_out(node)
        if self.output_commit is not None:
            self.output_commit.leave_out(node)

    def _may_gather(self) -> bool:
        """Return whether the messages wait for those of the next turns, until this millisecond is over. Spec N11.

        A frame costs its sender and its receiver more than the messages of a few jobs. So messages that can wait leave
        once in a millisecond at most. An urgent message takes along those before it, so their order is kept.
        """
        if self.broker.now_ms != self._sent_ms or self.outgoing.is_urgent or self._is_ending:
            return False
        output_commit = self.output_commit
        return output_commit is None or not output_commit.is_waiting

    def stop_gathering(self) -> None:
        """Send the messages that wait for those of the next turns, and let none wait from now on."""
        self._is_ending = True
        if self.is_gathering and not self.is_open:
            self._send_messages()

    def _send_messages(self) -> None:
        """Send the messages that may go: encode each run once for all nodes, and write once per node."""
        self.is_gathering = False
        self._sent_ms = self.broker.now_ms
        parts: dict[Node, list[bytes]] = {}
        sent = 0
        runs = self.outgoing.take()
        if self.output_commit is not None:
            runs = self.output_commit.hold_messages(runs)
        for nodes, kind, items in runs:
            linked = [node for node in nodes if node.is_linked]
            if not linked:
                continue
            sent += len(items) * len(linked)
            version = linked[0].protocol
            encoded = _encoded(kind, items, version)
            for node in linked:
                if node.protocol != version:  # A cluster in the middle of an upgrade.
                    version = node.protocol
                    encoded = _encoded(kind, items, version)
                known = parts.get(node)
                if known is None:
                    parts[node] = list(encoded)
                else:
                    known += encoded
        outgoing = self.outgoing
        outgoing.sent_count += sent
        for node, encoded in parts.items():
            data = b"".join(frames(node.protocol, encoded, FRAME_BYTES))
            outgoing.sent_bytes += len(data)
            self.wire.send(node, data)


def _encoded(kind: int, items: list[Any], version: int) -> list[bytes]:
    """Return the items as runs of at most ITEMS_PER_RUN."""
    if kind in (REPLMANY, GOTMANY):
        return _encoded_many(kind, items, version)
    if len(items) <= ITEMS_PER_RUN:
        return encode_runs(kind, items, version)
    encoded: list[bytes] = []
    for at in range(0, len(items), ITEMS_PER_RUN):
        encoded += encode_runs(kind, items[at : at + ITEMS_PER_RUN], version)
    return encoded


def _encoded_many(kind: int, items: list[Any], version: int) -> list[bytes]:
    """Return items of jobs that were made together as runs that a node of this version knows."""
    encoded: list[bytes] = []
    for at in range(0, len(items), shared_copies.ITEMS_PER_RUN):
        some = items[at : at + shared_copies.ITEMS_PER_RUN]
        if version >= SHARED_COPIES:
            encoded += encode_runs(kind, some, version)
        else:
            older, plain = shared_copies.for_older(kind, some)
            encoded += _encoded(older, plain, version)
    return encoded
