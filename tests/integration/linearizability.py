"""Recorded calls of LOCK and of deliveries under a claim, and a check that one order explains all replies.

A history is *linearizable* if each call can be given a moment between its request and its reply, so that the replies
are those of one lock without copies. The search is that of Wing and Gong, with the memory of Lowe: it tries the calls
that may come next, and remembers the states that it has seen. A call without a reply may happen at any later moment,
or never.

The lock has leases. Its owner believes in a lease from before the request, shortened by the drift of clocks. Until
this belief ends no other owner may get the lock, unless the owner has given it back. All conditions are lower limits
of a moment, so the search gives each call the earliest moment.

A delivery of an exclusive queue is an ACQUIRE of its value, WORKING an EXTEND, and ACKJOB a RELEASE.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from random import Random
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from hiredis import ReplyError

from servers import Connection, Server, Word

ACQUIRE, EXTEND, RELEASE = "ACQUIRE", "EXTEND", "RELEASE"
# A holder uses this part of its lease. `claim-drift-max` is 1 %, and a lease is a whole number of milliseconds.
USABLE = 0.98
# The reply of a call that may have happened or not.
UNKNOWN = None
# How often a worker acts after its lease, and how often it gives back what it has.
LATE, GIVEN_BACK = 0.1, 0.9


class Call(NamedTuple):
    """A call, in seconds of one clock of the machine.

    owner    the owner of the lock, or the id of the job
    fence    the fence that it got (ACQUIRE) or named
    lease_s  the lease that it asked for
    began    before the request was sent
    ended    when the reply came; infinite without a reply
    is_ok    whether it was granted; UNKNOWN: there was no reply, or an error
    attempt  the number of the attempt; 0: not counted
    """

    what: str
    name: bytes
    owner: str
    fence: int
    lease_s: float
    began: float
    ended: float
    is_ok: bool | None
    attempt: int = 0


class State(NamedTuple):
    """A lock between two calls. `until`: no other owner may get it before; `moment`: that of the last call."""

    owner: str = ""
    fence: int = 0
    is_held: bool = False
    until: float = -math.inf
    attempt: int = 0
    moment: float = -math.inf


def unexplained(history: Collection[Call]) -> list[bytes]:
    """Return the names of locks whose calls no order explains."""
    names = sorted({call.name for call in history})
    return [name for name in names if not is_linearizable([call for call in history if call.name == name])]


def is_linearizable(calls: Collection[Call]) -> bool:
    """Return whether one order of these calls of one lock explains their replies."""
    # An ACQUIRE or EXTEND without a reply gives no owner a lease to believe in, and refuses nothing.
    useful = [call for call in calls if call.is_ok is not UNKNOWN or call.what == RELEASE]
    ordered = sorted(useful, key=lambda call: call.began)
    todo = [(0, frozenset[int](), State())]
    seen = set(todo)
    while todo:
        first, done, state = todo.pop()
        if all(ordered[at].is_ok is UNKNOWN for at in range(first, len(ordered)) if at not in done):
            return True
        for at in _next(ordered, first, done):
            after = _after(state, ordered[at])
            if after is not None:
                following = (*_without(first, done | {at}), after)
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
    return False


def _next(ordered: list[Call], first: int, done: frozenset[int]) -> Iterator[int]:
    """Yield the calls that may come next: those that began before any other remaining call has ended."""
    ended = math.inf
    for at in range(first, len(ordered)):
        if at not in done:
            if ordered[at].began > ended:
                return
            ended = min(ended, ordered[at].ended)
            yield at


def _without(first: int, done: frozenset[int]) -> tuple[int, frozenset[int]]:
    while first in done:
        done -= {first}
        first += 1
    return first, done


def _after(state: State, call: Call) -> State | None:
    """Return the lock after a call; None if the reply can't be explained here."""
    is_own = state.is_held and (state.owner, state.fence) == (call.owner, call.fence)
    # Before the end of the belief, only its owner's calls have an effect.
    earliest = state.moment if is_own or not state.is_held else max(state.moment, state.until)
    until = call.began + USABLE * call.lease_s
    if call.what == ACQUIRE and not is_own:
        if call.fence <= state.fence or 0 < call.attempt <= state.attempt:
            return None
        after = State(call.owner, call.fence, True, until, call.attempt)
    elif call.what in (ACQUIRE, EXTEND) and call.is_ok:
        if not is_own or (call.attempt and call.attempt != state.attempt):
            return None
        after = state._replace(until=max(state.until, until))
    elif call.is_ok is False:  # Refused: the lock is another owner's, or the lease is over.
        earliest = max(state.moment, state.until) if is_own else state.moment
        after = state
    else:
        if not is_own:  # A RELEASE without a reply comes at once after its grant, at a later moment, or never.
            return None
        after = state._replace(is_held=False)
    moment = max(earliest, call.began)
    return after._replace(moment=moment) if moment <= call.ended else None


