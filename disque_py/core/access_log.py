"""Access log: refused commands, names and logins for ACL LOG, and addresses that guess passwords.

Equal refusals of one user within a minute are one entry with a count, as in Redis. The log and the table of addresses
are bounded. Spec US9, US10.
"""

from __future__ import annotations

from collections import deque
from typing import Final

ENTRIES_MAX: Final = 128
# An equal refusal within this span is counted in the entry of the earlier refusal.
SAME_MS: Final = 60_000
# After FAILURES_MAX failed logins from one address within the first span, AUTH waits for the second span before it
# answers.
FAILURES_MAX: Final = 5
FAILURES_MS: Final = 60_000
DELAY_MS: Final = 1_000
ADDRESSES_MAX: Final = 10_000
# Refusals that the audit log takes within a span. Further ones are only counted, so that a client can't fill the disk.
LINES_MAX: Final = 100
LINES_MS: Final = 10_000


class LogEntry:
    """One entry of ACL LOG.

    number      number of the entry; it grows by one with each entry
    reason      command, key or auth
    what        the command, name or user that was refused
    user        the name of the user
    client      the client's line in CLIENT LIST
    count       number of equal refusals
    created_ms, updated_ms   Unix time of the first and of the last refusal
    """

    __slots__ = ("client", "count", "created_ms", "number", "reason", "updated_ms", "user", "what")

    def __init__(self, number: int, reason: str, what: bytes, user: bytes, client: str, wall_ms: int) -> None:
        self.number = number
        self.reason = reason
        self.what = what
        self.user = user
        self.client = client
        self.count = 1
        self.created_ms = wall_ms
        self.updated_ms = wall_ms


class AccessLog:
    """A node's log of refusals.

    entries    newest first
    failures   address -> moments of its last failed logins
    """

    __slots__ = ("_lines", "_lines_ms", "_number", "entries", "failures", "suppressed")

    def __init__(self) -> None:
        self.entries: deque[LogEntry] = deque(maxlen=ENTRIES_MAX)
        self.failures: dict[str, deque[int]] = {}
        self.suppressed = 0
        self._number = 0
        self._lines = 0
        self._lines_ms = -LINES_MS

    def add(self, reason: str, what: bytes, user: bytes, client: str, wall_ms: int) -> None:
        """Note a refusal."""
        for entry in self.entries:
            if (
                entry.reason == reason
                and entry.what == what
                and entry.user == user
                and wall_ms - entry.updated_ms <= SAME_MS
            ):
                entry.count += 1
                entry.updated_ms = wall_ms
                entry.client = client
                self.entries.remove(entry)
                self.entries.appendleft(entry)
                return
        self.entries.appendleft(LogEntry(self._number, reason, what, user, client, wall_ms))
        self._number += 1

    def failed(self, address: str, now_ms: int) -> None:
        """Note a failed login from an address."""
        moments = self.failures.pop(address, None)
        if moments is None:
            moments = deque(maxlen=FAILURES_MAX)
            if len(self.failures) >= ADDRESSES_MAX:
                del self.failures[next(iter(self.failures))]
        moments.append(now_ms)
        self.failures[address] = moments  # The address with the oldest last failure comes first.

    def is_guessing(self, address: str, now_ms: int) -> bool:
        """Return whether so many recent logins from the address have failed that the next one has to wait."""
        moments = self.failures.get(address)
        return moments is not None and len(moments) == FAILURES_MAX and now_ms - moments[0] < FAILURES_MS

    def takes_line(self, now_ms: int) -> bool:
        """Return whether the audit log takes one more refusal now. If not, count it in `suppressed`."""
        if now_ms - self._lines_ms >= LINES_MS:
            self._lines_ms = now_ms
            self._lines = 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            return True
        self.suppressed += 1
        return False
