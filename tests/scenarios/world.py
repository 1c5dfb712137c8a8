"""A cluster in one process, on a virtual clock: the real Driver, Membership and core over the connections of wire.py.

Frames are encoded and decoded as on a real link. Links can be cut, messages lost, nodes crash (their memory is gone,
a restart is a new run that has the nodes file) and pause; every node has clocks of its own. The same seed gives the
same world.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

import hiredis

from cluster_bus.membership import Membership
from cluster_bus.node import HANDSHAKE, Node
from cluster_bus.nodes_file import NodeLine
from cluster_bus.outgoing import Outgoing, Run
from disque_py import inputs
from disque_py.config.settings import Settings
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, Client
from disque_py.driver import Driver
from wire import Network, Pipe, turn

START_MS = 1_000_000
WALL_START_MS = 1_700_000_000_000


class WorldHost:
    """The process around a broker: here there is none."""

    def log(self, level: str, text: str) -> None:
        """Nobody reads the log."""

    def rss_bytes(self) -> int:
        return 0

    def save_nodes(self, done: Callable[[OSError | None], None]) -> None:
        """No disk is as fast as none."""
        done(None)


class WatchedOutgoing(Outgoing):
    """Shows the world what leaves a node."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self._member = member

    def take(self) -> list[Run]:
        runs = super().take()
        self._member.world.on_runs(self._member, runs)
        return runs


class WatchedDriver(Driver):
    """Shows the world when a turn is over."""

    member: Member

    def finish(self) -> None:
        super().finish()
        self.member.world.on_turn(self.member)


class Member:
    """One node of the world: its broker and driver, and the wire that the driver sends on.

    clock_offset_ms   its monotonic clock against the world's; set before boot
    wall_offset_ms    its wall clock against the others'; may jump at any time
    """

    def __init__(
        self, world: World, name: str, node_id: bytes, seed: int, settings: dict[str, Any], clock_offset_ms: int = 0
    ) -> None:
        self.world = world
        self.name = name
        self.node_id = node_id
        self.seed = seed
        self.settings = settings
        self.clock_offset_ms = clock_offset_ms
        self.wall_offset_ms = 0
        self.is_up = False
        self.is_paused = False
        self.runs = 0
        self.held: list[Any] = []  # What came while it was paused.
        self.attempts: dict[Node, object] = {}
        self.pipes: dict[Node, Pipe] = {}
        self.incoming: dict[bytes, Pipe] = {}
        self.driver: WatchedDriver
        self.broker: Broker
        self.membership: Membership
        self.boot()

    def boot(self, lines: list[NodeLine] | None = None) -> None:
        """Start a process: fresh memory, a new run, what its nodes file says."""
        self.runs += 1
        values = Settings()
        for name, value in self.settings.items():
            setattr(values, name, value)
        rng = self.world.chance(self.seed * 1000 + self.runs)
        outgoing = WatchedOutgoing(self)
        me = Node(self.node_id, self.name, 7711, 17711)
        me.run = rng.randbytes(8)
        self.membership = Membership(me, outgoing, rng, node_timeout_ms=values.cluster_node_timeout)
        self.membership.now_ms, self.membership.wall_ms = self.now_ms(), self.wall_ms()
        self.membership.load(lines or [])
        self.broker = Broker(self.membership, outgoing, values, rng, WorldHost())  # type: ignore[arg-type]  # a host without a process
        inputs.install(self.broker)
        self.attempts, self.pipes, self.incoming, self.held = {}, {}, {}, []
        self.is_up, self.is_paused = True, False
        self.driver = WatchedDriver(
            self.broker, self.membership, outgoing, self, self, lambda: None, lambda: None, lambda _: None
        )
        self.driver.member = self

    def nodes_file(self) -> list[NodeLine]:
        """What its nodes file says when it dies now."""
        return [
            NodeLine(node.id, node.host, node.port, node.bus_port, node.flags, 0, 0)
            for node in self.membership.nodes.values()
            if not node.flags & HANDSHAKE
        ]

    def lose_incoming(self, node: Node) -> None:
        """The link on which the node spoke to us is gone; within a turn."""
        inputs.incoming_lost(self.broker, node)

    # Clock
    def now_ms(self) -> int:
        return self.world.now_ms + self.clock_offset_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self.world.now_ms - START_MS + self.wall_offset_ms

    def stopwatch_ns(self) -> int:
        return 0

    # Wire
    def dial(self, node: Node) -> None:
        self.world.network.dial(self, node)

    def hang_up(self, node: Node) -> None:
        self.world.network.hang_up(self, node)

    def send(self, node: Node, frame: bytes) -> None:
        self.world.network.send(self, node, frame)


