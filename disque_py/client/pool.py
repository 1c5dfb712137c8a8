"""The connections of one blocking client, shared by its threads.

A thread takes a connection, uses it alone, and gives it back. At most `pool_size` connections are in use for commands
that are answered soon. A GETJOB that may wait takes none of these places, so waiting consumers never block producers.
The pool dials and reports to `Cluster`. It holds one lock, but never while it dials or waits for a node. It repeats no
command.

After a fork the child starts without connections, because two processes on one socket would read each other's replies.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from random import Random
from typing import Any, Final

from disque_py.client.address import Address
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
from disque_py.client.socket_connection import SocketConnection, dial

_log = logging.getLogger(__name__)

_OWN: Final = Lane.OWN

# The number of forks. A pool that sees another number than before asks for the number of its process, which is a system
# call. Hooks of a fork run in any order, so the count changes before the fork and in the child.
_forks = 0
# Held while a pool begins anew, and during a fork: a thread that the child does not have must not hold it. It is
# reentrant for the hooks of a fork, and for a garbage collection (see Pool.lock).
_beginning = threading.RLock()


def _count_fork() -> None:
    global _forks
    _forks += 1


def _before_fork() -> None:
    _beginning.acquire()
    _count_fork()


def _after_fork_in_parent() -> None:
    _beginning.release()


def _after_fork_in_child() -> None:
    global _beginning
    _beginning = threading.RLock()
    _count_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


class _Place:
    """A place in the pool for a connection that is being made.

    is_counted     it takes one of the pool's places; later the connection does
    is_abandoned   its command was interrupted, and perhaps again before it gave the place back
    """

    __slots__ = ("is_abandoned", "is_counted")

    def __init__(self) -> None:
        self.is_counted = False
        self.is_abandoned = False


class Pool:
    """Connections by node; `rng` chooses among equal nodes."""

    def __init__(self, options: ClientOptions, rng: Random) -> None:
        self._options = options
        self._tls = options.tls_context()
        self._rng = rng
        self._is_closed = False
        self._forks = _forks
        self._begin()

    def _begin(self) -> None:
        # Reentrant: a garbage collection may close a generator of jobs at any moment, and then it puts jobs back.
        self.lock = threading.RLock()
        self._room = threading.Condition(self.lock)
        self._searching = threading.RLock()
        options = self._options
        self.cluster = Cluster(options.seeds, self._rng, discover=options.discover, place=options.place)
        self._idle: dict[Address, list[SocketConnection]] = {}
        self._busy: set[SocketConnection] = set()
        self._places: set[_Place] = set()
        self._counted = 0
        self._waiting = 0
        self._last_error = "none is due, all failed a moment ago"
        self._login_error = ""
        self._pid = os.getpid()  # Last: a thread that sees it uses what was made before.

    def _look_for_fork(self) -> None:
        """Begin anew if this process is another one than that of the connections. Other threads wait for that."""
        forks = _forks
        with _beginning:
            if self._pid != os.getpid():
                self._begin()
            self._forks = forks

    def take(self, request: Request[Any], patience: Patience) -> SocketConnection:
        """Return a connection for a command, to the node that it belongs to.

        The caller calls `give_back` or `note_broken` afterwards.

        Raises NotConnectedError when no node was reached, or no place became free, within the patience; AuthError;
        ClientClosedError.
        """
        ready = self.take_idle(request)
        if ready is not None:
            return ready
        place = self._take_place() if request.lane is not _OWN else None
        try:
            connection = self._take(request, patience)
        except BaseException:  # An interrupt, too, must give the place back.
            if place is not None:
                place.is_abandoned = True
                self._leave_place(place)
            raise
        if place is not None:  # No call stands between these lines, so no interrupt does.
            connection.is_counted = True
            place.is_counted = False
        return connection

    def _discard(self, connection: SocketConnection | None) -> None:
        """Give the place of a connection back that was taken and not used, and close it."""
        if connection is not None:
            with self.lock:
                self._forget(connection)
            connection.close()

    def take_idle(self, request: Request[Any]) -> SocketConnection | None:
        """Take an idle connection, if there is one and a place is free. Nearly all commands find one."""
        if self._forks != _forks:
            self._look_for_fork()
        is_counted = request.lane is not _OWN
        connection: SocketConnection | None = None
        try:
            with self.lock:
                if self._is_closed or (is_counted and self._counted >= self._options.pool_size):
                    return None
                address = self.cluster.home
                if request.node is not None or request.is_consumers:
                    address = self.cluster.node_for(request, time.monotonic()) or address
                idle = None if address is None else self._idle.get(address)
                if not idle:
                    return None
                connection = idle.pop()
                connection.is_counted = is_counted
                self._counted += is_counted
                self._busy.add(connection)
            # Not under the lock: `is_stale` makes a system call, during which another thread may need the lock.
            if not connection.is_stale():
                return connection
            self._discard(connection)
            return None
        except BaseException:  # An interrupt, too, must give the place back.
            if connection is not None:
                connection.is_abandoned = True
            self._discard(connection)
            raise

    def _take_place(self) -> _Place:
        """Wait for a free place, and take it. Raises NotConnectedError."""
        place = _Place()
        try:
            with self.lock:  # Not the condition: an interrupt in its Python code would leave the lock taken.
                self._waiting += 1
                try:
                    is_free = self._room.wait_for(self._has_room, self._options.patience)
                finally:
                    self._waiting -= 1
                if not is_free:
                    raise NotConnectedError(f"all {self._options.pool_size} connections are in use")
                self._places = {other for other in self._places if other.is_counted}
                self._places.add(place)
                self._counted += 1
                place.is_counted = True
        except BaseException:  # An interrupt, too, must give the place back.
            place.is_abandoned = True
            self._leave_place(place)
            raise
        return place

    def _has_room(self) -> bool:
        if not self._is_closed and self._counted >= self._options.pool_size:
            self._reclaim()
        return self._is_closed or self._counted < self._options.pool_size

    def _reclaim(self) -> None:
        """Take back the places of commands whose clean-up was interrupted, too."""
        for place in [place for place in self._places if place.is_abandoned]:
            self._forget_place(place)
        for connection in [connection for connection in self._busy if connection.is_abandoned]:
            self._forget(connection)
            connection.close()

    def _leave_place(self, place: _Place) -> None:
        with self.lock:
            self._forget_place(place)

    def _forget_place(self, place: _Place) -> None:
        if place.is_counted:  # As in `_forget`.
            place.is_counted = False
            self._counted -= 1
        self._places.discard(place)
        if self._waiting:
            self._room.notify()

    def _take(self, request: Request[Any], patience: Patience) -> SocketConnection:
        with self.lock:
            address = self.cluster.node_for(request, time.monotonic())
        if address is not None:
            try:
                return self._to(address)
            except DisqueConnectionError as error:
                if request.is_pinned:
                    raise pinned_failure(error) from None
        while True:
            try:
                return self._to(self.cluster.home or self._find_home())
            except ClientClosedError:
                raise
            except DisqueConnectionError:
                if patience.is_over(time.monotonic()):
                    raise
            time.sleep(patience.pause_s())

    def _find_home(self) -> Address:
        """Return the first node that answers and is not leaving, else one that is leaving. One search at a time.

        Raises NotConnectedError, AuthError, ClientClosedError.
        """
        with self._searching:
            last_resort: Address | None = None
            tried: list[Address] = []
            while True:
                with self.lock:
                    if self.cluster.home is not None:
                        return self.cluster.home
                    address = self.cluster.next_choice(tried, time.monotonic())
                if address is None:
                    break
                tried.append(address)
                try:
                    connection = self._to(address)
                except ClientClosedError:
                    raise
                except DisqueConnectionError as error:
                    self._last_error = str(error)
                    continue
                self.give_back(connection)
                with self.lock:
                    if self.cluster.is_better(address, last_resort):
                        last_resort = address
                    if self.cluster.is_best(last_resort or address, tried, time.monotonic()):
                        break
            if last_resort is None:
                if self._login_error and self.cluster.is_login_wrong:
                    raise from_reply(self._login_error)
                raise NotConnectedError(f"no node can be reached; the last tried: {self._last_error}")
            with self.lock:
                self.cluster.home = last_resort
            return last_resort

    def _to(self, address: Address) -> SocketConnection:
        while True:
            with self.lock:
                self._check_open()
                idle = self._idle.get(address)
                if not idle:
                    break
                connection = idle.pop()
                if not connection.is_stale():
                    self._busy.add(connection)
                    return connection
            connection.close()
        return self._dial(address)

    def _dial(self, address: Address) -> SocketConnection:
        try:
            connection = dial(address, self._options, self._tls)
        except NotConnectedError as error:
            self._failed(address, error)
            raise
        except ReplyError as error:
            if refuses_login(error):
                self._login_refused(address, error)
            else:
                self._failed(address, error)
            raise NotConnectedError(f"{address}: {error.text}") from error
        assert connection.hello is not None
        try:
            with self.lock:
                self._check_open()
                self.cluster.note_hello(address, connection.hello)
                connection.shelf = self._idle.setdefault(address, [])
                self._busy.add(connection)
        except BaseException:  # An interrupt, too, must leave no socket open.
            connection.is_abandoned = True
            self._discard(connection)
            raise
        return connection

    def _failed(self, address: Address, error: Exception) -> None:
        with self.lock:
            is_news = self.cluster.note_failure(address, time.monotonic())
        if is_news:
            _log.warning("node %s can't be reached: %s", address, error)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client is closed")

    def give_back(self, connection: SocketConnection) -> None:
        """Keep the connection for the next command, unless its node failed."""
        with self.lock:
            self._forget(connection)
            address, idle = connection.address, connection.shelf
            if (
                not self._is_closed
                and not connection.is_closed
                and len(idle) < self._options.pool_size
                and (address is self.cluster.home or self.cluster.is_due(address, time.monotonic()))
            ):
                idle.append(connection)
                return
        connection.close()

    def note_broken(self, connection: SocketConnection, error: BaseException) -> None:
        """Handle a connection that failed during a command. If it owed an answer, its node counts as failed.

        The idle connections to this node are closed then. On each of them, the next command might wait for a time-out.
        """
        connection.close()
        dead: list[SocketConnection] = []
        with self.lock:
            self._forget(connection)
            owed = isinstance(error, DisqueConnectionError) and not (
                isinstance(error, ConnectionLostError) and not error.sent
            )
            now, address = time.monotonic(), connection.address
            is_used = address in (self.cluster.home, self.cluster.feeder) or self.cluster.is_due(address, now)
            if owed and not self._is_closed and is_used:
                # Only the first of the threads that lose their connections to this node notes its failure. The others
                # find that the home has changed, or that the node is in its pause already. `is_due`: a node that
                # delivered jobs gets their acks, even if it is neither home nor feeder.
                self.cluster.note_failure(address, now)
                dead, connection.shelf[:] = connection.shelf[:], []
        for idle in dead:
            idle.close()

    def _forget(self, connection: SocketConnection) -> None:
        if connection.is_counted:  # No call stands between these two lines, so no interrupt does.
            connection.is_counted = False
            self._counted -= 1
        self._busy.discard(connection)
        if self._waiting:
            self._room.notify()

    def _login_refused(self, address: Address, error: ReplyError) -> None:
        with self.lock:
            self._login_error = error.text
            is_news = self.cluster.note_login_refusal(address, time.monotonic())
        if is_news:
            _log.error("node %s refuses the login: %s", address, error.text)

    def note_refusal(self, address: Address, reply: Reply) -> None:
        """Note that a node refused a command without any effect, and that another node may execute it."""
        if isinstance(reply, ReplyError) and needs_login(reply):
            self._login_refused(address, reply)
            with self.lock:
                idle = self._idle.get(address, [])
                dead, idle[:] = idle[:], []
            for connection in dead:
                connection.close()
            return
        with self.lock:
            self.cluster.note_refusal(address, reply)

    def note_full(self, address: Address) -> bool:
        """Note that the memory or the disk of a node is full. Return whether another node is left to be asked."""
        with self.lock:
            return self.cluster.note_full(address, time.monotonic())

    def close(self) -> None:
        """Close every connection. Threads that wait on one get ConnectionLostError, later calls ClientClosedError.

        A forked child closes none: the connections are its parent's, and shutting a socket down ends it for both.
        """
        self._look_for_fork()
        with self.lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
            for connection in self._busy:
                connection.shut_down()
            self._room.notify_all()
        for connections in idle.values():
            for connection in connections:
                connection.close()
