"""Debouncers: producers of keys with a WINDOW or with REPLACE, and the rules for the replies.

A key with a window names one job as long as the window lasts. A job that was replaced before it was due is never
delivered. Both rules apply if there was no fault from the first request on (spec TP5, TP6). The replies are recorded
like those for other keys (keyed_producers.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.keyed_producers import KeyBook, Label, Use
from disque_py.simulator.clients.workload import BODIES, OLDER_NODE, RECONNECT_MS, Actor
from disque_py.simulator.oracle import Promise, RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.world import World

ONE_PER_WINDOW: Final = "a key with a window names one job"
KEYS: Final = 6
WINDOW_S: Final = 3
DELAY_S: Final = 2
# Because clocks drift and messages take time, the last part of a window is not checked.
KEPT_SHARE: Final = 0.9
SLACK_MS: Final = 500


class WindowBook(KeyBook):
    """The replies about keys with a window."""

    def _check_two(self, known: Use, use: Use) -> None:
        """Check two ids of one key. They are allowed only if the first one's window is over, or it was replaced."""
        label = self.labels[known.promise.number]
        if label.key.startswith(b"replace"):
            return
        until_ms = known.sent_ms + int(1_000 * WINDOW_S * KEPT_SHARE) - SLACK_MS
        since_ms = min(known.sent_ms, use.sent_ms)
        if self._world.now_ms < until_ms and known.is_settled and use.is_settled and self._oracle.unrest_ms < since_ms:
            raise RuleBrokenError(ONE_PER_WINDOW, f"{known.job_id!r} and {use.job_id!r}", known.job_id, use.job_id)


class Debouncer(Actor):
    """One producer. All of them share `book`."""

    REFUSALS: ClassVar[tuple[str, ...]] = (OLDER_NODE,)
    book: KeyBook

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        # Key -> the promise and the moments of the last reply that made a job, for keys that only this producer uses.
        self._last: dict[bytes, tuple[Promise, int, bool]] = {}
        self._asked: dict[bytes, list[Promise]] = {}

    def act(self) -> int:
        """Send an ADDJOB, if the last one has its reply."""
        rng = self.rng
        line = self.free_line(0.05)
        if isinstance(line, int):
            return line
        if rng.random() < 0.3 and line.is_open:
            line.hang_up()  # The next one may go to another node.
            return RECONNECT_MS // 4
        number = rng.randrange(KEYS)
        replaces = number % 2 == 0
        key = b"replace %d of %d" % (number, self.number) if replaces else b"window %d" % number
        queue = self.queues[number % len(self.queues)]
        copies = rng.choice((1, 2, 2, 3))
        options: list[str | int | bytes] = ["RETRY", 2, "REPLICATE", copies, "KEY", key]
        options += ["DELAY", DELAY_S, "REPLACE"] if replaces else ["WINDOW", WINDOW_S]
        promise = self.oracle.add(queue, rng.choice(BODIES), 2_000, 3_600_000, copies, self.world.now_ms)
        promise.asked = line.machine
        label = self.book.labels[promise.number] = Label(key, None, [], copies)
        label.sent_ms, label.was_settled = self.world.now_ms, self.book.is_settled()
        if replaces:
            for known in self._asked.setdefault(key, []):
                self.oracle.acknowledging(known, self.world.now_ms, is_deletion=True)
                known.cancels += 1
            self._asked[key].append(promise)
        request = words("ADDJOB", queue, promise.body(), rng.choice((0, 300, 2_000)), *options)
        line.ask([(request, self._answered, promise)], self.travel())
        return 1 + int(rng.expovariate(self.load / 150))

    def _answered(self, reply: Any, promise: Promise) -> None:
        if not isinstance(reply, bytes):
            return
        label = self.book.labels[promise.number]
        now_ms = self.world.now_ms
        if not self.book.answered(promise, reply, label.sent_ms, label.was_settled):
            return
        if not promise.answered_ms:
            self.oracle.answered(promise, reply, now_ms)
            if promise.asked is not None:
                promise.asked.check_added(reply, promise.copies)
        if b"replace" in label.key:
            known = self._last.get(label.key)
            if known is not None:
                old, sent_ms, was_settled = known
                due_ms = sent_ms + int(1_000 * DELAY_S * KEPT_SHARE) - SLACK_MS
                if now_ms < due_ms and was_settled and self.book.is_settled() and self.oracle.unrest_ms < sent_ms:
                    old.replaced_ms = now_ms
            self._last[label.key] = (promise, label.sent_ms, label.was_settled)
