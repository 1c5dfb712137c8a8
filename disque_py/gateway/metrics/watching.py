"""Watching: all nodes are asked at once, and none waits for another.

A Watch is one node: its address, its connection, which stays open between scrapes, and a thread while it is asked. A
Watchers is all of them. `scrape` begins a look at each node and waits until a deadline. A node without an answer by
then is down for this scrape, and the look goes on in its thread. From then on the node is late: scrapes still ask it,
but they don't wait for it any longer than for the others. So a stalled node delays one scrape by the time limit, and no
other. A look that succeeds ends this.

Scrapes at the same time share looks: a node is asked by one of them.

With discovery, the nodes that HELLO names are watched as well. Nodes are told apart by their ids, because one node may
be named by two addresses. A node that no answering node names any more is dropped, unless the command line names it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from disque_py.client import Address, AuthError, ClientOptions, ConnectionLostError
from disque_py.client.one_node import OneNode
from disque_py.gateway.metrics.look import Look, look_at
from disque_py.gateway.metrics.selection import Selection

# A late node gets this chance in each scrape, even if all others have answered.
LATE_CHANCE_S: Final = 0.05
# Nodes that discovery adds at most.
NODES_MAX: Final = 200


@dataclass(slots=True)
class Seen:
    """One node in one scrape: its address, and its look or the reason why there is none."""

    address: Address
    look: Look | None
    error: str = ""


class Watch:
    """One node that is watched.

    address    the address to connect to
    is_named   the command line names it
    node_id    its id, once it answered HELLO
    is_late    it did not answer in time, and has not answered since
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
        """Return the look that is under way, or begin one."""
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
        except Exception as error:  # The thread has no caller: the scrape gets every error.
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
        """Close the connection, at the end of the look that is under way."""
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
        """Ask the node. An idle connection may be gone (a restart, `timeout`), so a lost one is tried anew, once."""
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
    """Return a connection. A node without a password refuses one and serves all the same, so it is tried without."""
    try:
        return OneNode(address, options)
    except AuthError:
        return OneNode(address, replace(options, username=None, password=None))


class Watchers:
    """All nodes that are watched.

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
        """Ask all nodes, and return what each one said within `limit_s` seconds, in order of their addresses."""
        deadline = time.monotonic() + limit_s
        watches = self.watches()
        pending = {watch: watch.begin() for watch in watches}
        # Late nodes come last, when the others have had their time.
        found = {watch: _seen(watch, pending[watch], deadline) for watch in watches if not watch.is_late}
        last_chance = min(deadline, time.monotonic() + LATE_CHANCE_S)
        for watch in watches:
            if watch not in found:
                found[watch] = _seen(watch, pending[watch], last_chance)
        if self._discovers:
            self._discover([seen.look for seen in found.values() if seen.look is not None])
        seen = [found[watch] for watch in watches]
        self._last = (time.monotonic(), any(each.look is not None for each in seen))
        return seen

    def is_ready(self, limit_s: float, age_s: float) -> bool:
        """Return whether a node answered the last scrape; one that is older than `age_s` seconds is repeated."""
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
            return sorted(self._watches.values(), key=lambda watch: str(watch.address))

    def _made(self, address: Address, *, is_named: bool) -> Watch:
        return Watch(address, self._options, self._selection, is_named=is_named)

    def _discover(self, looks: list[Look]) -> None:
        nodes = [node for look in looks if look.hello is not None for node in look.hello.nodes]
        if not nodes:
            return  # No node could be asked: that is no reason to drop any.
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


def _seen(watch: Watch, pending: Future[Look], deadline: float) -> Seen:
    try:
        return Seen(watch.address, pending.result(max(0.0, deadline - time.monotonic())))
    except TimeoutError as error:
        # A look that timed out itself has a text; our own wait has none.
        watch.is_late = True
        return Seen(watch.address, None, str(error) or "no answer in time")
    except Exception as error:  # Another server at this address may answer anything. It must not spoil the scrape.
        return Seen(watch.address, None, str(error))
