"""Hand-made journals and files of the original, for the tests of the tools."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from disque_py.simulator.world.folder import SimFolder
from persistence.items import Facts
from persistence.layouts import IS_QUEUED, WAS_QUEUED

ME = bytes(range(20))
OTHER = b"\xee" * 20
WALL_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def job_id(number: int, *, is_once: bool = False) -> bytes:
    """Return a valid id of 40 bytes."""
    return b"D-00010203-%024d-05a%d" % (number, 0 if is_once else 1)


def facts(number: int = 1, **changes: Any) -> Facts:
    """Return a queued job. `changes` are fields of Facts."""
    is_once = changes.get("retry_ms", 1) == 0
    default = Facts(
        job_id(number, is_once=is_once),
        b"q",
        b"body-%d" % number,
        WALL_MS * 1_000_000,
        WALL_MS + DAY_MS,
        300_000,
        0,
        1,
        0,
        0,
        0,
        IS_QUEUED | WAS_QUEUED,
        0,
        (ME,),
    )
    return default._replace(**changes)


def blob(number: int = 1, **changes: Any) -> bytes:
    """Return a LOADJOB's argument as the original writes it."""
    row = {
        "id": job_id(number, is_once=changes.get("retry", 1) == 0),
        "state": 2,
        "flags": 0,
        "replicate": 1,
        "expire": WALL_MS // 1000 + 86_400,
        "ctime": WALL_MS * 1_000_000,
        "delay": 0,
        "retry": 300,
        "nacks": 0,
        "deliveries": 0,
        "queue": b"q",
        "body": b"b",
        "holders": (ME,),
    } | changes
    numbers = ("id", "state", "flags", "replicate", "expire", "ctime", "delay", "retry", "nacks", "deliveries")
    data = struct.pack("<40sBBHIQIIHH", *(row[name] for name in numbers))
    for name in ("queue", "body"):
        data += struct.pack("<I", len(row[name])) + row[name]
    data += struct.pack("<I", len(row["holders"])) + b"".join(node.hex().encode() for node in row["holders"])
    return struct.pack("<I", len(data) + 4) + data


def record(*words: bytes) -> bytes:
    """Return a RESP command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def loadjob(number: int = 1, **changes: Any) -> bytes:
    """Return a LOADJOB record of the original's file."""
    return record(b"LOADJOB", blob(number, **changes))


def folder() -> SimFolder:
    """Return an empty folder."""
    return SimFolder(Random(1))
