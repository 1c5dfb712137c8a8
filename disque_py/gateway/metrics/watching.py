"""Watching: all nodes are asked in parallel, and none waits for another.

A Watch is one node: its address, its connection, which stays open between scrapes, and a thread while it is asked. A
Watchers has all of them. `scrape` begins a look at each node and waits until a deadline. A node that has not answered
by then is down for this scrape, and the look goes on in its thread. From then on the node is *late*: scrapes still ask
it, but wait only as long as the other nodes take. So a stalled node delays only one scrape by the time limit. A look
that succeeds ends this state.

Simultaneous scrapes share looks, so each node is asked only once.

With discovery, the nodes that HELLO names are watched as well. Nodes are distinguished by their ids, because one node
may have two addresses. If no answering node names a node any more, it is dropped, unless the command line names it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from disque_py.client import Address, AuthError, ClientOptions, ConnectionLostError
from disque_py.client.one_node import OneNode
from disque_py.gateway.metrics.look import Look, look_at
from disque_py.gateway.metrics.selection import Selection

# Each scrape waits at least this long for a late node, even if all others have answered.
LATE_CHANCE_S: Final = 0.05
# The reply to AUTH of a node whose default user has no password.
NO_PASSWORD: Final = "ERR Client sent AUTH"
# The most nodes that discovery adds.
NODES_MAX: Final = 200


@dataclass(slots=True)
class Seen:
    """One node in one scrape: its address, and its look or the reason why there is none.

    cause   the exception behind the reason; None: the node did not answer in time
    """

    address: Address
    look: Look | None
    error: str = ""
    cause: Exception | None = None


class Watch:
    """One watched node.

    address    the address to connect to
    is_named   whether the command line names it
    node_id    its id, after it has answered HELLO
    is_late    whether it did not answer in time, and has not answered since
    """

    def __init__(self, address: Address, options: ClientOptions, selection: Selection, *, is_named: bool) -> None:
        self.address = address
        self.is_named = is_named
        self.node_id = ""
        self.is_late = False
        self._options = options
        self._selection = selection
        self._lock = threading.Lock()
        self._pending: Future[Look] | None = None
        self._connection: OneNode | None = None
        self._is_closed = False

    def begin(self) -> Future[Look]:
        """Return the current look, or begin one."""
        with self._lock:
            if self._pending is None:
                self._pending = Future()
                threading.Thread(
                    target=self._run, args=(self._pending,), name=f"watch {self.address}", daemon=True
                ).start()
            return self._pending

    def _run(self, future: Future[Look]) -> None:
        try:
            look = self._look()
        except Exception as error:  # The thread has no caller, so the scrape gets every error.
            self._hang_up()
            self._end()
            future.set_exception(error)
            return
        self.is_late = False
        if look.hello is not None:
            self.node_id = look.hello.id
        self._end()
        future.set_result(look)

    def close(self) -> None:
        """Close the connection, at the end of the current look."""
        with self._lock:
            self._is_closed = True
            if self._pending is None:
                self._hang_up()

    def _end(self) -> None:
        with self._lock:
            self._pending = None
            if self._is_closed:
                self._hang_up()

    def _look(self) -> Look:
        """Ask the node. An idle connection may be gone (a restart, `timeout`), so try once more with a new one."""
        if self._connection is not None:
            with suppress(ConnectionLostError):
                return self._ask(self._connection)
            self._hang_up()
        self._connection = connected(self.address, self._options)
        return self._ask(self._connection)

    def _ask(self, connection: OneNode) -> Look:
        return look_at(connection, lambda names: self._selection.choose(self, names))

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connected(address: Address, options: ClientOptions) -> OneNode:
    """Return a connection. If the node refuses the login because it has no password, connect without one."""
    try:
        return OneNode(address, options)
    except AuthError as error:
        if not error.text.startswith(NO_PASSWORD):
            raise
        return OneNode(address, replace(options, username=None, password=None))


class Watchers:
    """All watched nodes.

    named       addresses of the command line
    options     login, TLS and time limits of connections
    selection   the queues with labels
    discovers   also watch the nodes that HELLO names
    """

    def __init__(
        self, named: Iterable[Address], options: ClientOptions, selection: Selection, *, discovers: bool = False
    ) -> None:
        self._options = options
        self._selection = selection
        self._discovers = discovers
        self._lock = threading.Lock()
        self._watches = {address: self._made(address, is_named=True) for address in named}
        self._last: tuple[float, bool] | None = None

    def scrape(self, limit_s: float) -> list[Seen]:
        """Ask all nodes. Return the answer of each one within `limit_s` seconds, in the order of their addresses."""
        deadline = time.monotonic() + limit_s
        watches = self.watches()
        pending = {watch: watch.begin() for watch in watches}
        # Late nodes come last, after the time for the others.
        found = {watch: _seen(watch, pending[watch], deadline) for watch in watches if not watch.is_late}
        last_chance = min(deadline, time.monotonic() + LATE_CHANCE_S)
        for watch in watches:
            if watch not in found:
                found[watch] = _seen(watch, pending[watch], last_chance)
        if self._discovers:
            self._discover([seen.look for seen in found.values() if seen.look is not None])
            found |= self._look_at_new(found, deadline)
        seen = [found[watch] for watch in sorted(found, key=_place)]
        self._last = (time.monotonic(), any(each.look is not None for each in seen))
        return seen

    def _look_at_new(self, found: Collection[Watch], deadline: float) -> dict[Watch, Seen]:
        """Ask the nodes that this scrape has discovered. Otherwise the first one would show a part of the cluster."""
        if deadline - time.monotonic() < LATE_CHANCE_S:
            return {}  # There is no time left, so the next scrape asks them first.
        pending = {watch: watch.begin() for watch in self.watches() if watch not in found}
        return {watch: _seen(watch, each, deadline) for watch, each in pending.items()}

    def is_ready(self, limit_s: float, age_s: float) -> bool:
        """Return whether a node answered the last scrape. If that is older than `age_s` seconds, scrape again."""
        last = self._last
        if last is None or time.monotonic() - last[0] > age_s:
            self.scrape(limit_s)
            last = self._last
        return last is not None and last[1]

    def close(self) -> None:
        """Close all connections."""
        for watch in self.watches():
            watch.close()

    def watches(self) -> list[Watch]:
        """Return the nodes that are watched now."""
        with self._lock:
            return sorted(self._watches.values(), key=_place)

    def _made(self, address: Address, *, is_named: bool) -> Watch:
        return Watch(address, self._options, self._selection, is_named=is_named)

    def _discover(self, looks: list[Look]) -> None:
        nodes = [node for look in looks if look.hello is not None for node in look.hello.nodes]
        if not nodes:
            return  # No node could be asked, so there is no reason to drop any.
        with self._lock:
            self._drop({node.id for node in nodes})
            ids = {watch.node_id for watch in self._watches.values()}
            for node in nodes:
                address = Address(node.host, node.port)
                is_new = node.id not in ids and address not in self._watches
                if is_new and node.host and len(self._watches) < NODES_MAX:
                    watch = self._watches[address] = self._made(address, is_named=False)
                    watch.node_id = node.id
                    ids.add(node.id)

    def _drop(self, ids: set[str]) -> None:
        """Drop discovered nodes that are not in the cluster any more, or that the command line names as well."""
        named = {watch.node_id for watch in self._watches.values() if watch.is_named}
        for address, watch in list(self._watches.items()):
            if not watch.is_named and (watch.node_id not in ids or watch.node_id in named):
                del self._watches[address]
                self._selection.forget(watch)
                watch.close()


def _place(watch: Watch) -> str:
    return str(watch.address)


def _seen(watch: Watch, pending: Future[Look], deadline: float) -> Seen:
    try:
        return Seen(watch.address, pending.result(max(0.0, deadline - time.monotonic())))
    except TimeoutError as error:
        # The error has a text if the look timed out, and none if this wait did.
        watch.is_late = True
        return Seen(watch.address, None, str(error) or "no answer in time")
    except Exception as error:  # Another server at this address may send anything. It must not break the scrape.
        return Seen(watch.address, None, str(error), error)
