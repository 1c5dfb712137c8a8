"""Upkeep of an index: compaction, retention, and removal of files that no table knows.

The process that commits batches also does the upkeep, between batches, so that upkeep never competes with a commit.
`disque-pipeline upkeep` does it when no query runs. `current` loses jobs that ended longer ago than
`currentRetention`. `history` loses whole days older than `historyRetention`. A file is removed an hour after it left
the table, so that queries that still read it can end.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow.fs as pafs
from deltalake import DeltaTable

from disque_py.spark.delta_store import Store, delete_files
from disque_py.spark.index_changes import ChangesTable
from disque_py.spark.index_compaction import compact
from disque_py.spark.index_merge import CurrentMerge
from disque_py.spark.index_schema import CHANGES, CURRENT, HISTORY, STAGING, open_existing
from disque_py.spark.options import OptionError, Options

COMPACT_EVERY: Final = 50
MERGE_EVERY_S: Final = 60
# Readers hold a list of files for as long as their query runs.
VACUUM_HOURS: Final = 1
STAGING_AGE_S: Final = 86_400.0
# A hundred years. Python knows no days before the year 1, so a retention must not lead there.
SPAN_MAX_S: Final = 36_500 * 86_400

_UNITS: Final = {
    "s": 1, "second": 1, "seconds": 1, "min": 60, "minute": 60, "minutes": 60,
    "h": 3_600, "hour": 3_600, "hours": 3_600, "d": 86_400, "day": 86_400, "days": 86_400,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of both tables, in seconds; None: for ever.

    compact_every   number of batches between two rounds of upkeep; 0: no upkeep
    current_s       how long `current` keeps jobs that have ended
    history_s       how long `history` keeps days
    merge_every_s   how long changes of old jobs may wait for their merge into `current`; 0: they don't wait
    """

    compact_every: int = COMPACT_EVERY
    current_s: int | None = None
    history_s: int | None = None
    merge_every_s: int = MERGE_EVERY_S


def retention_of(options: Options) -> Retention:
    """Read `compactEvery`, `currentRetention`, `historyRetention` and `mergeEvery`. Raises OptionError."""
    merge_every_s = read_span(options, "mergeEvery")
    return Retention(
        options.integer("compactEvery", COMPACT_EVERY),
        read_span(options, "currentRetention"),
        read_span(options, "historyRetention"),
        MERGE_EVERY_S if merge_every_s is None else merge_every_s,
    )


def read_span(options: Options, name: str) -> int | None:
    """Return an option such as `7 days` or `12h` in seconds; None when it was not given. Raises OptionError."""
    if not options.has(name):
        return None
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", options.text(name).lower())
    if found is None or found[2] not in _UNITS:
        raise OptionError(
            f"{options.format}: option {name} must be a span such as 7 days or 12h, not {options.text(name)!r}"
        )
    span_s = int(found[1]) * _UNITS[found[2]]
    if span_s > SPAN_MAX_S:
        raise OptionError(
            f"{options.format}: option {name} is at most {SPAN_MAX_S // 86_400} days, not {options.text(name)!r}"
        )
    return span_s


def maintain(store: Store, retention: Retention, batch: int) -> int:
    """Do a round of upkeep every `compact_every` batches, and return the milliseconds that it took."""
    if not retention.compact_every or batch % retention.compact_every != retention.compact_every - 1:
        return 0
    began = time.monotonic()
    tidy(store, retention, time.time())
    return round((time.monotonic() - began) * 1000)


def tidy(store: Store, retention: Retention, now_s: float) -> dict[str, int]:
    """Do one round of upkeep, and return its counts: rows and days deleted, files merged and removed."""
    done = {"jobs": 0, "days": 0, "files_merged": 0, "files_removed": 0}
    settle(store, retention.merge_every_s)
    for name in (HISTORY, CHANGES, CURRENT):
        if not store.under(name).exists():
            continue
        table = open_existing(store, name)
        if name == CURRENT and retention.current_s is not None:
            before = datetime.fromtimestamp(now_s - retention.current_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            predicate = f"final > 0 AND ts < arrow_cast('{before}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
            done["jobs"] += int(table.delete(predicate).get("num_deleted_rows") or 0)
        if name == HISTORY and retention.history_s is not None:
            day = (datetime.fromtimestamp(now_s, UTC) - timedelta(seconds=retention.history_s)).strftime("%Y-%m-%d")
            done["days"] += _delete_days(table, day)
        if name != CHANGES:
            done["files_merged"] += compact(store, name, table)
        done["files_removed"] += len(
            table.vacuum(VACUUM_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
        )
    _empty_staging(store, now_s)
    return done


def settle(store: Store, merge_every_s: int) -> None:
    """Merge the changes that have waited for `merge_every_s` seconds into `current`; 0: all of them."""
    oldest_ms = ChangesTable(store).oldest_ms()
    if oldest_ms is None or not store.under(CURRENT).exists():
        return
    if oldest_ms + merge_every_s * 1000 <= time.time_ns() // 1_000_000:
        CurrentMerge(store, open_existing(store, CURRENT), merge_every_s).merge([])


def _delete_days(table: DeltaTable, day: str) -> int:
    days = {str(partition["day"]) for partition in table.partitions()}
    old = sorted(one for one in days if one < day)
    if old:
        table.delete(f"day < '{day}'")
    return len(old)


def _empty_staging(store: Store, now_s: float) -> None:
    """Remove staged files of batches that were never finished."""
    staging = store.under(STAGING)
    if not staging.is_local or staging.local_path.exists():
        delete_files(staging, old_parts(staging.filesystem(), now_s - STAGING_AGE_S))


def old_parts(files: pafs.FileSystem, before_s: float) -> list[str]:
    """Return the files of tasks in a folder, or in an object store, that are older than this time (Unix seconds)."""
    found = files.get_file_info(pafs.FileSelector("", allow_not_found=True))
    return [
        file.path
        for file in found
        if file.is_file and file.base_name.startswith("part-") and file.mtime_ns < before_s * 1_000_000_000
    ]
