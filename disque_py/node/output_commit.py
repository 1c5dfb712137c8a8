"""Output commit: replies and messages leave the node only when their record is safe.

A reply to a command that changed something waits for the journal's position of its turn. So does a message that another
node relies on. Replies and messages that need no record leave immediately (spec P1, P2, P3). Later replies on a
connection wait behind earlier ones. Messages that wait keep their order. The journal's policy decides when a record is
safe (persistence/journal.py).

On a node with an event log, replies and messages also wait for the turn's events, with or without a journal. Then a
CommitPosition combines both logs (node/commit_position.py).

At the end of a turn the driver calls `record`, `hold_messages` and `hold_replies`. It calls `released` for the clients
that may go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from cluster_bus.messages import (
    ASKCHANGED,
    ASKJOBS,
    ASKSETTINGS,
    CAP_ASK,
    CAP_FOLLOW,
    CAP_GRANT,
    CAP_SETTLE,
    CAP_USE,
    CLAIM,
    CLAIM_IS,
    CLAIM_NEWEST,
    FAIL_NODE,
    FILTER_HINT,
    FILTER_INTEREST,
    FILTER_NEED,
    FREED,
    GOTJOB,
    GOTMANY,
    HINT,
    INTEREST,
    ISKEY,
    MEET,
    NEEDJOBS,
    NOWAIT,
    PATTERN_INTEREST,
    PATTERN_QUEUE,
    PING,
    PONG,
    QLENGTHS,
    RECALL,
    RECALLED,
    RELEASE,
    RELEASED,
    REPLJOB,
    REPLMANY,
    SETTING,
    SETTINGS_DIGEST,
    SETTINGS_HAVE,
    VOTE,
    VOTE_IS,
    VOTERS,
    WAITFOR,
)
from cluster_bus.node import Node
from cluster_bus.outgoing import Run, without
from disque_py.core import journaling
from disque_py.core.broker import Broker
from disque_py.core.client import WROTE_IN_TROUBLE, WROTE_NOTHING, Client
from disque_py.node.commit_position import CommitPosition
from persistence.journal import ALWAYS, Journal

# Messages that promise nothing. A copy is sent while our own record is written. The others are questions and signs of
# life: if the disk could delay these, other nodes would suspect this node. Queue settings have another file, which is
# written before they are sent. So have the grants of voters.
OF_SETTINGS: Final = (SETTING, SETTINGS_HAVE, SETTINGS_DIGEST, ASKSETTINGS, QLENGTHS)
# Slots bound deliveries, and promise nothing about a job.
OF_CAPS: Final = (CAP_FOLLOW, CAP_ASK, CAP_GRANT, CAP_SETTLE, CAP_USE)
OF_CLAIMS: Final = (VOTERS, CLAIM, CLAIM_IS, RELEASE, RELEASED, VOTE, VOTE_IS, RECALL, RECALLED, FREED, CLAIM_NEWEST)
FREE: Final = frozenset(
    (
        REPLJOB,
        REPLMANY,
        NEEDJOBS,
        HINT,
        INTEREST,
        FILTER_NEED,
        FILTER_HINT,
        FILTER_INTEREST,
        PATTERN_INTEREST,
        PATTERN_QUEUE,
        ISKEY,
        ASKCHANGED,
        ASKJOBS,
        WAITFOR,
        NOWAIT,
        PING,
        PONG,
        MEET,
        FAIL_NODE,
        *OF_SETTINGS,
        *OF_CLAIMS,
        *OF_CAPS,
    )
)


class OutputCommit:
    """The replies and messages of one node that wait for its logs.

    journal           the journal that turns are recorded in; None on a node with an event log alone
    commit_position   how far the logs are: the journal itself, or journal and event log as one
    """

    __slots__ = ("_broker", "_clients", "_messages", "commit_position", "journal")

    def __init__(self, broker: Broker, journal: Journal | None, commit_position: Journal | CommitPosition) -> None:
        self.journal = journal
        self.commit_position = commit_position
        self._broker = broker
        self._clients: deque[tuple[int, Client]] = deque()
        self._messages: deque[tuple[int, list[Run]]] = deque()

    def record(self) -> None:
        """Give the journal the changes of this turn."""
        broker = self._broker
        journal = self.journal
        assert journal is not None
        if broker.outbox.is_void:
            broker.outbox.is_void = False
            journal.restart()
        broker.journal.place = journal.number
        outbox = broker.outbox
        if (
            broker.dirty
            or outbox.gone.count
            or outbox.pauses
            or outbox.moved
            or outbox.tokens
            or outbox.keys
            or outbox.results
            or broker.batches.recorded
        ):
            runs = journaling.collect(broker)
            if runs:
                journal.append(runs)

    def hold_messages(self, runs: list[Run]) -> list[Run]:
        """Keep back the runs that have to wait. Return the runs that may be sent now, in order."""
        journal = self.journal
        if journal is not None and journal.policy != ALWAYS and not journal.must_wait():
            return self._messages_in_trouble(runs)
        commit_position = self.commit_position
        position = commit_position.position
        ready = commit_position.ready_position()
        held = self._messages
        if position <= ready and not held:
            return runs
        waiting = [run for run in runs if run[1] not in FREE]
        if waiting:
            assert not held or held[-1][0] <= position
            held.append((position, waiting))
        free = [run for run in runs if run[1] in FREE]
        while held and held[0][0] <= ready:
            free += held.popleft()[1]
        return free

    def _messages_in_trouble(self, runs: list[Run]) -> list[Run]:
        """Return all messages but confirmations of copies, while the journal can't be written.

        Changes that are allowed meanwhile are only in memory. A copy that is on no disk does not count as a copy, so no
        other node may rely on it.
        """
        held = self._messages
        free = [run for _, waiting in held for run in waiting] + runs
        held.clear()
        return [run for run in free if run[1] not in (GOTJOB, GOTMANY)]

    def leave_out(self, node: Node) -> None:
        """Drop the messages that wait for this node: its process has ended, and the next one must not get them.

        Hand-over numbers are valid for one process (spec H1). The next process would take a finished hand-over for a
        new one, whose job was perhaps delivered before. It would take an answer for the answer to another hand-over.
        """
        self._messages = deque((position, without(runs, node)) for position, runs in self._messages)

    def hold_replies(self, clients: list[Client]) -> None:
        """Put aside the replies that these clients may not read yet."""
        commit_position = self.commit_position
        position = commit_position.position
        ready = commit_position.ready_position()
        if position <= ready and not self._clients:
            for client in clients:
                client.wrote = WROTE_NOTHING
            return
        is_in_trouble = not commit_position.must_wait()
        for client in clients:
            out = client.out
            held = client.held
            wrote = client.wrote
            if is_in_trouble and wrote == WROTE_IN_TROUBLE and not held:
                # The reply need not wait for its record. It does wait for it if it is behind other replies.
                wrote = WROTE_NOTHING
            if out and (held or (wrote and position > ready)):
                replies = out[0] if len(out) == 1 else b"".join(out)
                if held and (not wrote or held[-1][0] >= position):
                    held[-1][1].append(replies)
                else:
                    if held is None:
                        held = client.held = deque()
                    held.append((position, [replies]))
                    self._clients.append((position, client))
                client.out = []
                client.held_bytes += len(replies)
            client.wrote = WROTE_NOTHING

    def released(self) -> list[Client]:
        """Return the clients whose replies may go: they are in `out` again."""
        waiting = self._clients
        clients: list[Client] = []
        if not waiting:
            return clients
        ready = self.commit_position.ready_position()
        while waiting and waiting[0][0] <= ready:
            client = waiting.popleft()[1]
            held = client.held
            if not held:
                continue
            out = client.out
            while held and held[0][0] <= ready:
                replies = held.popleft()[1]
                for reply in replies:
                    client.held_bytes -= len(reply)
                out += replies
            if not held:
                client.held = None
                client.held_bytes = 0
            clients.append(client)
        return clients

    def release_all(self) -> None:
        """Release all replies and messages: the journal, the only log, is closed."""
        for _, client in self._clients:
            while client.held:
                client.out += client.held.popleft()[1]
            client.held = None
            client.held_bytes = 0
            self._broker.outbox.clients[client] = None
        self._clients.clear()
        messages = self._broker.outbox.messages
        messages.runs[:0] = [run for _, runs in self._messages for run in runs]
        messages.is_urgent = True
        self._messages.clear()

    def waiting_runs(self) -> Iterator[Run]:
        """Yield the messages to other nodes that wait, oldest first."""
        for _, runs in self._messages:
            yield from runs

    @property
    def has_messages(self) -> bool:
        """Return whether messages to other nodes wait."""
        return bool(self._messages)

    @property
    def is_waiting(self) -> bool:
        """Return whether replies or messages wait."""
        return bool(self._clients or self._messages)
