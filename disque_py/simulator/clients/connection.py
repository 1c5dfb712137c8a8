"""Connections of clients to nodes: requests in, replies out.

Requests travel for a moment; replies count as seen when they leave the node, for from then on the client may have read
them, whatever becomes of either. A node that dies, or a connection that breaks, loses what has not been run and leaves
the client without an answer for what has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import hiredis
from mypy_extensions import mypyc_attr

from disque_py.core.client import RUNNING, WAITS_FOR_COPIES, Client
from disque_py.node import dispatch
from disque_py.simulator.transcript import Ids, tell_reply

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

Request = list[bytes]
IDS: Final = Ids()
_NOTHING: Final = object()


def words(*parts: str | bytes | int) -> Request:
    """A request out of words and numbers."""
    return [part if isinstance(part, bytes) else str(part).encode() for part in parts]


@mypyc_attr(allow_interpreted_subclasses=True)  # Tests have clients of their own.
class Connection:
    """One connection; the ClientPort of its Client. Subclasses say what is done with replies.

    is_open     neither end has given it up
    """

    __slots__ = ("_arrives_ms", "_reader", "_requests", "broker", "client", "is_open", "machine", "world")

    machine: Machine
    broker: Broker
    client: Client

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_open = False
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._requests: list[Request] = []
        self._arrives_ms = 0

    def open(self, machine: Machine, number: int) -> None:
        """The node accepts it; see World.connect."""
        self.machine = machine
        self.broker = machine.broker
        self.client = Client(number, self, f"c{number}", machine.broker.now_ms)
        self.client.user = machine.broker.users.of_clients
        self.is_open = True
        machine.clients[self] = None
        machine.broker.clients[number] = self.client

    # -- what subclasses and their owners see ----------------------------------------------------------

    def on_reply(self, reply: Any) -> None:
        """A reply left the node. May be the middle of a turn: act later, not now."""

    def on_unseen(self, reply: Any) -> None:
        """The node has done what this reply says, and the client hangs up before it can read it."""

    def on_lost(self) -> None:
        """The connection broke: there will be no further reply."""

    def send(self, requests: list[Request], travel_ms: int = 0) -> None:
        """Send requests; they are run when they have arrived and the client may go on."""
        if travel_ms:
            self._arrives_ms = max(self.world.now_ms + travel_ms, self._arrives_ms)
            self.world.at(self._arrives_ms, self._arrive, requests)
        else:
            self._arrive(requests)

    def unseen(self) -> list[Any]:
        """Replies that the node has for the client and must not send yet, or had no time to, or has in part."""
        reader = hiredis.Reader(notEnoughData=_NOTHING)
        for _, replies in self.client.held or ():
            reader.feed(b"".join(replies))
        reader.feed(b"".join(self.client.out))
        if self.client in self.broker.waits.incremental:
            entries = self.client.fetched
            reader.feed(b"*%d\r\n%b" % (len(entries), b"".join(entries)))
        found = []
        while (reply := reader.gets()) is not _NOTHING:
            found.append(reply)
        return found

    def hang_up(self) -> None:
        """Close the connection. Replies that the node had for the client are lost with it."""
        self._leave_unread()
        self._end()
        machine = self.machine
        if machine.is_up and machine.is_stopped:
            machine.held.append((self._disconnect_late, ()))
        else:
            self._disconnect()

    def lost(self) -> None:
        """The node died."""
        self._end()
        self.on_lost()

    # -- the node's end --------------------------------------------------------------------------------

    def _end(self) -> None:
        self.is_open = False
        self._requests = []
        self.world.connections.pop(self, None)

    def _disconnect_late(self) -> None:
        """Note unseen replies: the node was stopped when the client hung up, and read of that later."""
        if self.machine.is_up and self.machine.broker is self.broker:
            self._leave_unread()
        self._disconnect()

    def _leave_unread(self) -> None:
        for reply in self.unseen():
            self.on_unseen(reply)
        self.client.held = None
        self.client.out.clear()

    def _disconnect(self) -> None:
        machine = self.machine
        if machine.is_up and machine.broker is self.broker:
            machine.clients.pop(self, None)
            if self.client.id in self.broker.clients:
                machine.open()
                dispatch.disconnect(self.broker, self.client)
                machine.close()

    def _arrive(self, requests: list[Request]) -> None:
        if not self.is_open:
            return
        self._requests += requests
        self._run()

    def _run(self) -> None:
        if not self._requests or not self.is_open:
            return
        if self.machine.is_stopped or self.machine.is_deaf:
            self.machine.held.append((self._run, ()))
            return
        if self.machine.is_ending:  # The node listens no more.
            self.world.later(0, self.hang_up_by_node)
            return
        machine, broker, client = self.machine, self.broker, self.client
        machine.open()
        requests = self._requests
        if self.world.trace.lines is not None:
            for request in requests:
                told = " ".join(tell_reply(IDS, word) for word in request)
                self.world.trace.write(self.world.now_ms, f"client {client.id}@{machine.name}  {told}")
        done = dispatch.execute(broker, client, requests)
        if done:
            del requests[:done]
        broker.outbox.clients[client] = None
        machine.close()

    # -- ClientPort ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """The node has replies, or would go on with what was asked."""
        client = self.client
        has_progress = bool(client.out)
        if has_progress:
            machine = self.machine
            if machine.fuse:
                machine.burn()
            data = b"".join(client.out)
            client.out.clear()
            self.world.trace.add(self.world.now_ms, machine.label, data)
            reader = self._reader
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if self.world.trace.lines is not None:
                    told = tell_reply(IDS, reply)
                    self.world.trace.write(self.world.now_ms, f"client {client.id}@{machine.name} ← {told}")
                if self.is_open:
                    self.on_reply(reply)
                else:
                    self.on_unseen(reply)
        if client.close_asked:
            # Not while replies of earlier requests are still being waited for.
            if self.is_open and not client.slots:
                self.world.later(0, self.hang_up_by_node)
        elif self._requests:
            # An ADDJOB may follow others that still wait; once some are answered there is room for more of them.
            if client.waiting == RUNNING or (has_progress and client.waiting == WAITS_FOR_COPIES):
                self.world.later(0, self._run)

    def hang_up_by_node(self) -> None:
        """The node closes it."""
        if self.is_open:
            self.hang_up()
            self.on_lost()

    def close(self, *, after_replies: bool) -> None:
        """CLIENT KILL."""
        self.world.later(0, self.hang_up_by_node)

    def input_bytes(self) -> int:
        """Nothing is kept in bytes."""
        return 0

    def output_bytes(self) -> int:
        """Replies are taken at once."""
        return 0