class Recorder:
    """The calls of one worker over one connection."""

    def __init__(self, connection: Connection, history: list[Call]) -> None:
        self._connection = connection
        self._history = history

    def acquire(self, name: bytes, owner: str, lease_ms: int, wait_ms: int) -> int:
        """Send LOCK ACQUIRE, and return the fence; 0 if the lock was not granted."""
        reply, *times = self._ask("LOCK", "ACQUIRE", name, owner, lease_ms, "TIMEOUT", wait_ms)
        if not isinstance(reply, list):
            return 0
        fence, attempt, _ = reply
        self._history.append(Call(ACQUIRE, name, owner, fence, lease_ms / 1_000, *times, True, attempt))
        return int(fence)

    def extend(self, name: bytes, owner: str, fence: int, lease_ms: int) -> bool:
        """Send LOCK EXTEND, and return whether the lease began again."""
        reply, *times = self._ask("LOCK", "EXTEND", name, owner, fence, lease_ms)
        self._history.append(Call(EXTEND, name, owner, fence, lease_ms / 1_000, *times, _is_ok(reply)))
        return _is_ok(reply) is True

    def release(self, name: bytes, owner: str, fence: int) -> None:
        """Send LOCK RELEASE."""
        unanswered = Call(RELEASE, name, owner, fence, 0, monotonic(), math.inf, UNKNOWN)
        self._history.append(unanswered)
        reply, _, ended = self._ask("LOCK", "RELEASE", name, owner, fence)
        if _is_ok(reply) is not UNKNOWN:
            self._history.remove(unanswered)
            self._history.append(unanswered._replace(ended=ended, is_ok=_is_ok(reply)))

    def get(self, queue: str, wait_ms: int) -> Call | None:
        """Send GETJOB to an exclusive queue whose jobs have their value as body. Return the ACQUIRE of the value."""
        reply, *times = self._ask("GETJOB", "TIMEOUT", wait_ms, "WITHLEASE", "FROM", queue)
        if not isinstance(reply, list):
            return None
        _, job_id, value, _, lease_ms, _, _, _, fence = reply[0]
        call = Call(ACQUIRE, value, job_id.decode(), fence, lease_ms / 1_000, *times, True)
        self._history.append(call)
        return call

    def working(self, job: Call) -> None:
        """Send WORKING, for the same lease again. A refusal may be about the job, and not about its value."""
        lease_ms = round(1_000 * job.lease_s)
        reply, *times = self._ask("WORKING", job.owner, "LEASEMS", lease_ms, "FENCE", job.fence)
        is_ok = True if _is_ok(reply) else UNKNOWN
        self._history.append(Call(EXTEND, job.name, job.owner, job.fence, job.lease_s, *times, is_ok))

    def ack(self, job: Call) -> None:
        """Send ACKJOB. Its reply counts jobs, and does not tell whether the value is free already."""
        self._history.append(Call(RELEASE, job.name, job.owner, job.fence, 0, monotonic(), math.inf, UNKNOWN))
        self._ask("ACKJOB", job.owner, "FENCE", job.fence)

    def _ask(self, *words: Word) -> tuple[Any, float, float]:
        began = monotonic()
        self._connection.send(*words)
        reply = self._connection.read()
        return reply, began, monotonic()


def _is_ok(reply: Any) -> bool | None:
    if isinstance(reply, ReplyError):
        return False if str(reply).startswith("FENCED") else UNKNOWN
    return bool(reply)


def take_lock(server: Server, name: bytes, lease_ms: int, history: list[Call], stop: Event, number: int) -> None:
    """Take a lock again and again as one owner: extend it, give it back, let it lapse, and act when it is too late."""
    chance, owner = Random(number), f"owner-{number}"
    with server.connect() as connection:
        recorder = Recorder(connection, history)
        while not stop.is_set():
            fence = recorder.acquire(name, owner, lease_ms, 200)
            if not fence:
                continue
            for _ in range(chance.randrange(3)):
                stop.wait(0.01)
                recorder.extend(name, owner, fence, lease_ms)
            if chance.random() < LATE:
                stop.wait(1.2 * lease_ms / 1_000)
                recorder.extend(name, owner, fence, lease_ms)
            if chance.random() < GIVEN_BACK:
                recorder.release(name, owner, fence)


def take_jobs(server: Server, queue: str, history: list[Call], stop: Event, number: int) -> None:
    """Take jobs of an exclusive queue again and again: renew their claims, and acknowledge them or let them lapse."""
    chance = Random(number)
    with server.connect() as connection:
        recorder = Recorder(connection, history)
        while not stop.is_set():
            job = recorder.get(queue, 200)
            if job is None:
                continue
            for _ in range(chance.randrange(3)):
                stop.wait(0.01)
                recorder.working(job)
            if chance.random() < LATE:
                stop.wait(1.2 * job.lease_s)
                recorder.working(job)
            if chance.random() < GIVEN_BACK:
                recorder.ack(job)
