"""The wire of a scenario world: connections between members, and what weather does to them.

A connection leads one way: what a node says goes on the one it dialed. Frames arrive `delay_ms` later, in order.
The model follows cluster_bus/bus.py: a second connection of a node replaces its first, a stranger's job messages
close theirs, a forgotten node is hung up on in both directions. A *cut* breaks connections at once (both ends see
it); a *silent* cut swallows them: TCP keeps what was sent until the cut heals or somebody gives the link up.
A paused member (SIGSTOP) finds everything that came meanwhile when it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster_bus.codec import Decoder
from cluster_bus.handshake import Hello
from cluster_bus.messages import FIRST_JOB_KIND, NAMES
from cluster_bus.node import FORGOTTEN, Node

if TYPE_CHECKING:
    from world import Member, World

# cluster_bus/bus.py and link.py: how long an attempt to connect, or a handshake, may take.
CONNECT_MS = 5_000


class Pipe:
    """A connection: who dialed it under which name, who reads it, what got stuck in it."""

    def __init__(self, dialer: Member, target: Member, hello: Hello) -> None:
        self.dialer = dialer
        self.target = target
        self.hello = hello
        self.runs = (dialer.runs, target.runs)
        self.node: Node | None = None  # What the dialer calls the target,
        self.sender: Node | None = None  # … and the target the dialer; None: a stranger.
        self.is_broken = False
        self.stuck: list[bytes] = []

    @property
    def is_readable(self) -> bool:
        """The process that reads it is still the one it was opened to."""
        return not self.is_broken and self.target.is_up and self.target.runs == self.runs[1]


@contextmanager
def turn(member: Member) -> Iterator[None]:
    """One turn of a member's driver."""
    member.driver.begin()
    yield
    member.driver.finish()


