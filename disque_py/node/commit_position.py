"""Gate: journal and event log, seen as one by whatever must not go ahead of either.

Promises wait for a position (node/output_commit.py). A node with both logs has two of them per turn, which move on at different
speeds. The gate numbers the turns instead, remembers where both logs stood at the end of each, and says which turns are
safe in both. Without events there is no gate, and promises ask the journal itself.

Either log may come and go while the node runs: what waits for one that is gone waits no longer.
"""

from __future__ import annotations

from collections import deque

from persistence.event_log import EventLog
from persistence.journal import Journal


class CommitPosition:
    """See the module. Numbers go on from `position`, where a journal stood before: older ones are the journal's."""

    __slots__ = ("_events_noted", "_journal_noted", "_old_end", "_ready", "_turns", "events", "journal", "position")

    def __init__(self, journal: Journal | None, position: int = 0) -> None:
        self.journal = journal
        self.events: EventLog | None = None
        self.position = position
        self._old_end = position
        self._ready = 0 if journal is not None else position
        self._journal_noted = self._events_noted = 0
        # (turn, position of the journal, position of the event log), oldest first
        self._turns: deque[tuple[int, int, int]] = deque()

    def note(self) -> None:
        """The end of a turn: both logs have been told all there was."""
        journal, events = self.journal, self.events
        journal_at = journal.position if journal is not None else 0
        events_at = events.position if events is not None else 0
        if journal_at == self._journal_noted and events_at == self._events_noted:
            return
        self._journal_noted = journal_at
        self._events_noted = events_at
        if (
            self._ready == self.position
            and not self._turns
            and (events is None or events.ready_position() >= events_at)
            and (journal is None or journal.ready_position() >= journal_at)
        ):
            return  # Written already, as nearly every turn is without a journal: nothing will wait for it.
        self.position += 1
        self._turns.append((self.position, journal_at, events_at))

    def ready_position(self) -> int:
        """All turns up to here are safe."""
        if self._ready == self.position:
            return self._ready
        journal, events = self.journal, self.events
        journal_ready = journal.ready_position() if journal is not None else 1 << 62
        if self._ready < self._old_end:
            self._ready = min(journal_ready, self._old_end)
            if self._ready < self._old_end:
                return self._ready
        turns = self._turns
        if turns:
            events_ready = events.ready_position() if events is not None else 1 << 62
            while turns and turns[0][1] <= journal_ready and turns[0][2] <= events_ready:
                self._ready = turns.popleft()[0]
        return self._ready

    def must_wait(self) -> bool:
        """Whether new replies wait; with a journal in trouble those that are still given don't."""
        return self.journal is None or self.journal.must_wait()

    def remove_journal(self) -> None:
        """There is no journal any more: nothing waits for it."""
        self.journal = None
        self._ready = max(self._ready, self._old_end)
        self._old_end = 0
        self._turns = deque((turn, 0, events) for turn, _, events in self._turns)
        self._journal_noted = 0
