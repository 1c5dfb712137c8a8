"""Push notifications in three phases, each in any number of processes: generate, target, deliver.

    python push_notifications.py generate 127.0.0.1:7711 127.0.0.1:7712 --dir /var/lib/push
    python push_notifications.py target   127.0.0.1:7711 127.0.0.1:7712 --dir /var/lib/push
    python push_notifications.py deliver  127.0.0.1:7711 127.0.0.1:7712 --dir /var/lib/push

The site appends an activity to `feed.jsonl` for each thing that happens. One generator at a time turns activities into
jobs; the others wait for its lock. Targeters look up the recipients, and add a job per device to one of the delivery
shards. In each shard, one deliverer at a time sends the notifications to the gateway of the phones, which is a SQLite
file here. README.md says why nothing is lost, and where a notification may be sent again.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from disque_py.client import Disque, DisqueError, Job, Lock, LockLostError

SHARDS = 4
EVENTS = "push.events"
RETRY_S = 5
LEASE_S = 3.0
BATCH = 200
PAUSE_S = 0.01
FOLLOWERS = 5


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


class Gateway:
    """The phones' gateway: it takes a notification once, and counts how often it was sent."""

    def __init__(self, folder: Path) -> None:
        self._db = opened(folder / "gateway.db")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS sent (id TEXT PRIMARY KEY, happened REAL, delivered REAL, fence INT, sends INT)"
        )

    def send(self, notifications: list[dict[str, object]], fence: int) -> None:
        """Send a batch. An id that was sent before is not shown again, as with the ids of real gateways."""
        now = time.time()
        rows = [(each["id"], each["happened"], now, fence) for each in notifications]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            "INSERT INTO sent VALUES (?, ?, ?, ?, 1) ON CONFLICT (id) DO UPDATE SET sends = sends + 1", rows
        )
        self._db.execute("COMMIT")

    def rows(self) -> list[tuple[str, float, float, int, int]]:
        """Return all notifications: id, when it happened, when it was delivered, fence, number of sends."""
        return self._db.execute("SELECT * FROM sent").fetchall()


# -- the site ---------------------------------------------------------------------------------------------


def publish(folder: Path, user: str, number: int) -> None:
    """Note an activity as one short line, so that the page that causes it is not slowed down."""
    line = json.dumps({"id": f"{user}-{number}", "user": user, "happened": time.time()})
    with (folder / "feed.jsonl").open("a") as feed:
        feed.write(line + "\n")


# -- phase 1: one generator at a time -------------------------------------------------------------------------


def generate(client: Disque, folder: Path, stop: threading.Event) -> None:
    """Turn activities into jobs, as long as this process has the lock. Others wait for it."""
    while not stop.is_set():
        try:
            with client.lock("push.generate", lease=LEASE_S) as lock:
                for lines, offset in _unread(folder, lock, stop):
                    ids = [json.loads(line)["id"] for line in lines]
                    # With a key per activity, no activity is added twice, even if an earlier generator has added it.
                    client.add_jobs(EVENTS, lines, key=ids, retry=RETRY_S, replicate=2)
                    _note(folder, offset)
        except (DisqueError, LockLostError):
            stop.wait(PAUSE_S * 10)


def _unread(folder: Path, lock: Lock, stop: threading.Event) -> Iterator[tuple[list[str], int]]:
    """Yield new lines of the feed, and the offset after them, while the lock is held."""
    noted = folder / "feed.offset"
    offset = int(noted.read_text()) if noted.exists() else 0
    (folder / "feed.jsonl").touch()
    with (folder / "feed.jsonl").open() as feed:
        feed.seek(offset)
        while lock.is_held and not stop.is_set():
            lines = []
            while len(lines) < BATCH:
                offset = feed.tell()
                line = feed.readline()
                if not line.endswith("\n"):
                    feed.seek(offset)
                    break
                lines.append(line.strip())
                offset = feed.tell()
            if lines:
                yield lines, offset
            else:
                stop.wait(PAUSE_S)


def _note(folder: Path, offset: int) -> None:
    """Note how far the feed was read. An older offset is harmless."""
    new = folder / f"feed.offset.{os.getpid()}"
    new.write_text(str(offset))
    new.replace(folder / "feed.offset")


# -- phase 2: any number of targeters ---------------------------------------------------------------------------


def target(client: Disque, stop: threading.Event) -> None:
    """Find the recipients of each event, and add a job per device. The event is done when all jobs are added."""
    while not stop.is_set():
        try:
            events = client.get_jobs(EVENTS, count=BATCH // FOLLOWERS, timeout_ms=200)
            by_shard: dict[int, list[dict[str, object]]] = {}
            for event in events:
                for notification in notifications_of(json.loads(event.body)):
                    by_shard.setdefault(shard_of(str(notification["device"])), []).append(notification)
            for shard, batch in by_shard.items():
                # If this targeter dies before the ack, another one has the event. The keys keep it from adding twice.
                client.add_jobs(
                    queue_of(shard),
                    [json.dumps(each) for each in batch],
                    key=[str(each["id"]) for each in batch],
                    retry=RETRY_S,
                    replicate=2,
                )
            if events:
                client.ack(*events)
        except DisqueError:
            stop.wait(PAUSE_S * 10)


def notifications_of(event: dict[str, str]) -> list[dict[str, object]]:
    """Return the notifications for an event: here five followers have a phone each."""
    return [
        {"id": f"{event['id']}>{number}", "device": f"{event['user']}.{number}", "happened": event["happened"]}
        for number in range(FOLLOWERS)
    ]


def shard_of(device: str) -> int:
    """Return the shard of a device, the same in every process."""
    return zlib.crc32(device.encode()) % SHARDS


def queue_of(shard: int) -> str:
    """Return the queue of a shard."""
    return f"push.deliver.{shard}"


# -- phase 3: one deliverer per shard at a time -----------------------------------------------------------------


def deliver(client: Disque, folder: Path, shard: int, stop: threading.Event) -> None:
    """Send the notifications of a shard, as long as this process has its lock. Others wait for it."""
    gateway = Gateway(folder)
    while not stop.is_set():
        try:
            with client.lock(f"push.deliver.{shard}", lease=LEASE_S) as lock:
                while lock.is_held and not stop.is_set():
                    jobs = client.get_jobs(queue_of(shard), count=BATCH, timeout_ms=200)
                    if jobs and lock.is_held:
                        _send(client, gateway, jobs, lock.fence)
        except (DisqueError, LockLostError):
            stop.wait(PAUSE_S * 10)


def _send(client: Disque, gateway: Gateway, jobs: list[Job], fence: int) -> None:
    gateway.send([json.loads(job.body) for job in jobs], fence)
    client.ack(*jobs)


# -- processes ----------------------------------------------------------------------------------------------


def main() -> None:
    """Run one phase until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("generate", "target", "deliver"))
    parser.add_argument("nodes", nargs="+")
    parser.add_argument("--dir", type=Path, required=True)
    chosen = parser.parse_args()
    client = Disque(*chosen.nodes)
    stop = threading.Event()
    if chosen.phase == "generate":
        generate(client, chosen.dir, stop)
    elif chosen.phase == "target":
        target(client, stop)
    else:
        threads = [
            threading.Thread(target=deliver, args=(client, chosen.dir, shard, stop), daemon=True)
            for shard in range(SHARDS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