class Talker:
    """A client connection of the world: `replies` holds what it was answered, in order."""

    def __init__(self, world: World, member: Member, number: int) -> None:
        self.world = world
        self.member = member
        self.broker = member.broker
        self.name = ""
        self.client = Client(number, self, f"c{number}", member.now_ms())
        self.reader = hiredis.Reader()
        self.replies: list[Any] = []
        self.replied_ms = 0  # World time of the last of them.
        self.requests: list[list[bytes]] = []
        self.is_closed = False
        self.wanted: dict[str, Any] = {}  # What the test wants to remember of it.
        member.broker.clients[number] = self.client

    @property
    def is_served(self) -> bool:
        """The process it is connected to lives, and runs."""
        return self.member.is_up and not self.member.is_paused and self.member.broker is self.broker

    def say(self, *words: str | bytes | int) -> None:
        """Send a command; it runs now, or when the client may go on."""
        self.requests.append([word if isinstance(word, bytes) else str(word).encode() for word in words])
        self.go_on()

    def go_on(self) -> None:
        if self.requests and self.is_served and not self.is_closed:
            with turn(self.member):
                done = inputs.execute(self.broker, self.client, self.requests)
                del self.requests[:done]
                self.broker.outbox.clients[self.client] = None

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
            self.replied_ms = self.world.now_ms
            self.world.on_reply(self, reply)
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
        if self.member.is_up and self.member.is_paused:
            self.member.held.append(self.hang_up)
        elif self.is_served and self.client.id in self.broker.clients:
            with turn(self.member):
                inputs.disconnect(self.broker, self.client)


class World:
    """All nodes, the network between them, and time."""

    def __init__(
        self,
        names: str,
        seed: int = 1,
        *,
        delay_ms: int = 1,
        clock_offsets_ms: dict[str, int] | None = None,
        chance: Callable[[int], Random] = Random,
        **settings: Any,
    ) -> None:
        self.now_ms = START_MS
        self.chance = chance
        self.rng = Random(seed)
        self.seed = seed
        self.delay_ms = delay_ms
        self.network = Network(self)
        self.trace: list[str] = []
        self.drop: Any = None  # a predicate (sender name, receiver name, kind, item) -> lose this message
        self.settings = settings
        self._events: list[tuple[int, int, Any]] = []
        self._serial = 0
        self._clients = 0
        self.members: dict[str, Member] = {}
        for name in names:
            self.add(name, (clock_offsets_ms or {}).get(name, 0))
        self.talkers: list[Talker] = []

    def __getitem__(self, name: str) -> Broker:
        return self.members[name].broker

    @property
    def cuts(self) -> set[tuple[str, str]]:
        """Directions in which links can't be."""
        return self.network.cuts

    # -- what a watcher may want to see (transcript.py) -----------------------------------------------

    def on_runs(self, member: Member, runs: list[Run]) -> None:
        """This turn's messages of a node are about to leave."""

    def on_lost(self, sender: str, receiver: str, kind: int, item: Any) -> None:
        """`drop` took this message."""

    def on_turn(self, member: Member) -> None:
        """A turn of this node is over."""

    def on_reply(self, talker: Talker, reply: Any) -> None:
        """A client was answered."""

    # -- nodes and clients ------------------------------------------------------------------------------

    def add(self, name: str, clock_offset_ms: int = 0) -> Member:
        """A further node, which nobody knows yet."""
        node_id = bytes([ord(name)]) * 20
        seed = self.seed * 100 + len(self.members)
        member = self.members[name] = Member(self, name, node_id, seed, self.settings, clock_offset_ms)
        return member

    def join(self) -> None:
        """Make all nodes meet, and wait until everybody has a link to everybody."""
        first, *others = self.members.values()
        for member in others:
            self.meet(first.name, member.name)
        self.until(self.is_meshed)

    def meet(self, one: str, other: str) -> None:
        """CLUSTER MEET."""
        with turn(self.members[one]):
            self.members[one].membership.meet(other, 7711)

    def is_meshed(self) -> bool:
        """Everybody who is up has a link to everybody who is."""
        members = [member for member in self.members.values() if member.is_up]
        return all(len(member.membership.linked) == len(members) - 1 for member in members)

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
        self.talkers.remove(talker)
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
        due_ms, awake = end_ms + 1, None
        for member in self.members.values():
            if member.is_up and not member.is_paused:
                at_ms = max(member.driver.next_ms() - member.clock_offset_ms, self.now_ms)
                if at_ms < due_ms:
                    due_ms, awake = at_ms, member
        if self._events and self._events[0][0] <= min(due_ms, end_ms):
            at_ms, _, call = heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            call()
            return True
        if awake is None:
            return False
        # A timer that is overdue is visited a millisecond later, as a loop would; time always moves.
        self.now_ms = max(due_ms, self.now_ms + (0 if due_ms > self.now_ms else 1))
        awake.driver.tick()
        awake.driver.finish()
        return True

    # -- weather ---------------------------------------------------------------------------------

    def cut(self, left: str, right: str, *, both: bool = True, silently: bool = False) -> None:
        """No bytes from left to right any more (nor back). Links break on both ends, unless silently."""
        for one, other in ((left, right), (right, left))[: 2 if both else 1]:
            self.network.cut(one, other, silently=silently)

    def heal(self) -> None:
        """All links may be made again."""
        self.network.heal()

    def crash(self, name: str) -> None:
        """kill -9: memory and connections are gone."""
        member = self.members[name]
        member.is_up = False
        self.network.crash(member)

    def restart(self, name: str) -> None:
        """A new process with the old id and nodes file."""
        member = self.members[name]
        member.boot(member.nodes_file())
        member.driver.tick()
        member.driver.finish()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.members[name].is_paused = True

    def resume(self, name: str) -> None:
        """SIGCONT: it reads what came meanwhile, then looks at its clock."""
        member = self.members[name]
        member.is_paused = False
        held, member.held = member.held, []
        for call in held:
            call()
        for talker in list(self.talkers):
            if talker.member is member:
                talker.go_on()
        member.driver.tick()
        member.driver.finish()
