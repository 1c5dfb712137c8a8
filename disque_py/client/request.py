"""A command on its way: its words, how to read the answer, and what may be done when the answer never comes.

Every shell (asyncio, blocking, pipeline) takes Requests from commands.py; none builds commands
itself. The rule for repeating, in one place: a command of which no byte left may always be sent
again; one that may have been executed only if executing it twice does no harm (`Repeat.SAFE`) or
its caller has said so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from disque_py.client.address import Address
from disque_py.client.protocol import Reply, Word, encode, word
from disque_py.client.results import Decode, Job

T = TypeVar("T")


class Repeat(Enum):
    """What a second execution would do."""

    SAFE = "safe"  # Nothing that the first has not done.
    ASK = "ask"  # A second job, an extra delivery: only if the caller or the client's `retry_unsafe` says yes.
    NEVER = "never"  # It means one node, and another would not be asked in its place.


class Lane(Enum):
    """Which kind of connection: what waits must not hold up what doesn't."""

    PLAIN = "plain"  # Answered at once.
    ADDS = "adds"  # ADDJOB: answered after the copies are made.
    OWN = "own"  # GETJOB: may wait for ever.


@dataclass(slots=True)
class Request(Generic[T]):
    """One command.

    argv             its words
    read             reply → value
    repeat           what a second execution would do
    lane             where it travels
    wait_ms          how long the node may take by the command's own word: None at once, 0 for ever
    wait_word        the place of that number in argv, when the wait may be shortened (GETJOB)
    node             the node it should go to; None: the client's own choice
    is_pinned        …and must: no other will do (cursors)
    is_consumers     it belongs where this client consumes
    awaits_nodes     a refusal for missing nodes is waited out: the caller asked for no number of copies
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

    @property
    def takes_jobs(self) -> bool:
        """Whether its answer is jobs that are leased from then on: nobody else gets what an abandoned caller leaves."""
        return self.argv[:1] == (b"GETJOB",)

    def payload(self) -> bytes:
        """The command as bytes."""
        return encode(self.argv)

    def payload_waiting(self, wait_ms: int) -> bytes:
        """The command as bytes, waiting `wait_ms` instead of what it says; only where `wait_word` is set."""
        assert self.wait_word is not None
        argv = list(self.argv)
        argv[self.wait_word] = b"%d" % wait_ms
        return encode(argv)

    def limit_s(self, timeout_s: float) -> float | None:
        """Silence that means a dead node, in seconds: the command's own wait and `timeout_s` on top. None: no limit."""
        if self.wait_ms is None:
            return timeout_s
        return None if self.wait_ms == 0 else self.wait_ms / 1000 + timeout_s

    def value(self, reply: Reply, node: Address | None, decode: Decode) -> T:
        """The typed answer; jobs are told where they were fetched. Raises the ReplyError that came instead."""
        if isinstance(reply, Exception):
            raise reply
        value = self.read(reply)
        if isinstance(value, Job):
            value.node, value.decode = node, decode
        elif isinstance(value, list) and value and isinstance(value[0], Job):
            for job in value:
                job.node, job.decode = node, decode
        return value


def words(*values: Word) -> tuple[bytes, ...]:
    """Arguments as bytes."""
    return tuple(word(value) for value in values)
