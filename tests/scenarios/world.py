"""A cluster in one process, on a virtual clock: the real Driver, Membership and core over a wire made of lists.

Frames are encoded and decoded as on a real link and arrive `delay_ms` later, in order per link. Links can be
cut in one direction, nodes crash (their memory is gone, a restart is a new run) and pause. The same seed gives
the same world. """

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

import hiredis

from cluster_bus.codec import Decoder
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.messages import FIRST_JOB_KIND, NAMES
from cluster_bus.node import Node
from cluster_bus.outgoing import Outgoing
from disque_py import inputs
from disque_py.config.settings import Settings
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, Client
from disque_py.driver import Driver

START_MS = 1_000_000
WALL_START_MS = 1_700_000_000_000


class WorldHost:
    """The process around a broker: here there is none."""

    def log(self, level: str, text: str) -> None:
        """Nobody reads the log."""

    def rss_bytes(self) -> int:
        return 0


class Member:
    """One node of the world: its broker and driver, and the wire that the driver sends on."""

    def __init__(self, world: World, name: str, node_id: bytes, seed: int, settings: dict[str, Any]) -> None:
        self.world = world
        self.name = name
        self.node_id = node_id
        self.seed = seed
        self.settings = settings
        self.wall_offset_ms = 0
        self.is_up = False
        self.is_paused = False
        self.runs = 0
        self.held: list[Any] = []
        self.links: dict[bytes, int] = {}  # receiver id -> serial of our link to it
        self.driver: Driver
        self.broker: Broker
        self.membership: Membership
        self.boot()

    def boot(self, known: tuple[Node, ...] = ()) -> None:
        """Start a process: fresh memory, a new run, the nodes file's knowledge of others."""
        self.runs += 1
        values = Settings()
        for name, value in self.settings.items():
            setattr(values, name, value)
        rng = Random(self.seed * 1000 + self.runs)
        outgoing = Outgoing()
        me = Node(self.node_id, self.name, 7711, 17711)
        me.run = rng.randbytes(8)
        self.membership = Membership(me, outgoing, rng, node_timeout_ms=values.cluster_node_timeout)
        self.broker = Broker(self.membership, outgoing, values, rng, WorldHost())  # type: ignore[arg-type]  # a host without a process
        inputs.install(self.broker)
        self.links = {}
        self.is_up = True
        self.driver = Driver(
            self.broker, self.membership, outgoing, self, self, lambda: None, lambda _: None, lambda _: None
        )
        for node in known:
            self.membership.meet(node.host, node.port, node.bus_port)

    # Clock
    def now_ms(self) -> int:
        return self.world.now_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self.world.now_ms - START_MS + self.wall_offset_ms

    def stopwatch_ns(self) -> int:
        return 0

    # Wire
    def dial(self, node: Node) -> None:
        self.world.dial(self, node)

    def hang_up(self, node: Node) -> None:
        self.links.pop(node.id, None)

    def send(self, node: Node, frame: bytes) -> None:
        self.world.post(self, node, frame)


class Talker:
    """A client connection of the world: `replies` holds what it was answered, in order."""

    def __init__(self, world: World, member: Member, number: int) -> None:
        self.world = world
        self.member = member
        self.client = Client(number, self, f"c{number}", world.now_ms)
        self.reader = hiredis.Reader()
        self.replies: list[Any] = []
        self.requests: list[list[bytes]] = []
        self.is_closed = False
        self.wanted: dict[str, Any] = {}  # What the test wants to remember of it.
        member.broker.clients[number] = self.client

    def say(self, *words: str | bytes | int) -> None:
        """Send a command; it runs now, or when the client may go on."""
        self.requests.append([word if isinstance(word, bytes) else str(word).encode() for word in words])
        self.go_on()

    def go_on(self) -> None:
        if self.requests and self.member.is_up and not self.member.is_paused:
            self.member.driver.begin()
            done = inputs.execute(self.member.broker, self.client, self.requests)
            del self.requests[:done]
            self.member.broker.outbox.clients[self.client] = None
            self.member.driver.finish()

    # ClientPort
    def wake(self) -> None:
        if self.client.out:
            self.reader.feed(b"".join(self.client.out))
            self.client.out.clear()
        while True:
            reply = self.reader.gets()
            if reply is False:
                break
            self.replies.append(reply)
        if self.requests and self.client.waiting == RUNNING:
            self.world.later(0, self.go_on)

    def close(self, *, after_replies: bool) -> None:
        self.is_closed = True

    def input_bytes(self) -> int:
        return 0

    def output_bytes(self) -> int:
        return 0

    def hang_up(self) -> None:
        """The connection breaks."""
        self.is_closed = True
        if self.member.is_up and self.client.id in self.member.broker.clients:
            self.member.driver.begin()
            inputs.disconnect(self.member.broker, self.client)
            self.member.driver.finish()


