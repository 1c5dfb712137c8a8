"""Driver: one turn after another, the same for the server and the simulator.

A turn begins with the first input after a pause of the loop, reads the clock once, takes any number of inputs,
and ends with `finish`: waiting clients are served, records go to the journal, messages to other nodes (each
node gets one write), replies to clients. So a thousand commands of fifty clients cost one write per client and
node.

Wire, Clock and clients' ports do the actual work; nothing here knows asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster_bus.codec import encode_runs, frames
from cluster_bus.membership import Membership
from cluster_bus.node import Node
from cluster_bus.outgoing import Outgoing
from disque_py import inputs
from disque_py.core import timers
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.ports import Clock, Wire

# Items per frame: a receiver handles a frame in one go, which must not take long.
ITEMS_PER_RUN: Final = 512
FRAME_BYTES: Final = 128 * 1024


class Driver:
    """Runs the turns of one node.

    `on_turn` is called when a turn begins, so that the outside calls `finish` soon; `save_nodes` when the nodes
    file is to be written.
    """

    def __init__(
        self,
        broker: Broker,
        membership: Membership,
        outgoing: Outgoing,
        wire: Wire,
        clock: Clock,
        on_turn: Callable[[], None],
        save_nodes: Callable[[bool], None],
        notice: Callable[[str], None],
    ) -> None:
        self.broker = broker
        self.membership = membership
        self.outgoing = outgoing
        self.wire = wire
        self.clock = clock
        self.is_open = False
        self.has_more = False
        self.turns = 0
        self._on_turn = on_turn
        self._save_nodes = save_nodes
        self._notice = notice
        self.read_clock()
        broker.started_ms = broker.housekept_ms = broker.now_ms
        broker.stopwatch_ns = clock.stopwatch_ns

    def read_clock(self) -> None:
        """Time as this turn sees it."""
        broker = self.broker
        now_ms = self.clock.now_ms()
        wall_ms = self.clock.wall_ms()
        broker.now_ms = now_ms
        broker.wall_ms = wall_ms
        broker.schedule.begin(now_ms)
        broker.timeouts.now_ms = now_ms
        self.membership.now_ms = now_ms
        self.membership.wall_ms = wall_ms

    def begin(self) -> None:
        """Before an input: open a turn if none is."""
        if not self.is_open:
            self.is_open = True
            self.turns += 1
            self.read_clock()
            self._on_turn()

    def receive(self, sender: Node, runs: list[Any]) -> None:
        """A frame of job messages from a known node; MalformedMessageError closes its link."""
        self.begin()
        self._drain_tray()  # A link to a new process of the sender comes before what that process says.
        inputs.receive(self.broker, sender, runs)

    def tick(self) -> None:
        """Time passed; call at `next_ms`."""
        self.begin()
        if self.broker.now_ms >= self.membership.next_tick_ms():
            self.membership.tick()
        self.has_more = inputs.tick(self.broker)

    def next_ms(self) -> int:
        """The moment (monotonic) `tick` has to be called at."""
        if self.has_more:
            return self.broker.now_ms
        return min(self.membership.next_tick_ms(), timers.next_ms(self.broker))

    def finish(self) -> None:
        """Close the turn: all it wanted done outside is done now, in the order that promises need."""
        broker = self.broker
        self._drain_tray()
        inputs.settle(broker)
        self._drain_tray()
        if self.outgoing.runs:
            self._send_messages()
        # Flushing may let a client's pipeline go on, which belongs to the next turn.
        self.is_open = False
        clients = broker.outbox.clients
        if clients:
            broker.outbox.clients = {}
            self._flush(clients)

    def _flush(self, clients: dict[Client, None]) -> None:
        for client in clients:
            client.port.wake()

    def _drain_tray(self) -> None:
        """What membership wants done: links, the nodes file, and news for the core."""
        tray = self.membership
        while tray.hang_ups or tray.dials or tray.new_runs or tray.link_events or tray.forgotten or tray.notices:
            hang_ups, tray.hang_ups = tray.hang_ups, []
            dials, tray.dials = tray.dials, []
            new_runs, tray.new_runs = tray.new_runs, []
            link_events, tray.link_events = tray.link_events, []
            forgotten, tray.forgotten = tray.forgotten, []
            notices, tray.notices = tray.notices, []
            for node in hang_ups:
                self.wire.hang_up(node)
            for node in dials:
                self.wire.dial(node)
            for node in new_runs:
                inputs.new_run(self.broker, node)
            for node, is_up in link_events:
                if is_up:
                    inputs.link_up(self.broker, node)
            for node in forgotten:
                inputs.forgotten(self.broker, node)
            for line in notices:
                self._notice(line)
        tray.address_changed.clear()
        if tray.must_save or tray.must_sync:
            must_sync = tray.must_sync
            tray.must_save = tray.must_sync = False
            self._save_nodes(must_sync)

    def _send_messages(self) -> None:
        """Encode each run once, however many nodes get it; one write per node."""
        parts: dict[Node, list[bytes]] = {}
        sent = 0
        for nodes, kind, items in self.outgoing.take():
            linked = [node for node in nodes if node.is_linked]
            if not linked:
                continue
            sent += len(items) * len(linked)
            if len(items) <= ITEMS_PER_RUN:
                encoded = encode_runs(kind, items)
            else:
                encoded = []
                for at in range(0, len(items), ITEMS_PER_RUN):
                    encoded += encode_runs(kind, items[at : at + ITEMS_PER_RUN])
            for node in linked:
                known = parts.get(node)
                if known is None:
                    parts[node] = list(encoded)
                else:
                    known += encoded
        self.outgoing.sent_count += sent
        for node, encoded in parts.items():
            self.wire.send(node, b"".join(frames(node.protocol, encoded, FRAME_BYTES)))
