"""Replies of a node for the tests of programs that look after queues and jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

NIL = b"$-1\r\n"
NODE_ID = "a" * 40


def reply(value: Any) -> bytes:
    """Return a value as RESP: text and bytes as bulk strings, lists as arrays, None as nil, mappings as flat pairs."""
    if value is None:
        return NIL
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, Mapping):
        return reply([item for pair in value.items() for item in pair])
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(map(reply, value))
    data = value.encode() if isinstance(value, str) else value
    return b"$%d\r\n%b\r\n" % (len(data), data)


HELLO = reply([1, NODE_ID, [NODE_ID, "", "7711", "1"]])
STAT = {
    "name": "mail",
    "len": 5,
    "age": 9,
    "idle": 0,
    "blocked": 2,
    "import-from": [],
    "import-rate": 0,
    "jobs-in": 100,
    "jobs-out": 95,
    "pause": "none",
    "oldest-ms": 65_000,
    "invisible": 1,
    "running": 3,
    "errored": 4,
    "nodes": 3,
    "nodes-missing": [],
}
SETTINGS = {
    "lease": "",
    "delay": "0",
    "ttl": "86400",
    "replicate": "",
    "attempts": "5",
    "backoff": "",
    "dead-letter": "failed",
    "retention": "604800",
    "maxlen": "0",
    "maxsize": "0",
    "require-meta": "",
    "type": "simple",
    "paused": "none",
    "version": 3,
    "behind": 0,
}
JOB_ID = "D-aaaaaaaa-" + "x" * 24 + "-05a1"
JOB = {
    "id": JOB_ID,
    "queue": "mail",
    "state": "active",
    "repl": 2,
    "ttl": 3600,
    "retry": 60,
    "nodes-delivered": ["a" * 40, "b" * 40],
    "body": "Dear Ada",
    "attempt": 2,
    "priority": 7,
    "meta": ["tenant", "a"],
    "status": "running",
    "attempts": 5,
    "attempts-left": 3,
    "error": "ValueError: no",
    "retry-ms": 60_000,
    "ttl-ms": 3_600_000,
}


def answers(**more: Any) -> dict[str, Any]:
    """Return the replies of a node with one queue. Underscores in the names of keywords stand for blanks."""
    given: dict[str, bytes | Callable[[list[bytes]], bytes | None]] = {
        "HELLO": HELLO,
        "QSCAN": reply(["0", ["mail"]]),
        "QSTAT": reply(STAT),
        "QUEUE LIST": reply(["mail"]),
        "QUEUE GET": reply(SETTINGS),
        "QUEUE SET": b"+OK\r\n",
        "QUEUE RESET": b"+OK\r\n",
    }
    given.update({name.replace("_", " "): value for name, value in more.items()})
    return given