class World:
    """All nodes, the wire between them, and time."""

    def __init__(self, names: str, seed: int = 1, *, delay_ms: int = 1, **settings: Any) -> None:
        self.now_ms = START_MS
        self.rng = Random(seed)
        self.delay_ms = delay_ms
        self.cuts: set[tuple[str, str]] = set()
        self.trace: list[str] = []
        self.drop: Any = None  # a predicate (sender name, receiver name, kind, item) -> lose this message
        self._events: list[tuple[int, int, Any]] = []
        self._serial = 0
        self._clients = 0
        self.members: dict[str, Member] = {}
        for at, name in enumerate(names):
            node_id = bytes([ord(name)]) * 20
            self.members[name] = Member(self, name, node_id, seed * 100 + at, settings)
        self.talkers: list[Talker] = []

    def __getitem__(self, name: str) -> Broker:
        return self.members[name].broker

    def join(self) -> None:
        """Make all nodes meet, and wait until everybody has a link to everybody."""
        first, *others = self.members.values()
        for member in others:
            first.driver.begin()
            first.membership.meet(member.name, 7711)
            first.driver.finish()
        self.until(lambda: all(len(m.membership.linked) == len(self.members) - 1 for m in self.members.values()))

    def client(self, name: str) -> Talker:
        """A new connection to a node."""
        self._clients += 1
        talker = Talker(self, self.members[name], self._clients)
        self.talkers.append(talker)
        return talker

    def ask(self, name: str, *words: str | bytes | int, within_ms: int = 10_000) -> Any:
        """A command on a new connection; its reply."""
        talker = self.client(name)
        talker.say(*words)
        self.until(lambda: bool(talker.replies), within_ms)
        reply = talker.replies[0]
        talker.hang_up()
        return reply

    # -- events --------------------------------------------------------------------------------

    def later(self, span_ms: int, call: Any) -> None:
        """Have something happen after `span_ms`."""
        self._serial += 1
        heappush(self._events, (self.now_ms + span_ms, self._serial, call))

    def run(self, span_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + span_ms
        while self.step(end_ms):
            pass
        self.now_ms = end_ms

    def until(self, condition: Any, within_ms: int = 10_000) -> None:
        """Let time pass until the condition holds; fail if it doesn't in time."""
        end_ms = self.now_ms + within_ms
        while not condition():
            assert self.step(end_ms), "it did not happen in time"

    def step(self, end_ms: int) -> bool:
        """The next event or timer before `end_ms`; False if there is none."""
        members = [m for m in self.members.values() if m.is_up and not m.is_paused]
        due_ms, member = min(((max(m.driver.next_ms(), self.now_ms), m) for m in members), key=lambda pair: pair[0])
        if self._events and self._events[0][0] <= due_ms:
            if self._events[0][0] > end_ms:
                return False
            at_ms, _, call = heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            call()
            return True
        if due_ms > end_ms:
            return False
        # A timer that is overdue is visited a millisecond later, as a loop would; time always moves.
        self.now_ms = max(due_ms, self.now_ms + (0 if due_ms > self.now_ms else 1))
        member.driver.tick()
        member.driver.finish()
        return True

    # -- links ---------------------------------------------------------------------------------

    def dial(self, dialer: Member, node: Node) -> None:
        self.later(self.delay_ms, lambda: self._connect(dialer, node, dialer.runs))

    def _connect(self, dialer: Member, node: Node, run: int) -> None:
        if not dialer.is_up or dialer.runs != run:
            return
        target = self.members.get(node.host)
        driver = dialer.driver
        driver.begin()
        if target is None or not target.is_up or (dialer.name, target.name) in self.cuts:
            dialer.membership.link_down(node)
            driver.finish()
            return
        owner = dialer.membership.link_up(node, target.membership.hello(), target.name, dialer.name)
        if owner is not None:
            self._serial += 1
            dialer.links[owner.id] = self._serial
        target.driver.begin()
        target.membership.accept(dialer.membership.hello(), dialer.name, target.name)
        target.driver.finish()
        driver.finish()

    def post(self, sender: Member, node: Node, frame: bytes) -> None:
        serial = sender.links.get(node.id)
        target = next((m for m in self.members.values() if m.node_id == node.id), None)
        if serial is None or target is None:
            return
        hello = sender.membership.hello()
        self.later(self.delay_ms, lambda: self._arrive(sender, target, frame, hello, sender.runs, serial, target.runs))

    def _arrive(
        self, sender: Member, target: Member, frame: bytes, hello: Hello, run: int, serial: int, target_run: int
    ) -> None:
        if not target.is_up or target.runs != target_run or (sender.name, target.name) in self.cuts:
            return
        if target.is_paused:
            target.held.append(lambda: self._arrive(sender, target, frame, hello, run, serial, target_run))
            return
        known = target.membership.find(hello.id)
        for runs in Decoder().feed(frame):
            for kind, *items in runs:
                if kind < FIRST_JOB_KIND:
                    target.driver.begin()
                    target.membership.receive(known, hello, sender.name, target.name, kind, items)
                    target.driver.finish()
                    known = target.membership.find(hello.id)
                elif known is not None:
                    kept = []
                    for item in items:
                        self.trace.append(f"{sender.name} → {target.name} {NAMES[kind]}")
                        if self.drop is None or not self.drop(sender.name, target.name, kind, item):
                            kept.append(item)
                    if kept:
                        target.driver.receive(known, [[kind, *kept]])
                        target.driver.finish()

    def cut(self, left: str, right: str, *, both: bool = True) -> None:
        """No bytes from left to right any more (nor back); the links break on both ends."""
        for one, other in ((left, right), (right, left))[: 2 if both else 1]:
            self.cuts.add((one, other))
            self._break(one, other)

    def _break(self, one: str, other: str) -> None:
        member = self.members[one]
        node = member.membership.find(self.members[other].node_id)
        if node is not None and member.is_up:
            member.links.pop(node.id, None)
            member.driver.begin()
            member.membership.link_down(node)
            member.driver.finish()

    def heal(self) -> None:
        """All links may be made again."""
        self.cuts.clear()

    def crash(self, name: str) -> None:
        """kill -9: memory and connections are gone."""
        member = self.members[name]
        member.is_up = False
        for other in self.members:
            if other != name and self.members[other].is_up:
                self._break(other, name)

    def restart(self, name: str) -> None:
        """A new process with the old id, knowing the others' addresses."""
        member = self.members[name]
        known = tuple(node for node in member.membership.nodes.values() if node is not member.membership.me)
        member.boot(known)
        member.driver.tick()
        member.driver.finish()
