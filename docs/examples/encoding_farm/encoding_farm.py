"""A media encoding farm: earliest deadline first, one running job per project, workers of several kinds.

    python encoding_farm.py prepare 127.0.0.1:7711 127.0.0.1:7712
    python encoding_farm.py work    127.0.0.1:7711 127.0.0.1:7712 --dir /var/lib/farm --kind cpu
    python encoding_farm.py work    127.0.0.1:7711 127.0.0.1:7712 --dir /var/lib/farm --kind gpu
    python encoding_farm.py submit  127.0.0.1:7711 127.0.0.1:7712 < jobs.jsonl

`prepare` makes the queue exclusive by project, once. `submit` reads one encoding per line and adds a job for each; the
job's priority is its deadline. A worker takes only jobs of its kind, and writes segments to the storage, which is a
SQLite file here. Each write has the fence of the job's claim, and the storage refuses older fences. README.md says what
this prevents.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from disque_py.client import AsyncDisque, Backoff, Disque, Job, Worker

QUEUE = "farm.encode"
KINDS = ("cpu", "gpu")
LEASE_S = 3
ATTEMPTS = 3
SEGMENT_S = 0.05
RESULTS_S = 3_600


class Event(NamedTuple):
    """A line of the storage's history.

    what    begin, segment, end or refused
    fence   the fence that the writer named
    """

    what: str
    project: str
    title: str
    kind: str
    worker: int
    fence: int


class OlderFenceError(Exception):
    """A later claim on the project has reached the storage, so this writer has lost its own."""


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection to the database, which several processes may be opening now."""
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:  # Another process is changing the mode. SQLite does not wait for that.
            time.sleep(0.05)
            continue
        database.execute("PRAGMA synchronous=OFF")
        return database


class Storage:
    """The place of the encoded segments. It refuses a write under an older fence than the project's newest."""

    def __init__(self, folder: Path) -> None:
        self._db = opened(folder / "storage.db")
        self._db.execute("CREATE TABLE IF NOT EXISTS fences (project TEXT PRIMARY KEY, fence INT)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS segments"
            " (project TEXT, title TEXT, number INT, data TEXT, fence INT, PRIMARY KEY (project, title, number))"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS history (what TEXT, project TEXT, title TEXT, kind TEXT, worker INT, fence INT)"
        )

    def note(self, event: Event, segment: tuple[int, str] | None = None) -> None:
        """Add an event, and a segment (its number and data), in one transaction.

        Raises OlderFenceError if a later fence of the project was seen. Then the segment is not written.
        """
        self._db.execute("BEGIN IMMEDIATE")
        is_newest = self._db.execute(
            "INSERT INTO fences VALUES (?, ?) ON CONFLICT (project)"
            " DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence",
            (event.project, event.fence),
        ).rowcount
        seen = event if is_newest else event._replace(what="refused")
        self._db.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?)", seen)
        if is_newest and segment is not None:
            row = (event.project, event.title, *segment, event.fence)
            self._db.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?)", row)
        self._db.execute("COMMIT")
        if not is_newest:
            raise OlderFenceError(f"a later claim on {event.project} is known")

    def segments(self) -> dict[tuple[str, str], list[int]]:
        """Return the numbers of the segments of each project and title."""
        found: dict[tuple[str, str], list[int]] = {}
        for project, title, number in self._db.execute("SELECT project, title, number FROM segments ORDER BY number"):
            found.setdefault((project, title), []).append(number)
        return found

    def history(self) -> list[Event]:
        """Return all events in the order in which the storage saw them."""
        return [Event(*row) for row in self._db.execute("SELECT * FROM history ORDER BY rowid")]

    def close(self) -> None:
        """Close the file."""
        self._db.close()


# -- the studio ---------------------------------------------------------------------------------------------


class Encoding(NamedTuple):
    """A requested encoding.

    kind        the kind of worker that it needs: cpu or gpu
    deadline    Unix time in milliseconds; the earliest deadline is served first
    segments    number of segments
    is_broken   whether the source can't be read, so each attempt fails
    """

    project: str
    title: str
    kind: str
    deadline: int
    segments: int = 3
    is_broken: bool = False


def prepare(client: Disque) -> None:
    """Set up the queue. Afterwards all nodes know its settings. The cluster needs voters."""
    client.set_queue(
        QUEUE,
        exclusive_by="project",
        require_meta=["project", "kind"],
        index=["kind"],
        lease=LEASE_S,
        attempts=ATTEMPTS,
        backoff=Backoff("fixed", base_ms=200, cap_ms=200, jitter_percent=0),
        result_retention=RESULTS_S,
    )


def submit(client: Disque, encodings: Iterable[Encoding]) -> list[str]:
    """Add a job for each encoding, and return the ids. Keys make a repeated call harmless."""
    return [
        client.add_job(
            QUEUE,
            json.dumps({"title": each.title, "segments": each.segments, "is_broken": each.is_broken}),
            priority=each.deadline,
            meta={"project": each.project, "kind": each.kind},
            key=f"{each.project}/{each.title}",
            replicate=2,
        )
        for each in encodings
    ]


# -- workers ------------------------------------------------------------------------------------------------


def work(client: AsyncDisque, folder: Path, kind: str) -> None:
    """Encode jobs of this kind, one at a time, until the process is ended. The worker extends their leases."""

    def encode(job: Job) -> str:
        return _encode(job, folder)

    Worker(
        client, [QUEUE], encode, concurrency=1, where={"kind": kind}, withmeta=True, withlease=True, results=True
    ).run()


def _encode(job: Job, folder: Path) -> str:
    """Write the segments of a job, and return its result. An exception costs an attempt."""
    wanted, meta, storage = json.loads(job.body), job.meta or {}, Storage(folder)
    begin = Event("begin", meta["project"], wanted["title"], meta["kind"], os.getpid(), job.fence or 0)
    try:
        # The first write tells the storage the new fence. From now on the storage refuses earlier writers.
        storage.note(begin)
        if wanted["is_broken"]:
            storage.note(begin._replace(what="end"))
            raise ValueError("the source can't be read")
        for number in range(wanted["segments"]):
            time.sleep(SEGMENT_S)  # The encoding itself.
            storage.note(begin._replace(what="segment"), (number, f"segment {number} of {wanted['title']}"))
        storage.note(begin._replace(what="end"))
    finally:
        storage.close()
    return json.dumps({"segments": wanted["segments"], "attempt": job.attempt})


# -- processes ----------------------------------------------------------------------------------------------


def main() -> None:
    """Prepare the queue, submit encodings, or work until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("prepare", "submit", "work"))
    parser.add_argument("nodes", nargs="+")
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    chosen = parser.parse_args()
    if chosen.role == "work":
        work(AsyncDisque(*chosen.nodes), chosen.dir, chosen.kind)
        return
    with Disque(*chosen.nodes) as client:
        if chosen.role == "prepare":
            prepare(client)
        else:
            for job_id in submit(client, (Encoding(**json.loads(line)) for line in sys.stdin)):
                sys.stdout.write(job_id + "\n")


if __name__ == "__main__":
    main()
