"""The connections of one asyncio client, and its search for a working node.

The pool has three kinds of connections to a node (request.Lane). One *plain* connection carries the commands of all
tasks that are answered at once. ADDJOBs share a few connections, because each may wait for copies, and replies come in
order. Another one is opened only when all are busy. A GETJOB that may wait has a connection of its own, and leaves it
to the next GETJOB.

The pool dials and reports to `Cluster`. It repeats no command.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any, Final

from disque_py.client.address import Address
from disque_py.client.aio_connection import AsyncConnection, dial
from disque_py.client.cluster import Cluster
from disque_py.client.errors import (
    ClientClosedError,
    ConnectionLostError,
    DisqueConnectionError,
    NotConnectedError,
    ReplyError,
    from_reply,
)
from disque_py.client.options import ClientOptions
from disque_py.client.protocol import Reply
from disque_py.client.request import Lane, Request
from disque_py.client.retry import Patience, needs_login, pinned_failure, refuses_login

# From this many owed replies on, an ADDJOB opens another connection. Below it, sharing saves more than waiting costs.
LANE_BUSY: Final = 8

_log = logging.getLogger(__name__)


class AsyncPool:
    """Connections by node and lane; `rng` chooses among equal nodes.

    loop         the event loop that the connections belong to
    is_closed    the client was closed
    greeting_s   seconds that the last dialled node took to accept and answer the greeting: a measure of distance
    """

    def __init__(self, options: ClientOptions, rng: Random) -> None:
        self.loop = asyncio.get_running_loop()
        self.cluster = Cluster(options.seeds, rng, discover=options.discover, place=options.place)
        self._options = options
        self._tls = options.tls_context()
        self._rng = rng
        self._plain: dict[Address, AsyncConnection] = {}
        self._adds: dict[Address, list[AsyncConnection]] = {}
        self._idle: dict[Address, list[AsyncConnection]] = {}
        self._own: set[AsyncConnection] = set()
        self._dialling = asyncio.Lock()
        self._locks: dict[tuple[Address, Lane], asyncio.Lock] = {}
        self._last_error = "none is due, all failed a moment ago"
        self._login_error = ""
        self.is_closed = False
        self.greeting_s = 0.0

    def ready(self, request: Request[Any]) -> AsyncConnection | None:
        """Return the connection for a command if one is open. Nearly all commands get theirs here."""
        home = self.cluster.home
        if home is None or request.lane is Lane.OWN or request.is_pinned:
            return None
        if request.lane is Lane.ADDS:
            for connection in self._adds.get(home, ()):
                if connection.pending < LANE_BUSY and not connection.is_closed:
                    return connection
            return None
        if request.node not in (None, home) or (request.is_consumers and self.cluster.feeder is not None):
            return None
        plain = self._plain.get(home)
        return plain if plain is not None and not plain.is_closed else None

    def take_idle(self, request: Request[Any]) -> AsyncConnection | None:
        """Take an idle connection for a command that may wait. Nearly all such commands get theirs here."""
        idle = self._idle_for(request)
        return idle.pop() if idle else None

    def has_idle(self, request: Request[Any]) -> bool:
        """Return whether `take_idle` would find a connection now."""
        return bool(self._idle_for(request))

    def _idle_for(self, request: Request[Any]) -> list[AsyncConnection]:
        address = self.cluster.node_for(request, asyncio.get_running_loop().time()) or self.cluster.home
        return [] if address is None or request.lane is not Lane.OWN else self._idle_to(address)

    async def connection(self, request: Request[Any], patience: Patience) -> AsyncConnection:
        """Return a connection for a command, of its lane, to the node it belongs to.

        Raises NotConnectedError when the patience is over, AuthError, ClientClosedError.
        """
        address = self.cluster.node_for(request, asyncio.get_running_loop().time())
        if address is not None:
            try:
                return await self._to(address, request.lane)
            except DisqueConnectionError as error:
                if request.is_pinned:
                    raise pinned_failure(error) from None
        return await self._to_home(request.lane, patience)

    async def _to_home(self, lane: Lane, patience: Patience) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await self._to(self.cluster.home or await self._find_home(), lane)
            except ClientClosedError:
                raise
            except DisqueConnectionError:
                if patience.is_over(loop.time()):
                    raise
            await asyncio.sleep(patience.pause_s())

    async def _find_home(self) -> Address:
        """Return the first node that answers and is not leaving, else one that is leaving. One search at a time.

        Raises NotConnectedError, AuthError, ClientClosedError.
        """
        async with self._dialling:
            if self.cluster.home is not None:
                return self.cluster.home
            last_resort: Address | None = None
            tried: list[Address] = []
            now = asyncio.get_running_loop().time()
            while (address := self.cluster.next_choice(tried, now)) is not None:
                tried.append(address)
                try:
                    await self._plain_to(address)
                except ClientClosedError:
                    raise
                except DisqueConnectionError as error:
                    self._last_error = str(error)
                    continue
                if self.cluster.is_better(address, last_resort):
                    last_resort = address
                if self.cluster.is_best(last_resort or address, tried, now):
                    break
            if last_resort is None:
                if self._login_error and self.cluster.is_login_wrong:
                    raise from_reply(self._login_error)
                raise NotConnectedError(f"no node can be reached; the last tried: {self._last_error}")
            self.cluster.home = last_resort
            return last_resort

    async def _to(self, address: Address, lane: Lane) -> AsyncConnection:
        if lane is Lane.PLAIN:
            return await self._plain_to(address)
        if lane is Lane.ADDS:
            return await self._adds_to(address)
        idle = self._idle_to(address)
        if idle:
            return idle.pop()
        connection = await self._dial(address)
        self._own.add(connection)
        return connection

    def _idle_to(self, address: Address) -> list[AsyncConnection]:
        """Return the idle connections to a node. The last one, which is taken first, is open."""
        idle = self._idle.get(address, [])
        while idle and idle[-1].is_closed:
            self._own.discard(idle.pop())
        return idle

    async def _plain_to(self, address: Address) -> AsyncConnection:
        async with self._locks.setdefault((address, Lane.PLAIN), asyncio.Lock()):
            connection = self._plain.get(address)
            if connection is None or connection.is_closed:
                connection = await self._dial(address)
                self._plain[address] = connection
            return connection

    async def _adds_to(self, address: Address) -> AsyncConnection:
        lanes = self._adds.setdefault(address, [])
        async with self._locks.setdefault((address, Lane.ADDS), asyncio.Lock()):
            lanes[:] = [connection for connection in lanes if not connection.is_closed]
            best = min(lanes, key=lambda connection: connection.pending, default=None)
            if best is None or (best.pending >= LANE_BUSY and len(lanes) < self._options.pool_size):
                best = await self._dial(address)
                lanes.append(best)
            return best

    async def _dial(self, address: Address) -> AsyncConnection:
        self._check_open()
        began = asyncio.get_running_loop().time()
        try:
            connection = await dial(address, self._options, self._tls)
        except NotConnectedError as error:
            self._failed(address, error)
            raise
        except ReplyError as error:
            if refuses_login(error):
                self._login_refused(address, error)
            else:
                self._failed(address, error)
            raise NotConnectedError(f"{address}: {error.text}") from error
        try:
            self._check_open()
        except ClientClosedError:
            connection.close()
            raise
        assert connection.hello is not None
        self.greeting_s = asyncio.get_running_loop().time() - began
        self.cluster.note_hello(address, connection.hello)
        return connection

    def _failed(self, address: Address, error: Exception) -> None:
        if self.cluster.note_failure(address, asyncio.get_running_loop().time()):
            _log.warning("node %s can't be reached: %s", address, error)

    def _login_refused(self, address: Address, error: ReplyError) -> None:
        self._login_error = error.text
        if self.cluster.note_login_refusal(address, asyncio.get_running_loop().time()):
            _log.error("node %s refuses the login: %s", address, error.text)

    def note_refusal(self, connection: AsyncConnection, reply: Reply) -> None:
        """Note that a node refused a command without any effect, and that another node may execute it."""
        if isinstance(reply, ReplyError) and needs_login(reply):
            self._login_refused(connection.address, reply)
            self._drop_idle(connection.address)
        else:
            self.cluster.note_refusal(connection.address, reply)

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClientClosedError("the client is closed")

    def give_back(self, connection: AsyncConnection) -> None:
        """Keep the connection of a command that waited for the next one, if this client still uses the node."""
        used = (self.cluster.home, self.cluster.feeder)
        idle = self._idle.setdefault(connection.address, [])
        if connection.is_closed or connection.address not in used or len(idle) >= self._options.pool_size:
            self._own.discard(connection)
            connection.close()
        else:
            idle.append(connection)

    async def hang_up(self, connection: AsyncConnection, limit_s: float) -> None:
        """Read the replies in flight to an abandoned GETJOB, then close its connection."""
        await connection.hang_up(limit_s)
        self._own.discard(connection)

    def drop(self, connection: AsyncConnection) -> None:
        """Close a connection whose answers are not wanted any more."""
        self._own.discard(connection)
        connection.close()

    def note_broken(self, connection: AsyncConnection, error: DisqueConnectionError) -> None:
        """Handle a connection that failed during a command. If it owed an answer, its node counts as failed.

        The connections to this node that owe no answer are closed then. On each of them, the next command might wait
        for a time-out.
        """
        self._own.discard(connection)
        owed = not isinstance(error, ConnectionLostError) or error.sent
        if owed and not connection.is_blamed and not self.is_closed:
            connection.is_blamed = True
            address = connection.address
            self.cluster.note_failure(address, asyncio.get_running_loop().time())
            self._drop_idle(address)

    def _drop_idle(self, address: Address) -> None:
        """Close the connections to a node that owe no answer."""
        plain = self._plain.get(address)
        for other in (*(() if plain is None else (plain,)), *self._adds.get(address, ()), *self._idle_to(address)):
            if other.pending == 0:
                self.drop(other)

    def move_consumers(self, address: Address) -> None:
        """Consume at another node from the next GETJOB on. If it can't be reached, `Cluster` undoes the move."""
        self.cluster.move_consumers(address)
        for old, idle in self._idle.items():
            if old != address:
                for leftover in idle:
                    self.drop(leftover)
                idle.clear()

    def close(self) -> None:
        """Close every connection. Waiting commands get ConnectionLostError, later ones ClientClosedError."""
        self.is_closed = True
        for connection in self._plain.values():
            connection.close()
        for lanes in (*self._adds.values(), *self._idle.values()):
            for connection in lanes:
                connection.close()
        for connection in list(self._own):
            connection.close()
        self._own.clear()
