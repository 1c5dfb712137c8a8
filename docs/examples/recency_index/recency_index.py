"""A capped recency index: for each user, the contacts who uploaded a photo last.

    python recency_index.py work 127.0.0.1:7711 --dir /var/lib/site
    python recency_index.py show --dir /var/lib/site --user 17

The site's database knows all contacts, and some users have tens of thousands of them. The index has a short list per
user, with the newest first, so a page asks the database about ten contacts only. The site changes its database and adds
a task for each change. Workers run the tasks in any order, and perhaps twice. A task only names the contact to check,
so the order has no effect. Database and index are SQLite files here. README.md has the rules.
"""

from __future__ import annotations

import argparse
import json
import logging
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from disque_py.client import AsyncDisque, Disque, Job, Worker

TASKS = "recency.tasks"
SHOWN = 10
# A fifth more than a page shows, as a reserve for contacts that are removed.
CAP = 12
FLOOR = 10


# -- the site -----------------------------------------------------------------------------------------------


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


class Site:
    """The database of contacts and uploads, which is always correct. Each change returns its task."""

    def __init__(self, folder: Path) -> None:
        self._db = opened(folder / "site.db")
        self._db.execute("CREATE TABLE IF NOT EXISTS contacts (user INT, contact INT, PRIMARY KEY (user, contact))")
        self._db.execute("CREATE INDEX IF NOT EXISTS followers ON contacts (contact)")
        self._db.execute("CREATE TABLE IF NOT EXISTS uploads (user INTEGER PRIMARY KEY, last REAL)")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add_contact(self, user: int, contact: int) -> str:
        """Add a contact → the task for it."""
        self._db.execute("INSERT OR IGNORE INTO contacts VALUES (?, ?)", (user, contact))
        return json.dumps({"users": [user], "contact": contact})

    def remove_contact(self, user: int, contact: int) -> str:
        """Remove a contact → the task for it."""
        self._db.execute("DELETE FROM contacts WHERE user = ? AND contact = ?", (user, contact))
        return json.dumps({"users": [user], "contact": contact})

    def upload(self, user: int, when: float) -> str:
        """Note an upload → the task for it. The worker finds the users whose contact this is, however many."""
        self._db.execute(
            "INSERT INTO uploads VALUES (?, ?) ON CONFLICT (user) DO UPDATE SET last = max(last, excluded.last)",
            (user, when),
        )
        return json.dumps({"contact": user})

    def followers(self, contact: int) -> list[int]:
        """Return the users who have this contact."""
        return [user for (user,) in self._db.execute("SELECT user FROM contacts WHERE contact = ?", (contact,))]

    def last_upload(self, user: int, contact: int) -> float | None:
        """Return when a contact of the user uploaded last; None if there is no such contact or no upload."""
        row = self._db.execute(
            "SELECT last FROM contacts JOIN uploads ON uploads.user = contact WHERE contacts.user = ? AND contact = ?",
            (user, contact),
        ).fetchone()
        return row[0] if row else None

    def newest(self, user: int, count: int) -> list[tuple[int, float]]:
        """Return the contacts who uploaded last, newest first. It looks at all contacts, so it is slow."""
        return self._db.execute(
            "SELECT contact, last FROM contacts JOIN uploads ON uploads.user = contact"
            " WHERE contacts.user = ? ORDER BY last DESC, contact LIMIT ?",
            (user, count),
        ).fetchall()


# -- the index ----------------------------------------------------------------------------------------------


