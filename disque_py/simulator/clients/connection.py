"""Connections of clients to nodes: requests in, replies out.

A request takes a moment to arrive. A reply counts as seen when it leaves the node, because from then on the client may
have read it. When a node dies or a connection breaks, requests that have not been run are lost, and requests that have
been run get no reply.
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
    """Return a request made of words and numbers."""
    return [part if isinstance(part, bytes) else str(part).encode() for part in parts]


@mypyc_attr(allow_interpreted_subclasses=True)  # Tests have subclasses.
class Connection:
    """One connection, which is the ClientPort of its Client. Subclasses handle the replies.

    is_open     neither end has closed it
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
        """Open the connection at a node (see World.connect)."""
        self.machine = machine
        self.broker = machine.broker
        self.client = Client(number, self, f"c{number}", machine.broker.now_ms)
        self.client.user = machine.broker.users.of_clients
        self.is_open = True
        machine.clients[self] = None
        machine.broker.clients[number] = self.client

    # -- for subclasses and their owners ---------------------------------------------------------------

    def on_reply(self, reply: Any) -> None:
        """Handle a reply that left the node. It may come in the middle of a turn, so act later."""

    def on_unseen(self, reply: Any) -> None:
        """Note a reply to a request that was run: the client hangs up before it can read the reply."""

    def on_lost(self) -> None:
        """Note that the connection broke, so there will be no further reply."""

    def send(self, requests: list[Request], travel_ms: int = 0) -> None:
        """Send requests. The node runs them when they have arrived and the client is not blocked."""
        if travel_ms:
            self._arrives_ms = max(self.world.now_ms + travel_ms, self._arrives_ms)
            self.world.at(self._arrives_ms, self._arrive, requests)
        else:
            self._arrive(requests)

    def unseen(self) -> list[Any]:
        """Return replies that the node has for the client: not sent yet, not allowed to leave, or incomplete."""
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
        """Note that the node died."""
        self._end()
        self.on_lost()

    # -- the node's end --------------------------------------------------------------------------------

    def _end(self) -> None:
        self.is_open = False
        self._requests = []
        self.world.connections.pop(self, None)

    def _disconnect_late(self) -> None:
        """Note unseen replies: the node was stopped when the client hung up, and noticed it later."""
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
        if self.machine.is_ending:  # The node no longer listens.
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
        """Take replies of the node, and go on with further requests."""
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
            # Not while replies to earlier requests are still missing.
            if self.is_open and not client.slots:
                self.world.later(0, self.hang_up_by_node)
        elif self._requests:
            # An ADDJOB may follow others that still wait. Once some have replies, there is room for more.
            if client.waiting == RUNNING or (has_progress and client.waiting == WAITS_FOR_COPIES):
                self.world.later(0, self._run)

    def hang_up_by_node(self) -> None:
        """Close the connection from the node's end."""
        if self.is_open:
            self.hang_up()
            self.on_lost()

    def close(self, *, after_replies: bool) -> None:
        """Close the connection, for CLIENT KILL."""
        self.world.later(0, self.hang_up_by_node)

    def input_bytes(self) -> int:
        """Return 0: requests are not kept as bytes."""
        return 0

    def output_bytes(self) -> int:
        """Return 0: replies are taken immediately."""
        return 0
