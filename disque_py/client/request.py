"""The request: a command's words, the parser of its answer, and the rule for repeating it.

Every shell (asyncio, blocking, pipeline) takes Requests from the modules of commands; none builds commands itself.

A command of which no byte left may always be sent again. A command that may have been executed is sent again only if a
second execution does no harm (`Repeat.SAFE`), or if its caller allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from disque_py.client.address import Address
from disque_py.client.protocol import Reply, Word, encode, word
from disque_py.client.results import Decode, Job, Task

T = TypeVar("T")


class Repeat(Enum):
    """The effect of a second execution."""

    SAFE = "safe"  # A second execution does nothing that the first has not done.
    ASK = "ask"  # It makes a second job or an extra delivery. The caller or the client's `retry_unsafe` must allow it.
    NEVER = "never"  # The command is about one node, and no other node may execute it in its place.


class Lane(Enum):
    """A kind of connection. Commands that wait must not delay commands that don't."""

    PLAIN = "plain"  # Commands that don't wait.
    ADDS = "adds"  # ADDJOB, which is answered after the copies are made.
    OWN = "own"  # GETJOB and LOCK ACQUIRE, which may wait for long.


@dataclass(slots=True)
class Request(Generic[T]):
    """One command.

    argv             its words
    read             reply → value
    repeat           the effect of a second execution
    lane             its kind of connection
    wait_ms          milliseconds that the command itself may wait; None: it does not wait, 0: for ever
    wait_word        the index of that number in argv, if the wait may be sent in slices
    node             the node it should go to; None: the client chooses
    is_pinned        it must go to `node` and to no other (cursors)
    is_consumers     it goes to the node that this client's consumers use
    awaits_nodes     it is repeated when nodes are missing, because the caller asked for no number of copies
    awaits_voters    it is repeated when no majority of the voters answers the node
    patience_s       seconds for which it looks for a working node, 0: one attempt; None: the client's patience
    silence_s        seconds of silence that mean a dead node, if fewer than the client's time-out; None: the client's
                     time-out
    about            the jobs that it concerns, as its caller named them
    along            called with the asyncio connection of a command that waits, right before the command is sent.
                     Commands that it submits leave in the same write
    late             called by the asyncio client with the answer that came after the caller was cancelled; None: then
                     the connection is closed at once
    goes_on          whether an answer at the end of a slice means that the next slice follows; None: only nil does
    has_token        whether a repetition gets the same jobs, so the client puts back none of them
    encoded          argv as bytes, if its maker has them; None: they are made when they are sent. It is no argument, so
                     `replace` never copies the bytes of another argv
    """

    argv: tuple[bytes, ...]
    read: Callable[[Reply], T]
    repeat: Repeat = Repeat.SAFE
    lane: Lane = Lane.PLAIN
    wait_ms: int | None = None
    wait_word: int | None = None
    node: Address | None = None
    is_pinned: bool = False
    is_consumers: bool = False
    awaits_nodes: bool = False
    awaits_voters: bool = False
    patience_s: float | None = None
    silence_s: float | None = None
    about: tuple[Job | str | bytes, ...] = ()
    along: Callable[[Any], None] | None = None
    late: Callable[[Reply], None] | None = None
    goes_on: Callable[[Reply], bool] | None = None
    has_token: bool = False
    encoded: bytes | None = field(default=None, init=False, compare=False)

    @property
    def takes_jobs(self) -> bool:
        """Whether its answer has jobs. If the caller is gone, no consumer gets them until their leases end."""
        return self.argv[:1] == (b"GETJOB",)

    @property
    def puts_back(self) -> bool:
        """Whether its jobs are put back if it is cancelled. With a token, a repetition may have them already."""
        return self.takes_jobs and not self.has_token

    @property
    def may_move(self) -> bool:
        """Whether another node may execute it if a node is full: it adds or fetches jobs, and names no node."""
        return self.node is None and (self.lane is Lane.ADDS or self.takes_jobs)

    def payload(self) -> bytes:
        """Return the command as bytes."""
        return encode(self.argv) if self.encoded is None else self.encoded

    def payload_waiting(self, wait_ms: int) -> bytes:
        """Return the command as bytes, with the wait `wait_ms` instead of its own. It needs `wait_word`."""
        assert self.wait_word is not None
        argv = list(self.argv)
        argv[self.wait_word] = b"%d" % wait_ms
        return encode(argv)

    def waits_on(self, reply: Reply, now: float, slice_end: float) -> bool:
        """Return whether a wait goes on after this answer to one of its slices, if its own time is not over.

        An answer before the end of its slice is final. Only nil is sent again at any time: a GETJOB found no job.
        """
        if self.goes_on is None:
            return reply is None
        return now >= slice_end and not isinstance(reply, Exception) and self.goes_on(reply)

    def limit_s(self, timeout_s: float) -> float | None:
        """Return the seconds of silence that mean a dead node: the command's wait plus `timeout_s`. None: no limit."""
        if self.silence_s is not None:
            timeout_s = min(timeout_s, self.silence_s)
        if self.wait_ms is None:
            return timeout_s
        return None if self.wait_ms == 0 else self.wait_ms / 1000 + timeout_s

    def value(self, reply: Reply, node: Address | None, decode: Decode) -> T:
        """Return the typed answer. Raises the reply if it is a ReplyError.

        Jobs get the node that delivered them, and tasks the node that leads them.
        """
        if isinstance(reply, Exception):
            raise reply
        value = self.read(reply)
        if isinstance(value, (str, int)):
            return value
        if isinstance(value, Job):
            value.node, value.decode = node, decode
        elif isinstance(value, Task):
            value.node = node
        elif isinstance(value, list) and value:
            if isinstance(value[0], Job):
                for job in value:
                    job.node, job.decode = node, decode
            elif isinstance(value[0], Task):
                for task in value:
                    task.node = node
        return value


def words(*values: Word) -> tuple[bytes, ...]:
    """Return arguments as bytes."""
    return tuple(word(value) for value in values)