class Index:
    """A list per user, of at most CAP contacts.

    A list has each contact who uploaded at its horizon or later. When the cap drops a contact, the horizon moves up,
    and a refill sets it again. So the list is always the beginning of the whole list, and never has a gap.
    """

    def __init__(self, folder: Path, site: Site) -> None:
        self._site = site
        self._db = sqlite3.connect(folder / "index.db", timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS recent (user INT, contact INT, last REAL, PRIMARY KEY (user, contact))"
        )
        self._db.execute("CREATE TABLE IF NOT EXISTS lists (user INTEGER PRIMARY KEY, horizon REAL, refills INT)")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def look(self, user: int, contact: int) -> None:
        """Bring a contact's place in a list up to date.

        The index is locked before the database is read. So of two tasks, the one that writes later has read later, and
        a removal and an addition in the wrong order have the same effect.
        """
        with self._locked():
            last = self._site.last_upload(user, contact)
            horizon = self._horizon(user)
            if last is not None and last >= horizon:
                self._db.execute("INSERT OR REPLACE INTO recent VALUES (?, ?, ?)", (user, contact, last))
                self._cut(user)
                return
            self._db.execute("DELETE FROM recent WHERE user = ? AND contact = ?", (user, contact))
            # At horizon 0 the list has all contacts with an upload, so the database has no more of them.
            if horizon and self.size(user) < FLOOR:
                self._refill(user)

    def recent(self, user: int) -> list[int]:
        """Return the contacts for a page, newest first. Removed contacts are left out."""
        rows = self._db.execute("SELECT contact FROM recent WHERE user = ? ORDER BY last DESC, contact", (user,))
        return [contact for (contact,) in rows if self._site.last_upload(user, contact) is not None][:SHOWN]

    def size(self, user: int) -> int:
        """Return the length of a list."""
        count: int = self._db.execute("SELECT count(*) FROM recent WHERE user = ?", (user,)).fetchone()[0]
        return count

    def refills(self) -> int:
        """Return how many times a list was read from the database again."""
        count: int = self._db.execute("SELECT total(refills) FROM lists").fetchone()[0]
        return count

    def _horizon(self, user: int) -> float:
        row = self._db.execute("SELECT horizon FROM lists WHERE user = ?", (user,)).fetchone()
        return row[0] if row else 0.0

    def _move_horizon(self, user: int, refills: int) -> None:
        """Set the horizon to the oldest entry of a full list. A shorter list has everything, so its horizon is 0."""
        self._db.execute(
            "INSERT INTO lists SELECT ?1, iif(count(*) < ?2, 0, min(last)), ?3 FROM recent WHERE user = ?1"
            " ON CONFLICT (user) DO UPDATE SET horizon = excluded.horizon, refills = refills + ?3",
            (user, CAP, refills),
        )

    def _cut(self, user: int) -> None:
        cut = self._db.execute(
            "DELETE FROM recent WHERE user = ?1 AND contact IN"
            " (SELECT contact FROM recent WHERE user = ?1 ORDER BY last DESC, contact LIMIT -1 OFFSET ?2)",
            (user, CAP),
        )
        if cut.rowcount:
            self._move_horizon(user, 0)

    def _refill(self, user: int) -> None:
        self._db.execute("DELETE FROM recent WHERE user = ?", (user,))
        rows = [(user, contact, last) for contact, last in self._site.newest(user, CAP)]
        self._db.executemany("INSERT INTO recent VALUES (?, ?, ?)", rows)
        self._move_horizon(user, 1)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


# -- tasks --------------------------------------------------------------------------------------------------


def notify(client: Disque, *tasks: str) -> None:
    """Add the tasks of changes: the only thing that a page waits for."""
    client.add_jobs(TASKS, tasks, retry=10)


def work(nodes: list[str], folder: Path) -> None:
    """Run tasks until SIGTERM."""

    def handle(job: Job) -> None:
        task = json.loads(job.body)
        with closing(Site(folder)) as site, closing(Index(folder, site)) as index:
            for user in task.get("users") or site.followers(task["contact"]):
                index.look(user, task["contact"])

    Worker(AsyncDisque(*nodes), [TASKS], handle, concurrency=4).run()


def main() -> None:
    """Run a worker, or show the list of a user."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("work", "show"))
    parser.add_argument("nodes", nargs="*", default=["127.0.0.1:7711"])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--user", type=int, default=0)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    if chosen.what == "work":
        work(chosen.nodes, chosen.dir)
    else:
        with closing(Site(chosen.dir)) as site, closing(Index(chosen.dir, site)) as index:
            sys.stdout.write(f"{index.recent(chosen.user)}\n")


if __name__ == "__main__":
    main()
