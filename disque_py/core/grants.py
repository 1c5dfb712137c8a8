"""Grants: one voter's memory of the claims that it granted. Spec CL1, CL2, CL3.

A voter grants a claim (key, holder, fence, lease) only if two conditions are met. By its own clock, no grant of the key
to another holder runs. And the fence is above every fence that it ever granted for the key. While a grant runs, its
holder renews it with the same fence. A renewal never shortens a grant, because the holder may go on relying on its old
lease if the renewal fails at other voters. A release names key, holder and fence, and has no effect on another grant.

A voter answers a grant when its record is on disk, and the lease runs from that moment. So it ends no earlier than a
lease that began when the claim was received. Before that moment the grant counts as running.

Idle keys are forgotten. `floor` counts as the highest fence of every key that is not remembered.

A key may count attempts, which are claims that led to a delivery or to a lock. The count is kept with the grant, and
for `keep_ms` longer.
"""

from __future__ import annotations

from typing import Any, Final

# Outcomes of a claim at one voter. Nodes send these numbers to each other, so a number never gets another meaning.
GRANTED: Final = 0
HELD: Final = 1  # A grant of another holder runs, or one of this holder under another fence.
OLD_FENCE: Final = 2  # The voter has granted this fence before, or a higher one.
OLD_ATTEMPT: Final = 3  # The attempt has been counted before.
DONE: Final = 4  # The work under the lock is done.
MUTE: Final = 5  # The voter may not vote.
OTHER_EPOCH: Final = 6  # The voter has another list of voters.
NO_ROOM: Final = 7  # The voter remembers too many keys.

# Stands for the end of a grant whose record is being written.
PENDING_MS: Final = 1 << 62
KEYS_MAX: Final = 1_000_000
KEY_BYTES_MAX: Final = 4_096
# The limit for all keys and holders together. They do not count in `maxmemory`, because a full node must still grant
# claims. Otherwise its consumers could not work off its jobs. A key usually has about a hundred bytes.
NAME_BYTES_MAX: Final = 256 << 20
FENCE_MAX: Final = (1 << 63) - 1
# The highest fence. A voter grants no fence far above its wall clock, or one wrong clock could use up all fences.
FENCE_LIMIT: Final = 1 << 62
FENCE_AHEAD: Final = 10 * 366 * 86_400_000
SPAN_MAX_MS: Final = 1 << 53
# The longest lease, and the longest time for which a count or an end is kept. A lease and what is kept after it are one
# span together.
LONGEST_MS: Final = SPAN_MAX_MS // 2
# A key is forgotten this long after its grant, its count of attempts and its "done" have ended.
IDLE_MS: Final = 60_000
# The least number of keys that are looked at per step. With many keys, more are looked at.
KEYS_PER_STEP: Final = 100
STEPS_PER_ROUND: Final = 100

# Bits of a claim.
REPLACES: Final = 1  # The holder gives up its own grant under a lower fence.
RENEWS: Final = 2  # Only a grant that runs is granted again.

# The packed form of a grant, for files and other voters: key, holder, fence, milliseconds of lease, highest fence,
# attempts, attempts before, milliseconds for which attempts are kept, milliseconds for which the end is kept, whether
# it runs, whether it was renewed. If two grants block the key, or the end that is kept is not that of the last grant,
# the holder is b"".
GrantItem = tuple[bytes, bytes, int, int, int, int, int, int, int, bool, bool]
ITEM_FIELDS: Final = 11


class Grant:
    """The memory of one key.

    holder             holder of the last grant
    fence              its fence
    lease_ms           its lease
    until_ms           its end, monotonic; 0: it was released; PENDING_MS: its record is being written
    blocked_until_ms   until when another grant may run, because two grants were copied from other voters; monotonic
    highest            the highest fence ever granted
    attempts, before   number of attempts including this grant, and before it
    keep_ms            how long attempts are kept after the grant's end
    kept_until_ms      until when attempts are kept; monotonic
    done_until_ms      until when the voter remembers that the work is done; monotonic. 0: it is not done
    ended_itself       whether the work that is done is that of this grant, not of an earlier one
    is_renewed         whether the holder asked again, so that the request that got the grant may not take it back
    """

    __slots__ = (
        "attempts",
        "before",
        "blocked_until_ms",
        "done_until_ms",
        "ended_itself",
        "fence",
        "highest",
        "holder",
        "is_renewed",
        "keep_ms",
        "kept_until_ms",
        "lease_ms",
        "until_ms",
    )

    def __init__(self) -> None:
        self.holder = b""
        self.fence = 0
        self.lease_ms = 0
        self.until_ms = 0
        self.blocked_until_ms = 0
        self.highest = 0
        self.attempts = 0
        self.before = 0
        self.keep_ms = 0
        self.kept_until_ms = 0
        self.done_until_ms = 0
        self.ended_itself = False
        self.is_renewed = False

    def left_ms(self, now_ms: int) -> int:
        """Return how many milliseconds the grant still runs."""
        return self.lease_ms if self.until_ms == PENDING_MS else max(0, self.until_ms - now_ms)

    def attempts_at(self, now_ms: int) -> int:
        """Return how many attempts count at this moment."""
        return self.attempts if self.until_ms > now_ms or self.kept_until_ms > now_ms else 0

    def is_idle(self, now_ms: int, idle_ms: int) -> bool:
        """Return whether the key may be forgotten, because nothing of it has counted for `idle_ms`."""
        return max(self.until_ms, self.blocked_until_ms, self.kept_until_ms, self.done_until_ms) + idle_ms <= now_ms


