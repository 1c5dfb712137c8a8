"""Commit position: the progress of journal and event log, as one number.

Replies and messages wait for a position (node/output_commit.py). A node with both logs has two positions per turn, and
the logs advance at different speeds. A CommitPosition numbers the turns instead. It remembers where both logs stood at
the end of each turn, and says up to which turn both are safe. Without an event log there is no CommitPosition: replies
and messages ask the journal itself.

Either log may come and go while the node runs. Nothing waits for a log that was removed.
"""

from __future__ import annotations

from collections import deque

from persistence.event_log import EventLog
from persistence.journal import Journal


class CommitPosition:
    """The position of two logs. Numbering continues from `position`, the journal's last one.

    Smaller numbers are positions of the journal alone.
    """

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
        """End a turn: both logs have got all of its records."""
        journal, events = self.journal, self.events
        journal_at = journal.position if journal is not None else 0
        events_at = events.position if events is not None else 0
        if journal_at == self._journal_noted and events_at == self._events_noted:
            if journal is None or self._turns or self._ready != self.position or journal.ready_position() >= journal_at:
                return
            # With `everysec` and a slow disk, earlier records are unsafe again. So the replies of this turn wait.
        assert journal_at >= self._journal_noted
        assert self._ready <= self.position
        self._journal_noted = journal_at
        self._events_noted = events_at
        if (
            self._ready == self.position
            and not self._turns
            and (events is None or events.ready_position() >= events_at)
            and (journal is None or journal.ready_position() >= journal_at)
        ):
            return  # The turn is already written, so nothing waits for it. Without a journal this is the usual case.
        self.position += 1
        self._turns.append((self.position, journal_at, events_at))

    def ready_position(self) -> int:
        """Return the last turn that is safe together with all turns before it."""
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
        """Return whether new replies wait. With a journal in trouble, replies that are still given don't wait."""
        return self.journal is None or self.journal.must_wait()

    def remove_journal(self) -> None:
        """Remove the journal: nothing waits for it any more."""
        self.journal = None
        self._ready = max(self._ready, self._old_end)
        self._old_end = 0
        self._turns = deque((turn, 0, events) for turn, _, events in self._turns)
        self._journal_noted = 0
