"""Traffic on the connections between the nodes of a world: frames in transit, reading, and the two ends.

A connection has one direction: a node sends only on the connection that it dialed. Frames arrive in order, each after
its own delay. The model follows cluster_bus/bus.py. If a *stranger* (an unknown node) sends job messages, its
connection is closed. By the time of reading, the reading node may have met or forgotten the dialing node.

network.py makes connections and applies faults to them. It tells the traffic when an end gives a connection up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr

from cluster_bus.codec import Decoder
from cluster_bus.handshake import Hello
from cluster_bus.messages import FIRST_JOB_KIND
from cluster_bus.node import FORGOTTEN, Node
from disque_py.simulator.transcript import Ids, tell_frame
from disque_py.simulator.world.codecs import NEW, decoder, renewed
from disque_py.simulator.world.cuts import Cuts

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

REPEATED_MS_MAX: Final = 3_000
REPEATED_FRAMES_MAX: Final = 3
# Longer than any frame takes on a link without faults (plan.py).
LATE_MS: Final = 100

IDS: Final = Ids()

# Run and id of the dialing node, run and id of the target, version of their messages.
Ends = tuple[int, bytes, int, bytes, int]

# Whether to lose one message: sender, receiver, kind, item.
Filter = Callable[[str, str, int, Any], bool]


class Pipe:
    """A connection: its dialing node, its reading node, and the frames in transit.

    ends            the runs and ids of its two processes, and the version that they speak
    node, sender    the dialer's node object for the target, and the target's for the dialer (None: a stranger)
    frames          frames that were sent and not read, oldest first, each with the moment of sending
    landed          how many of these frames have arrived
    last_ms         when the last frame arrives
    is_open         True: its frames are read; else they are lost
    is_stuck        a silent cut holds up the frames that arrive
    made_ms         when the connection was made
    was_harmed      a frame was lost, stuck or very late
    """

    __slots__ = (
        "decoder", "dialer", "ends", "frames", "hello", "is_open", "is_stuck", "landed", "last_ms", "made_ms", "node",
        "sender", "target", "target_run", "version", "was_harmed",
    )  # fmt: skip

    def __init__(self, dialer: Machine, target: Machine, hello: Hello) -> None:
        self.dialer = dialer
        self.target = target
        self.target_run = target.runs
        self.hello = hello
        # The version of the process. The machine's own may already be the version of its next process.
        self.version = target.membership.protocol_with(hello)
        self.ends = (dialer.runs, hello.id, target.runs, target.membership.table.me.id, self.version)
        self.decoder: Decoder = decoder(self.version)
        self.node: Node | None = None
        self.sender: Node | None = None
        self.frames: deque[tuple[int, bytes]] = deque()
        self.landed = 0
        self.last_ms = 0
        self.is_open = True
        self.is_stuck = False
        self.made_ms = dialer.world.now_ms
        self.was_harmed = False


@mypyc_attr(allow_interpreted_subclasses=True)  # The benchmarks have a subclass that delivers frames itself.
class Traffic:
    """All connections, and the frames in transit.

    delay_ms       the shortest and the longest time that a frame takes
    loss           share of the frames that vanish
    is_rough       frames in transit may be lost or repeated when a connection ends
    filter         chooses single messages that are lost
    tap            called with the job messages that known nodes read: sender, receiver, runs
    frames, bytes  sent so far
    flying         number of frames in transit
    pipes          connections that neither end has left
    """

    def __init__(self, world: World, rng: Random, cuts: Cuts, delay_ms: tuple[int, int]) -> None:
        self.world = world
        self._rng = rng
        self._cuts = cuts
        self.delay_ms = delay_ms
        self.loss = 0.0
        self.is_rough = False
        self.filter: Filter | None = None
        self.tap: Callable[[str, str, list[list[Any]]], None] | None = None
        self.frames = 0
        self.bytes = 0
        self.flying = 0
        self.pipes: dict[Pipe, None] = {}
        self._held: list[tuple[Callable[[Pipe], None], Pipe]] = []  # Ends that a silent cut hides from the far end.
        self._unread: dict[Pipe, None] = {}  # Ended connections that a stopped node will read later.
        self._repeated: dict[tuple[str, str], tuple[Ends | None, list[tuple[int, bytes]]]] = {}

    def delay(self) -> int:
        """Return how long the next frame, or the next notice of an end, takes."""
        low_ms, high_ms = self.delay_ms
        return low_ms if low_ms == high_ms else low_ms + int(self._rng.random() * (high_ms - low_ms + 1))

    # -- frames ------------------------------------------------------------------------------------

    def send(self, dialer: Machine, node: Node, frame: bytes) -> None:
        """Send a frame on the dialer's connection to this node. Without a connection, drop it."""
        pipe = dialer.pipes.get(node)
        if pipe is None:
            return
        if pipe.version == NEW:
            frame = renewed(frame)
        world = self.world
        self.frames += 1
        self.bytes += len(frame)
        world.trace.add(world.now_ms, dialer.label + pipe.target.label, frame)
        if world.trace.lines is not None:
            told = "; ".join(tell_frame(IDS, frame, pipe.version))
            world.trace.write(world.now_ms, f"{dialer.name} → {pipe.target.name}  {told}")
        if self.loss and self._rng.random() < self.loss:
            pipe.was_harmed = True
            return
        self._fly(pipe, frame)

    def _fly(self, pipe: Pipe, frame: bytes) -> None:
        world = self.world
        at_ms = world.now_ms + self.delay()
        if at_ms < pipe.last_ms:
            at_ms = pipe.last_ms
        if at_ms - world.now_ms > LATE_MS:
            pipe.was_harmed = True
        pipe.last_ms = at_ms
        pipe.frames.append((world.now_ms, frame))
        self.flying += 1
        world.at(at_ms, self._land, pipe)

    def _land(self, pipe: Pipe) -> None:
        self.flying -= 1
        target = pipe.target
        if not pipe.is_open:
            return
        if pipe.target_run != target.runs or not target.is_up:
            pipe.frames.clear()
            return
        pipe.landed += 1
        if not pipe.is_stuck and not target.is_stopped:
            self._read(pipe)

    def read_stuck(self, pipe: Pipe) -> None:
        """Let the target read the frames that a silent cut has delayed."""
        target = pipe.target
        if pipe.landed and pipe.is_open and not pipe.is_stuck and target.is_up and pipe.target_run == target.runs:
            if not target.is_stopped:
                self._read(pipe)

    def _read(self, pipe: Pipe) -> None:
        """Let the target read the frames that have arrived."""
        target = pipe.target
        target.open()
        while pipe.landed and pipe.is_open and pipe.frames:
            pipe.landed -= 1
            for runs in pipe.decoder.feed(pipe.frames.popleft()[1]):
                self._deal(pipe, target, runs)
            if pipe.landed and self.world.is_prompt:
                target.close()
                target.open()
        target.close()

    def _deal(self, pipe: Pipe, target: Machine, runs: list[list[Any]]) -> None:
        """Give the runs of a frame to the target, in order, as Bus.link_frame does."""
        jobs = []
        for run in runs:
            if run[0] >= FIRST_JOB_KIND:
                jobs.append(run)
                continue
            if jobs:
                self._deal_jobs(pipe, target, jobs)
                jobs = []
            if pipe.is_open:
                target.driver.broker.stats.messages_received += len(run) - 1
                target.membership.receive(
                    self._identify(pipe), pipe.hello, pipe.dialer.name, target.name, run[0], run[1:]
                )
        if jobs:
            self._deal_jobs(pipe, target, jobs)

    def _deal_jobs(self, pipe: Pipe, target: Machine, jobs: list[list[Any]]) -> None:
        if self.filter is not None:
            jobs = self._filtered(pipe, jobs)
        if not pipe.is_open or not jobs:
            return
        sender = self._identify(pipe)
        if sender is None:
            self.drop(pipe)
            if target.incoming.get(pipe.hello.id) is pipe:
                del target.incoming[pipe.hello.id]
        else:
            if self.tap is not None:
                self.tap(pipe.dialer.name, target.name, jobs)
            target.driver.receive(sender, jobs)

    def _identify(self, pipe: Pipe) -> Node | None:
        """Return the node that dialed this connection. It may have been met or forgotten since."""
        if pipe.sender is None or pipe.sender.flags & FORGOTTEN:
            pipe.sender = pipe.target.membership.accept(pipe.hello, pipe.dialer.name, pipe.target.name)
        return pipe.sender

    def _filtered(self, pipe: Pipe, jobs: list[list[Any]]) -> list[list[Any]]:
        kept = []
        sender, receiver = pipe.dialer.name, pipe.target.name
        assert self.filter is not None
        for run in jobs:
            lost = [item for item in run[1:] if self.filter(sender, receiver, run[0], item)]
            for item in lost:
                self.world.watcher.on_lost(sender, receiver, run[0], item)
            if len(lost) < len(run) - 1:
                kept.append([run[0], *(item for item in run[1:] if not any(item is other for other in lost))])
        return kept

    def read_landed(self, target: Machine) -> None:
        """Let a machine that goes on read the frames that came meanwhile."""
        for pipe in list(self.pipes):
            if pipe.target is target and pipe.landed and pipe.is_open and not pipe.is_stuck:
                if pipe.target_run == target.runs:
                    self._read(pipe)

    def repeat(self, pipe: Pipe) -> None:
        """Send the last frames of the previous connection again, if it had the same ends."""
        ends, frames = self._repeated.pop((pipe.dialer.name, pipe.target.name), (None, []))
        if ends == pipe.ends:
            for sent_ms, frame in frames:
                if self.world.now_ms - sent_ms < REPEATED_MS_MAX:
                    self._fly(pipe, frame)

    def oldest_ms(self) -> int:
        """Return when the oldest frame in transit was sent; the current time if there is none."""
        unread = [pipe for pipe in self._unread if pipe.target.is_up and pipe.target_run == pipe.target.runs]
        self._unread = dict.fromkeys(unread)
        times = [pipe.frames[0][0] for pipe in (*self.pipes, *unread) if pipe.frames and pipe.is_open]
        earliest_ms = self.world.now_ms - REPEATED_MS_MAX
        times += [frames[0][0] for _, frames in self._repeated.values() if frames[-1][0] >= earliest_ms]
        return min(times, default=self.world.now_ms)

    # -- ends --------------------------------------------------------------------------------------

    def give_up(self, pipe: Pipe) -> None:
        """End sending on a connection. Frames in transit arrive or are lost."""
        if self.is_rough and pipe.frames and self._rng.random() < 0.5:
            latest = list(pipe.frames)[-REPEATED_FRAMES_MAX:]
            self._repeated[pipe.dialer.name, pipe.target.name] = (pipe.ends, latest)
        if pipe.is_stuck or (self.is_rough and self._rng.random() < 0.5):
            pipe.is_open = False
            pipe.frames.clear()

    def break_off(self, pipe: Pipe) -> None:
        """Break a connection. Both ends notice, and frames in transit are lost."""
        self.give_up(pipe)
        pipe.is_open = False
        pipe.frames.clear()
        self.lost(pipe)
        self.ended(pipe)

    def drop(self, pipe: Pipe) -> None:
        """Let the reading end give a connection up."""
        pipe.is_open = False
        pipe.frames.clear()
        self.notice(pipe, self.lost)

    def notice(self, pipe: Pipe, call: Callable[[Pipe], None]) -> None:
        """Tell the far end, after all earlier frames. A silent cut delays that, too."""
        if self._cuts.are_silent(pipe.dialer.name, pipe.target.name):
            self._held.append((call, pipe))
        else:
            self.world.at(max(self.world.now_ms + self.delay(), pipe.last_ms), call, pipe)

    def tell_held(self) -> None:
        """Give the far ends the notices that silent cuts have delayed, except where a cut remains."""
        held, self._held = self._held, []
        for call, pipe in held:
            self.notice(pipe, call)

    def ended(self, pipe: Pipe) -> None:
        """Note that the reading end sees the end of a connection."""
        target = pipe.target
        self.pipes.pop(pipe, None)
        self._unread.pop(pipe, None)
        if not target.is_up or target.incoming.get(pipe.hello.id) is not pipe:
            return
        if target.is_stopped:
            self._unread[pipe] = None
            target.held.append((self.ended, (pipe,)))
            return
        if pipe.landed:
            self._read(pipe)
        pipe.is_open = False
        if target.incoming.get(pipe.hello.id) is not pipe:
            return
        del target.incoming[pipe.hello.id]
        if pipe.sender is not None:
            target.open()
            target.lose_incoming(pipe.sender)
            target.close()

    def lost(self, pipe: Pipe) -> None:
        """Note that the dialing end sees the end of a connection."""
        dialer, node = pipe.dialer, pipe.node
        self.pipes.pop(pipe, None)
        if node is None or not dialer.is_up or dialer.pipes.get(node) is not pipe:
            return
        if dialer.is_stopped:
            dialer.held.append((self.lost, (pipe,)))
            return
        del dialer.pipes[node]
        dialer.open()
        dialer.membership.link_down(node)
        dialer.close()
