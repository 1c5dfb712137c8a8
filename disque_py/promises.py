"""Promises: what must not leave before its record is safe.

A reply to a command that changed something, and a message that another node relies on, wait behind the journal's
position of their turn; what needs no record goes on at once (spec P1, P2, P3). Later replies on a connection
wait behind earlier ones, later messages that wait keep their order, too. "Safe" is the policy's business
(persistence/journal.py). What the event log must be handed before anybody acts on it waits in the same way, on a node
without a journal, too; then a gate stands for both logs (gate.py).

The driver calls `record` and then `hold_messages` and `hold_replies` at the end of a turn, and `released` to hear who
may go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from cluster_bus.messages import (
    FAIL_NODE,
    GOTJOB,
    HINT,
    INTEREST,
    ISKEY,
    MEET,
    NEEDJOBS,
    PING,
    PONG,
    REPLJOB,
)
from cluster_bus.node import Node
from cluster_bus.outgoing import Run, without
from disque_py.core import journaling
from disque_py.core.broker import Broker
from disque_py.core.client import WROTE_IN_TROUBLE, WROTE_NOTHING, Client
from disque_py.gate import Gate
from persistence.journal import ALWAYS, Journal

# Messages that promise nothing. A copy is under way while our own record is written; the rest are questions, and signs
# of life, for which others take a node for dead if its disk can hold them up.
FREE: Final = frozenset((REPLJOB, NEEDJOBS, HINT, INTEREST, ISKEY, PING, PONG, MEET, FAIL_NODE))


class Holding:
    """What waits for one node's logs: `gate` says how far they are."""

    __slots__ = ("_broker", "_clients", "_messages", "gate")

    def __init__(self, broker: Broker, gate: Journal | Gate) -> None:
        self.gate = gate
        self._broker = broker
        self._clients: deque[tuple[int, Client]] = deque()
        self._messages: deque[tuple[int, list[Run]]] = deque()

    def hold_messages(self, runs: list[Run]) -> list[Run]:
        """Keep back what has to wait; the runs that may be sent now, in order."""
        gate = self.gate
        position = gate.position
        ready = gate.ready_position()
        held = self._messages
        if position <= ready and not held:
            return runs
        waiting = [run for run in runs if run[1] not in FREE]
        if waiting:
            held.append((position, waiting))
        free = [run for run in runs if run[1] in FREE]
        while held and held[0][0] <= ready:
            free += held.popleft()[1]
        return free

    def leave_out(self, node: Node) -> None:
        """Its process is gone that the messages were meant for: the next one must not get them.

        Numbers of hand-overs hold for one process (spec H1). To another one a hand-over that is over
        would be a new one, of a job that was perhaps delivered, and an answer the answer to another hand-over.
        """
        self._messages = deque((position, without(runs, node)) for position, runs in self._messages)

    def hold_replies(self, clients: Iterable[Client]) -> None:
        """Put aside what these clients may not read yet."""
        gate = self.gate
        position = gate.position
        is_in_trouble = not gate.must_wait()
        ready = gate.ready_position()
        if position <= ready and not self._clients:
            for client in clients:
                client.wrote = WROTE_NOTHING
            return
        for client in clients:
            out = client.out
            held = client.held
            wrote = client.wrote
            if is_in_trouble and wrote == WROTE_IN_TROUBLE:
                wrote = WROTE_NOTHING
            if out and (held or (wrote and position > ready)):
                size = sum(map(len, out))
                if held and (not wrote or held[-1][0] >= position):
                    held[-1][1].extend(out)
                else:
                    if held is None:
                        held = client.held = deque()
                    held.append((position, out))
                    self._clients.append((position, client))
                client.out = []
                client.held_bytes += size
            client.wrote = WROTE_NOTHING

    def released(self) -> list[Client]:
        """Clients whose replies may go: they are in `out` again."""
        waiting = self._clients
        clients: list[Client] = []
        if not waiting:
            return clients
        ready = self.gate.ready_position()
        while waiting and waiting[0][0] <= ready:
            client = waiting.popleft()[1]
            held = client.held
            if not held:
                continue
            out = client.out
            while held and held[0][0] <= ready:
                out += held.popleft()[1]
            client.held_bytes -= min(client.held_bytes, sum(map(len, out)))
            if not held:
                client.held = None
                client.held_bytes = 0
            clients.append(client)
        return clients

    def release_all(self) -> None:
        """The journal goes: nobody can wait for it any more."""
        for _, client in self._clients:
            while client.held:
                client.out += client.held.popleft()[1]
            client.held = None
            client.held_bytes = 0
            self._broker.outbox.clients[client] = None
        self._clients.clear()
        self._broker.outbox.messages.runs[:0] = [run for _, runs in self._messages for run in runs]
        self._messages.clear()

    def adopt(self, other: Holding) -> None:
        """What waited in `other`, with the same gate, waits here."""
        self._clients += other._clients
        self._messages += other._messages

    @property
    def has_messages(self) -> bool:
        """Messages to other nodes wait."""
        return bool(self._messages)

    @property
    def is_waiting(self) -> bool:
        """Somebody waits."""
        return bool(self._clients or self._messages)


class Promises(Holding):
    """What waits for one node's journal, and for its event log if it has one."""

    __slots__ = ("journal",)

    def __init__(self, broker: Broker, journal: Journal, gate: Gate | None = None) -> None:
        super().__init__(broker, gate if gate is not None else journal)
        self.journal = journal

    def record(self) -> None:
        """Give the journal what this turn changed."""
        broker = self._broker
        journal = self.journal
        if broker.outbox.is_void:
            broker.outbox.is_void = False
            journal.restart()
        broker.place = journal.number
        outbox = broker.outbox
        if broker.touched or outbox.gone or outbox.pauses or outbox.moved or outbox.tokens or outbox.keys:
            runs = journaling.collect(broker)
            if runs:
                journal.append(runs)

    def hold_messages(self, runs: list[Run]) -> list[Run]:
        """Keep back what has to wait; the runs that may be sent now, in order."""
        journal = self.journal
        held = self._messages
        if journal.policy != ALWAYS and not journal.must_wait():
            # What is allowed in trouble goes on in memory. A copy that is on no disk is none: nobody may count on it.
            free = [run for _, waiting in held for run in waiting] + runs
            held.clear()
            return [run for run in free if run[1] != GOTJOB]
        return super().hold_messages(runs)