class Network:
    """All connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cuts: set[tuple[str, str]] = set()
        self.silent: set[tuple[str, str]] = set()
        self.pipes: list[Pipe] = []
        self.flying = 0  # Frames on their way.
        self.held: list[Callable[[], None]] = []  # What ends of a silently cut connection would have noticed.

    def later(self, span_ms: int, call: Callable[..., None], *args: Any) -> None:
        self.world.later(span_ms, partial(call, *args))

    def is_cut(self, one: Member, other: Member, *, silently: bool = False) -> bool:
        """A connection needs both directions."""
        cuts = self.silent if silently else self.cuts
        return (one.name, other.name) in cuts or (other.name, one.name) in cuts

    # -- connecting --------------------------------------------------------------------------------

    def dial(self, dialer: Member, node: Node) -> None:
        self.close(dialer, node)
        token = dialer.attempts[node] = object()
        self.later(self.world.delay_ms, self._connect, dialer, node, token)

    def _connect(self, dialer: Member, node: Node, token: object) -> None:
        if not dialer.is_up or dialer.attempts.get(node) is not token:
            return
        target = self.world.members.get(node.host)
        if target is None or not target.is_up or (dialer.name, target.name) in self.cuts:
            self._fail(dialer, node, token)
        elif self.is_cut(dialer, target, silently=True):
            self.later(CONNECT_MS, self._fail, dialer, node, token)
        elif target.is_paused or dialer.is_paused:
            (target if target.is_paused else dialer).held.append(partial(self._connect, dialer, node, token))
            self.later(CONNECT_MS, self._fail, dialer, node, token)
        else:
            self._establish(dialer, node, target)

    def _fail(self, dialer: Member, node: Node, token: object) -> None:
        if not dialer.is_up or dialer.attempts.get(node) is not token:
            return
        if dialer.is_paused:
            dialer.held.append(partial(self._fail, dialer, node, token))
            return
        del dialer.attempts[node]
        with turn(dialer):
            dialer.membership.link_down(node)

    def _establish(self, dialer: Member, node: Node, target: Member) -> None:
        del dialer.attempts[node]
        pipe = Pipe(dialer, target, dialer.membership.hello())
        with turn(dialer):
            owner = dialer.membership.link_up(node, target.membership.hello(), target.name, dialer.name)
            if owner is not None:
                if owner is not node:
                    self.close(dialer, owner)
                pipe.node = owner
                dialer.pipes[owner] = pipe
        self._accept(pipe, target)
        if owner is None:
            self.later(self.world.delay_ms, self._ended, pipe)
        else:
            self.pipes.append(pipe)

    def _accept(self, pipe: Pipe, target: Member) -> None:
        hello = pipe.hello
        with turn(target):
            older = target.incoming.pop(hello.id, None)
            if older is not None:  # What is still in it must not be read after what comes on this one.
                self._drop(older)
                if older.sender is not None:
                    target.lose_incoming(older.sender)
            target.incoming[hello.id] = pipe
            pipe.sender = target.membership.accept(hello, pipe.dialer.name, target.name)

    # -- frames --------------------------------------------------------------------------------------

    def send(self, dialer: Member, node: Node, frame: bytes) -> None:
        pipe = dialer.pipes.get(node)
        if pipe is not None:
            self._fly(pipe, frame)

    def _fly(self, pipe: Pipe, frame: bytes) -> None:
        self.flying += 1
        self.later(self.world.delay_ms, self._land, pipe, frame)

    def _land(self, pipe: Pipe, frame: bytes) -> None:
        self.flying -= 1
        self._arrive(pipe, frame)

    def _arrive(self, pipe: Pipe, frame: bytes) -> None:
        target = pipe.target
        if not pipe.is_readable:
            return
        if pipe.stuck or (pipe.dialer.name, target.name) in self.silent:
            pipe.stuck.append(frame)
        elif target.is_paused:
            target.held.append(partial(self._arrive, pipe, frame))
        else:
            for runs in Decoder().feed(frame):
                self._read(pipe, runs)

    def _read(self, pipe: Pipe, runs: list[Any]) -> None:
        target, name, hello = pipe.target, pipe.dialer.name, pipe.hello
        jobs = []
        for kind, *items in runs:
            if pipe.is_broken:
                return
            if kind >= FIRST_JOB_KIND:
                kept = [item for item in items if not self._is_dropped(name, target.name, kind, item)]
                if kept:
                    jobs.append([kind, *kept])
                continue
            self._read_jobs(pipe, jobs)
            jobs = []
            with turn(target):
                target.membership.receive(self._identify(pipe), hello, name, target.name, kind, items)
        self._read_jobs(pipe, jobs)

    def _read_jobs(self, pipe: Pipe, jobs: list[Any]) -> None:
        if not jobs:
            return
        target = pipe.target
        target.driver.begin()
        sender = self._identify(pipe)
        if sender is None:
            self._drop(pipe)
        else:
            target.driver.receive(sender, jobs)
        target.driver.finish()

    def _identify(self, pipe: Pipe) -> Node | None:
        if pipe.sender is None or pipe.sender.flags & FORGOTTEN:
            pipe.sender = pipe.target.membership.accept(pipe.hello, pipe.dialer.name, pipe.target.name)
        return pipe.sender

    def _is_dropped(self, sender: str, receiver: str, kind: int, item: Any) -> bool:
        world = self.world
        is_dropped = world.drop is not None and world.drop(sender, receiver, kind, item)
        world.trace.append(f"{sender} → {receiver} {NAMES[kind]}{' lost' if is_dropped else ''}")
        if is_dropped:
            world.on_lost(sender, receiver, kind, item)
        return bool(is_dropped)

    # -- ends ----------------------------------------------------------------------------------------

    def hang_up(self, dialer: Member, node: Node) -> None:
        """Membership's word: drop our connection; of a forgotten node also the one it dialed."""
        self.close(dialer, node)
        if node.flags & FORGOTTEN:
            pipe = dialer.incoming.pop(node.id, None)
            if pipe is not None:
                self._drop(pipe)

    def close(self, dialer: Member, node: Node) -> None:
        """The dialer gives its connection or attempt up; what is on its way arrives."""
        dialer.attempts.pop(node, None)
        pipe = dialer.pipes.pop(node, None)
        if pipe is not None:
            pipe.stuck.clear()
            self._notice(pipe, self._ended)

    def _drop(self, pipe: Pipe) -> None:
        """The reading end gives it up."""
        pipe.is_broken = True
        self._notice(pipe, self._lost)

    def _notice(self, pipe: Pipe, call: Callable[[Pipe], None]) -> None:
        """The far end finds out, unless the cut swallows that too."""
        if self.is_cut(pipe.dialer, pipe.target, silently=True):
            self.held.append(partial(call, pipe))
        else:
            self.later(self.world.delay_ms, call, pipe)

    def _ended(self, pipe: Pipe) -> None:
        """The reading end sees the end of it."""
        target = pipe.target
        if not target.is_up or target.incoming.get(pipe.hello.id) is not pipe:
            return
        if target.is_paused:
            target.held.append(partial(self._ended, pipe))
            return
        del target.incoming[pipe.hello.id]
        if pipe.sender is not None:
            with turn(target):
                target.lose_incoming(pipe.sender)

    def _lost(self, pipe: Pipe) -> None:
        """The dialing end sees that it is no more."""
        dialer, node = pipe.dialer, pipe.node
        if node is None or not dialer.is_up or dialer.pipes.get(node) is not pipe:
            return
        if dialer.is_paused:
            dialer.held.append(partial(self._lost, pipe))
            return
        del dialer.pipes[node]
        with turn(dialer):
            dialer.membership.link_down(node)

    def cut(self, one: str, other: str, *, silently: bool) -> None:
        """No bytes from `one` to `other`."""
        if silently:
            self.silent.add((one, other))
            return
        self.cuts.add((one, other))
        for pipe in self._open_pipes():
            if (pipe.dialer.name, pipe.target.name) == (one, other):
                pipe.is_broken = True
                self._lost(pipe)
                self._ended(pipe)

    def heal(self) -> None:
        """TCP repeats what got stuck."""
        self.cuts.clear()
        self.silent.clear()
        for pipe in self._open_pipes():
            frames, pipe.stuck = pipe.stuck, []
            for frame in frames:
                self._fly(pipe, frame)
        held, self.held = self.held, []
        for call in held:
            self.later(self.world.delay_ms, call)

    def crash(self, member: Member) -> None:
        """All connections of the member end; what it sent before arrives."""
        for pipe in self._open_pipes():
            if pipe.dialer is member:
                self._notice(pipe, self._ended)
            elif pipe.target is member:
                self._notice(pipe, self._lost)

    def _open_pipes(self) -> list[Pipe]:
        self.pipes = [pipe for pipe in self.pipes if not pipe.is_broken and self._is_in_use(pipe)]
        return list(self.pipes)

    def _is_in_use(self, pipe: Pipe) -> bool:
        """One of the two processes still has it."""
        dialed = pipe.node is not None and pipe.dialer.pipes.get(pipe.node) is pipe
        return dialed or pipe.target.incoming.get(pipe.hello.id) is pipe
