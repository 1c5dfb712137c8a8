"""The bytes of the protocols: requests built once, and how to recognise the end of a reply.

A generator must not be slower than the server that it measures. So requests are built before the clock runs, and
replies are not parsed. Bodies and names contain no line feed, so every reply to a request has a fixed number of them.
Counting line feeds is one call into C for a whole batch. Ids are found with one regular expression. Pure.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import hiredis

if TYPE_CHECKING:
    import ssl


def packed(*words: bytes | str | int) -> bytes:
    """Return a command in RESP."""
    return bytes(hiredis.pack_command(words))  # type: ignore[arg-type]  # Its stubs name a tuple of one word.


@dataclass(frozen=True, slots=True)
class Request:
    """The bytes of one request, and the number of line feeds in its reply."""

    data: bytes
    marks: int


@dataclass(frozen=True, slots=True)
class Encryption:
    """TLS for the connections to a server: its context, and the name that the server's certificate must have."""

    context: ssl.SSLContext
    server_name: str


class Dialect:
    """A protocol with its way to add, get and acknowledge a job.

    name      as on the command line
    trouble   bytes that occur only in error replies
    pong      the beginning of the reply to `ping`
    login     the request with which each connection logs in, if any
    tls       the encryption of each connection, if any
    """

    name: str
    trouble: bytes = b"\r\n-"
    pong: bytes = b"+PONG"
    login: Request | None = None
    tls: Encryption | None = None
    has_jobs = True
    has_delay = False
    is_disque = False

    def with_login(self, user: str, password: str) -> Dialect:
        """Return this protocol with a login. It is the user `default` if no name is given."""
        one = copy.copy(self)
        one.login = Request(packed("AUTH", *([user] if user else []), password), 1)
        return one

    def with_tls(self, tls: Encryption | None) -> Dialect:
        """Return this protocol over TLS, or without it."""
        one = copy.copy(self)
        one.tls = tls
        return one

    def hello(self, queue: str) -> Request | None:
        """Return the request that a connection sends first, or after its login, if any."""
        return None

    def prepare(self, queue: str) -> Request | None:
        """Return the request that a queue needs once, if any."""
        return None

    def ping(self) -> Request:
        """Return the cheapest request."""
        return Request(packed("PING"), 1)

    def add(self, queue: str, body: bytes, *, delay_s: int = 0, replicate: int = 0) -> Request:
        """Return the request that adds a job."""
        raise LookupError(f"{self.name} has no jobs")

    def get(self, queue: str, *, is_blocking: bool = False) -> Request:
        """Return the request for one job."""
        raise LookupError(f"{self.name} has no jobs")

    def ids(self, replies: bytes) -> Sequence[bytes]:
        """Return the ids of the jobs in the replies to `get`, one per job."""
        raise LookupError(f"{self.name} has no jobs")

    def acks(self, queue: str, body: bytes, ids: Sequence[bytes]) -> bytes:
        """Return one request per id that acknowledges its job; each reply has one line feed."""
        raise LookupError(f"{self.name} has no jobs")


class Floor(Dialect):
    """A server that answers PING and knows no jobs."""

    name = "floor"
    has_jobs = False

    def with_login(self, user: str, password: str) -> Dialect:
        """Return this protocol, which has no login."""
        return self


class DisqueDialect(Dialect):
    """Disque's ADDJOB, GETJOB, ACKJOB."""

    name = "disque"
    has_delay = True
    is_disque = True
    _ID: Final = re.compile(rb"\r\n(D-[^\r\n]+)\r\n")

    def add(self, queue: str, body: bytes, *, delay_s: int = 0, replicate: int = 0) -> Request:
        """Return an ADDJOB; with copies it waits up to five seconds for them."""
        words: list[bytes | str | int] = ["ADDJOB", queue, body, 5000 if replicate else 0]
        words += ["REPLICATE", replicate] if replicate else []
        words += ["DELAY", delay_s] if delay_s else []
        return Request(packed(*words), 1)

    def get(self, queue: str, *, is_blocking: bool = False) -> Request:
        """Return a GETJOB for one job. Its reply is a list with a list of queue, id and body."""
        return Request(packed("GETJOB", *([] if is_blocking else ["NOHANG"]), "COUNT", 1, "FROM", queue), 8)

    def ids(self, replies: bytes) -> Sequence[bytes]:
        """Return all words that look like ids. Our queues and bodies don't."""
        return self._ID.findall(replies)

    def acks(self, queue: str, body: bytes, ids: Sequence[bytes]) -> bytes:
        """Return one ACKJOB for each id."""
        return b"".join([b"*2\r\n$6\r\nACKJOB\r\n$%d\r\n%b\r\n" % (len(one), one) for one in ids])