class Grants:
    """The memory of all keys.

    records     key -> its memory
    floor       no key that is not in `records` was ever granted a higher fence
    name_bytes  bytes of the keys and holders in `records`
    unsettled   keys whose grant has no end yet, because its record is being written
    """

    __slots__ = ("_walk", "floor", "name_bytes", "records", "unsettled")

    def __init__(self) -> None:
        self.records: dict[bytes, Grant] = {}
        self.floor = 0
        self.name_bytes = 0
        self.unsettled: dict[bytes, None] = {}
        self._walk: list[bytes] = []

    def highest(self, key: bytes) -> int:
        """Return the highest fence that may have been granted for a key."""
        record = self.records.get(key)
        return self.floor if record is None else max(record.highest, self.floor)

    def running(self, key: bytes, now_ms: int) -> Grant | None:
        """Return the running grant of a key; None if there is none."""
        record = self.records.get(key)
        return record if record is not None and record.until_ms > now_ms else None

    def claim(
        self,
        key: bytes,
        holder: bytes,
        fence: int,
        lease_ms: int,
        attempt: int,
        keep_ms: int,
        flags: int,
        now_ms: int,
    ) -> int:
        """Grant or renew a claim. Return GRANTED, or the reason of the refusal.

        The caller must write a granted claim to disk before it answers.

        attempt   number of the attempt that this claim counts; 0: attempts are not counted
        keep_ms   how many milliseconds the count is kept after the grant
        flags     REPLACES, RENEWS
        """
        record = self.records.get(key)
        if record is None:
            if flags & RENEWS or fence <= self.floor:
                return OLD_FENCE
            if len(self.records) >= KEYS_MAX or self.name_bytes + len(key) + len(holder) > NAME_BYTES_MAX:
                return NO_ROOM
            record = self.records[key] = Grant()
            self.name_bytes += len(key)
        else:
            if record.done_until_ms > now_ms:
                return DONE
            if record.blocked_until_ms > now_ms:
                return HELD
            if record.until_ms > now_ms:
                if record.holder == holder:
                    lease_ms = max(lease_ms, record.left_ms(now_ms))
                if record.holder == holder and record.fence == fence:
                    if fence < record.highest:
                        return HELD  # It was copied, and blocks the key until it is over. See `merge`.
                    record.lease_ms = lease_ms
                    # Two nodes may claim for one owner in one millisecond, with the same fence.
                    record.attempts = max(record.attempts, attempt)
                    record.is_renewed = True
                    record.until_ms = PENDING_MS
                    self.unsettled[key] = None
                    return GRANTED
                if record.holder != holder or not flags & REPLACES:
                    return HELD
            if flags & RENEWS or fence <= max(record.highest, self.floor):
                return OLD_FENCE
            if attempt and attempt <= record.attempts_at(now_ms):
                return OLD_ATTEMPT
            longer = len(holder) - len(record.holder)
            if longer > 0 and self.name_bytes + longer > NAME_BYTES_MAX:
                return NO_ROOM
        record.before = record.attempts_at(now_ms)
        record.attempts = attempt or record.before
        self._hold(record, holder)
        record.fence = record.highest = fence
        record.lease_ms = lease_ms
        record.keep_ms = keep_ms
        record.done_until_ms = 0
        record.ended_itself = False
        record.is_renewed = False
        record.until_ms = PENDING_MS
        self.unsettled[key] = None
        assert record.highest > self.floor
        return GRANTED

    def _hold(self, record: Grant, holder: bytes) -> None:
        self.name_bytes += len(holder) - len(record.holder)
        record.holder = holder

    def settle(self, key: bytes, now_ms: int) -> None:
        """Begin the lease of a grant whose record is on disk. This is later than the receipt of the claim."""
        record = self.records.get(key)
        if record is not None and key in self.unsettled:
            del self.unsettled[key]
            if record.until_ms == PENDING_MS:
                record.until_ms = now_ms + record.lease_ms + 1  # The clock cuts off fractions of a millisecond.
                record.kept_until_ms = record.until_ms + record.keep_ms if record.attempts else 0

    def release(self, key: bytes, holder: bytes, fence: int, done_ms: int, *, gives_back: bool, now_ms: int) -> bool:
        """End a grant. Return whether it has changed. If so, the caller must write it.

        done_ms      how long to remember that the work is done; 0: it is not done
        gives_back   whether nothing was handed out, so that the attempt does not count. Then a renewed grant stays,
                     because another request of the holder uses it
        """
        record = self.records.get(key)
        if record is None or record.holder != holder or record.fence != fence:
            return False
        # A release with `done_ms` has an effect even after the lease, if the key has had no other holder since.
        if record.until_ms <= now_ms and not (done_ms and record.highest == fence):
            return False
        if gives_back and record.is_renewed:
            return False
        record.until_ms = 0
        self.unsettled.pop(key, None)
        if done_ms:
            record.attempts = record.before = 0
            # A second release with a shorter time does not take back what the first one was told.
            before_ms = record.done_until_ms if record.ended_itself else 0
            record.done_until_ms = max(before_ms, now_ms + done_ms)
            record.ended_itself = True
        elif gives_back:
            record.attempts = record.before
        record.kept_until_ms = now_ms + record.keep_ms if record.attempts else 0
        return True

    # -- files and other voters ---------------------------------------------------------------------

    def item(self, key: bytes, now_ms: int) -> GrantItem:
        """Return a key's memory in packed form, for a file or another voter. Moments become spans of time left."""
        record = self.records[key]
        is_running = record.until_ms > now_ms
        is_blocked = record.blocked_until_ms > now_ms
        lease_ms = max(record.left_ms(now_ms), record.blocked_until_ms - now_ms)
        kept_ms = record.keep_ms if is_running else max(0, record.kept_until_ms - now_ms)
        kept_ms = min(LONGEST_MS, kept_ms)  # A copy of a copy may be kept for longer than the first one.
        attempts = record.attempts_at(now_ms)
        done_ms = max(0, record.done_until_ms - now_ms)
        # Another voter may have renewed this grant. The end of earlier work must not look like the end of this one.
        is_nameless = is_blocked or (done_ms > 0 and not is_running and not record.ended_itself)
        return (
            key,
            b"" if is_nameless else record.holder,
            0 if is_nameless else record.fence,
            lease_ms,
            record.highest,
            attempts,
            min(record.before, attempts),
            kept_ms,
            done_ms,
            is_running or is_blocked,
            record.is_renewed,
        )

    def put(self, item: GrantItem, now_ms: int) -> None:
        """Set a key's memory from a file. A running grant gets its whole lease again."""
        key, holder, fence, lease_ms, highest, attempts, before, kept_ms, done_ms, is_running, is_renewed = item
        self._drop(key)
        record = self.records[key] = Grant()
        self.name_bytes += len(key)
        record.is_renewed = is_renewed
        self._hold(record, holder)
        record.fence, record.lease_ms = fence, lease_ms
        record.highest, record.attempts, record.before, record.keep_ms = highest, attempts, before, kept_ms
        if is_running:
            record.until_ms = now_ms + lease_ms + 1
        record.kept_until_ms = max(record.until_ms, now_ms) + kept_ms if attempts else 0
        record.done_until_ms = now_ms + done_ms + 1 if done_ms else 0
        record.ended_itself = _ends_itself(item)

    def merge(self, item: GrantItem, now_ms: int) -> None:
        """Merge another voter's memory of a key into ours. If two holders have grants, both block the key. Spec CL5.

        If one voter knows that the work under a grant is done, the grant ends here, too. It blocks the key for as long
        as it runs at the other voter. A grant that runs may never have had a majority, but its holder can renew it now.
        So it counts as an attempt after those that the other voter knows. If one of the two knows a higher fence, or
        the same fence for another holder, the grant only blocks the key.
        """
        key, holder, fence, lease_ms, highest, attempts, before, kept_ms, done_ms, is_running, is_renewed = item
        known = self.records.get(key)
        if known is None:
            self.put(item, now_ms)
            if is_running and fence <= self.floor:
                self.block(key, self.floor)
            return
        is_same = holder != b"" and (known.holder, known.fence) == (holder, fence)
        is_done = _ends_itself(item) or (known.done_until_ms > now_ms and known.ended_itself)
        counted = known.attempts_at(now_ms)
        kept_before = attempts
        if not is_same and attempts and counted:
            if is_running and known.until_ms <= now_ms and fence > known.highest:
                attempts, kept_before = max(attempts, counted + 1), max(before, counted)
            elif known.until_ms > now_ms and not is_running and known.fence > highest:
                known.attempts = counted = max(counted, attempts + 1)
                known.before = max(known.before, attempts)
        if not is_same and highest == known.highest and (is_running or known.until_ms > now_ms):
            highest += 1  # Two holders may have claimed with the same fence. Only one of them had a majority.
        if not is_same and not is_running and known.until_ms <= now_ms and holder and fence > known.fence:
            self._hold(known, holder)
            known.fence, known.is_renewed = fence, is_renewed
            known.ended_itself = _ends_itself(item)
        known.highest = max(known.highest, highest)
        if is_same and is_done:
            # The release may have failed, and the holder may have renewed the grant afterwards, at other voters.
            if is_running or known.until_ms > now_ms:
                until_ms = now_ms + lease_ms + 1 if is_running else 0
                known.blocked_until_ms = max(known.blocked_until_ms, until_ms, _end(known, now_ms))
            known.ended_itself = True
            known.until_ms = 0
            self.unsettled.pop(key, None)
        elif is_running:
            until_ms = now_ms + lease_ms + 1
            if known.until_ms > now_ms and not is_same:
                known.blocked_until_ms = max(known.blocked_until_ms, until_ms, _end(known, now_ms))
            elif known.until_ms == PENDING_MS:
                known.lease_ms = max(known.lease_ms, lease_ms)
            else:
                known.until_ms = max(known.until_ms, until_ms)
                known.ended_itself &= is_same
                self._hold(known, holder)
                known.fence, known.lease_ms = fence, max(known.lease_ms, lease_ms)
                known.is_renewed |= is_renewed
        if done_ms:
            known.done_until_ms = max(known.done_until_ms, now_ms + done_ms + 1)
        if attempts > counted:
            known.attempts, known.before = attempts, kept_before
        known.keep_ms = max(known.keep_ms, kept_ms)
        if known.attempts:
            known.kept_until_ms = max(known.kept_until_ms, now_ms + lease_ms + kept_ms)

    def block(self, key: bytes, floor: int) -> None:
        """Let the running grant of a key block it, and not be renewed, if its fence is not above this floor. Spec CL5.

        A voter with this floor does not remember the key. So it may have granted the key later, and forgotten it.
        """
        record = self.records[key]
        if record.fence <= floor:
            record.highest = max(record.highest, floor, record.fence + 1)

    def forget(self, key: bytes) -> None:
        """Forget an idle key. From now on the floor covers its fences."""
        record = self._drop(key)
        if record is not None:
            self.floor = max(self.floor, record.highest)

    def _drop(self, key: bytes) -> Grant | None:
        record = self.records.pop(key, None)
        if record is not None:
            self.name_bytes -= len(key) + len(record.holder)
        return record

    def idle(self, now_ms: int, idle_ms: int = IDLE_MS) -> list[bytes]:
        """Look at the next keys. Return those that may be forgotten."""
        if not self._walk:
            self._walk = list(self.records)
        count = max(KEYS_PER_STEP, len(self.records) // STEPS_PER_ROUND)
        looked = self._walk[-count:]
        del self._walk[-count:]
        records = self.records
        return [key for key in looked if key in records and records[key].is_idle(now_ms, idle_ms)]

    def clear(self) -> None:
        """Forget everything."""
        self.records.clear()
        self.unsettled.clear()
        self._walk = []
        self.floor = self.name_bytes = 0


def _end(record: Grant, now_ms: int) -> int:
    return now_ms + record.lease_ms + 1 if record.until_ms == PENDING_MS else record.until_ms


def _ends_itself(item: GrantItem) -> bool:
    """Return whether an item says that the work under its own grant is done.

    If a grant runs although work is done, the work was that of an earlier grant. Without a holder, it may have been.
    """
    _, holder, _, _, _, _, _, _, done_ms, is_running, _ = item
    return done_ms > 0 and not is_running and holder != b""


def is_grant_item(item: Any) -> bool:
    """Return whether this is a GrantItem within all bounds. Newer versions may add fields at the end."""
    if type(item) not in (list, tuple) or len(item) < ITEM_FIELDS:
        return False
    key, holder, *numbers, is_running, is_renewed = item[:ITEM_FIELDS]
    if type(key) is not bytes or type(holder) is not bytes:
        return False
    if type(is_running) is not bool or type(is_renewed) is not bool:
        return False
    if not 0 < len(key) <= KEY_BYTES_MAX or len(holder) > KEY_BYTES_MAX:
        return False
    if any(type(number) is not int or not 0 <= number <= FENCE_LIMIT for number in numbers):
        return False
    return bool(max(numbers[1], numbers[5], numbers[6]) <= SPAN_MAX_MS)
