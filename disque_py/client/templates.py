"""Many ADDJOBs that differ in their bodies only: everything else is encoded once.

Pure; shared by the asyncio and the blocking client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from disque_py.client import commands
from disque_py.client.bulk import Bulk
from disque_py.client.commands import Body
from disque_py.client.errors import BatchError, NotConnectedError
from disque_py.client.protocol import Reply, word
from disque_py.client.request import Repeat, Request

# Bodies encoded at a time: a generator of millions must not be in memory as a whole.
SLAB: Final = 8_192


class AddTemplate:
    """ADDJOB <queue> … <timeout> <options>, with a hole for the body.

    request   stands for every command of the batch when a connection is chosen
    """

    def __init__(
        self, queue: str | bytes, *, timeout_ms: int, options: Sequence[bytes], retry_unsafe: bool | None
    ) -> None:
        self.request: Request[str] = commands.add_job(queue, b"", timeout_ms=timeout_ms, retry_unsafe=retry_unsafe)
        self._head = b"*%d\r\n$6\r\nADDJOB\r\n%b" % (4 + len(options), _bulk(word(queue)))
        self._tail = b"".join(_bulk(value) for value in (b"%d" % timeout_ms, *options))

    def payload(self, body: Body) -> bytes:
        """The command for one body."""
        body = word(body)
        return b"%b$%d\r\n%b\r\n%b" % (self._head, len(body), body, self._tail)

    def bulk(self, bodies: Sequence[Body], *, retry_unsafe: bool) -> Bulk:
        """The commands for some bodies, ready to be sent; `retry_unsafe` is the client's setting."""
        repeats: list[Repeat] = [self.request.repeat] * len(bodies)
        return Bulk([self.payload(body) for body in bodies], repeats, retry_unsafe=retry_unsafe)

    def ids(self, replies: Sequence[Reply]) -> list[str]:
        """The answers as ids. Raises BatchError if one is an error."""
        if any(isinstance(reply, Exception) for reply in replies):
            read = self.request.read
            raise BatchError([reply if isinstance(reply, Exception) else read(reply) for reply in replies])
        return [str(reply, "ascii") for reply in replies]


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def slabs(bodies: Iterable[Body]) -> Iterator[list[Body]]:
    """Bodies in parts of SLAB."""
    rest = iter(bodies)
    while part := list(islice(rest, SLAB)):
        yield part


def unsent(rest: Iterable[Sequence[Body]], bulk: Bulk) -> list[Reply]:
    """Errors in place of the ids of all bodies that are left, when one part of them could not be sent in time."""
    reason = next(reply for reply in bulk.replies if isinstance(reply, Exception))
    error = NotConnectedError(f"not sent: {reason}")
    return [error for slab in rest for _ in slab]