class RedisList(Dialect):
    """A Redis list as a reliable queue: LPUSH, LMOVE to a list of taken jobs, LREM from there."""

    name = "redis-list"

    def add(self, queue: str, body: bytes, *, delay_s: int = 0, replicate: int = 0) -> Request:
        """Return an LPUSH. Its reply is a number."""
        return Request(packed("LPUSH", queue, body), 1)

    def get(self, queue: str, *, is_blocking: bool = False) -> Request:
        """Return an LMOVE or BLMOVE. Its reply is the body."""
        words = ("BLMOVE" if is_blocking else "LMOVE", queue, f"{queue}.taken", "RIGHT", "LEFT")
        return Request(packed(*words, *(["0"] if is_blocking else [])), 2)

    def ids(self, replies: bytes) -> Sequence[bytes]:
        """Return an empty id for each job, because an element is named by its body."""
        return [b""] * (replies.count(b"\n") // 2)

    def acks(self, queue: str, body: bytes, ids: Sequence[bytes]) -> bytes:
        """Return LREMs of the first equal element. All bodies of a test are equal, so the search is short."""
        return packed("LREM", f"{queue}.taken", 1, body) * len(ids)


class RedisStream(Dialect):
    """A Redis stream with a consumer group: XADD, XREADGROUP, XACK. Acknowledged entries stay in the stream."""

    name = "redis-stream"
    _ID: Final = re.compile(rb"\r\n(\d+-\d+)\r\n")

    def prepare(self, queue: str) -> Request | None:
        """Return the request that creates the stream and its group."""
        return Request(packed("XGROUP", "CREATE", queue, "g", "$", "MKSTREAM"), 1)

    def add(self, queue: str, body: bytes, *, delay_s: int = 0, replicate: int = 0) -> Request:
        """Return an XADD. Its reply is an id."""
        return Request(packed("XADD", queue, "*", "b", body), 2)

    def get(self, queue: str, *, is_blocking: bool = False) -> Request:
        """Return an XREADGROUP for one entry. Its reply has stream, id, field and value in lists."""
        block = ["BLOCK", "0"] if is_blocking else []
        return Request(packed("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, *block, "STREAMS", queue, ">"), 13)

    def ids(self, replies: bytes) -> Sequence[bytes]:
        """Return the ids of the entries."""
        return self._ID.findall(replies)

    def acks(self, queue: str, body: bytes, ids: Sequence[bytes]) -> bytes:
        """Return one XACK for each id."""
        head = b"*4\r\n$4\r\nXACK\r\n$%d\r\n%b\r\n$1\r\ng\r\n" % (len(queue), queue.encode())
        return b"".join([b"%b$%d\r\n%b\r\n" % (head, len(one), one) for one in ids])


class Beanstalk(Dialect):
    """beanstalkd's put, reserve, delete. A queue is a tube."""

    name = "beanstalkd"
    # NOT_FOUND, TIMED_OUT, OUT_OF_MEMORY, BAD_FORMAT …: only errors have an underscore.
    trouble = b"_"
    pong = b"USING"
    has_delay = True
    _ID: Final = re.compile(rb"RESERVED (\d+) ")

    def with_login(self, user: str, password: str) -> Dialect:
        """Return this protocol, which has no login."""
        return self

    def hello(self, queue: str) -> Request | None:
        """Return the requests that choose the tube for both directions."""
        return Request(b"use %b\r\nwatch %b\r\nignore default\r\n" % ((queue.encode(),) * 2), 3)

    def ping(self) -> Request:
        """Return a `use`, because beanstalkd has no PING."""
        return Request(b"use default\r\n", 1)

    def add(self, queue: str, body: bytes, *, delay_s: int = 0, replicate: int = 0) -> Request:
        """Return a put with the middle priority, and ten minutes to work."""
        return Request(b"put 1024 %d 600 %d\r\n%b\r\n" % (delay_s, len(body), body), 1)

    def get(self, queue: str, *, is_blocking: bool = False) -> Request:
        """Return a reserve that waits without a limit, or not at all."""
        return Request(b"reserve\r\n" if is_blocking else b"reserve-with-timeout 0\r\n", 2)

    def ids(self, replies: bytes) -> Sequence[bytes]:
        """Return the numbers of the jobs."""
        return self._ID.findall(replies)

    def acks(self, queue: str, body: bytes, ids: Sequence[bytes]) -> bytes:
        """Return one delete for each id."""
        return b"".join([b"delete %b\r\n" % one for one in ids])


FLOOR: Final = Floor()
DISQUE: Final = DisqueDialect()
REDIS_LIST: Final = RedisList()
REDIS_STREAM: Final = RedisStream()
BEANSTALKD: Final = Beanstalk()
DIALECTS: Final[dict[str, Dialect]] = {
    dialect.name: dialect for dialect in (DISQUE, REDIS_LIST, REDIS_STREAM, BEANSTALKD, FLOOR)
}
