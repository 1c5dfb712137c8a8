"""The recency pipeline: the N most recent members of each key, from adds, removes and uploads in any order.

    key      the owner of a list (a user)   member   an entry of the list (a contact, a group)
    add      member belongs to key          remove   member no longer belongs to key
    upload   member was active: it moves up for every key that it belongs to

There are three Delta tables under the path. The *source* is two of them: `links` (key, member, the newest add or
remove) and `uploads` (member, newest time). Merges keep the newest row, so order and repetition don't matter. At equal
times a remove wins. The third table, `recency`, has a row per key with its capped list (recent_list.py). A batch
updates the lists of its keys. A list is filled from the source when a removal leaves too few members. `latest` reads
a key's list in milliseconds, because rows are in buckets by a hash of the key.

Every batch adds files to the tables, and replaces others. So every COMPACT_EVERY batches, the small files are merged,
and files that left the tables an hour ago are removed.

A batch is first merged into the source. Then the lists are updated from the source. After a crash in between, the
batch is repeated, which does no harm.

A list is computed from all three tables, so two batches must not change them at once. Each holds the lock of the path
(index_lock.py). A writer on another machine doesn't see the lock. Then one of the two batches fails at its commit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from disque_py.spark.delta_store import Store, TableError, paths_of
from disque_py.spark.index_lock import write_lock
from disque_py.spark.options import OptionError
from disque_py.spark.pipelines.history import check_keys
from disque_py.spark.pipelines.index import LIMITS
from disque_py.spark.pipelines.recent_list import RecentList, changed, filled
from disque_py.spark.upkeep import COMPACT_EVERY, VACUUM_HOURS

LIMIT: Final = 100
BUCKETS: Final = 16
# DuckDB would also take a folder `name=value` above the tables for a column, instead of the column of that name.
PLAIN: Final = "hive_partitioning = false"
ADD, REMOVE, UPLOAD = "add", "remove", "upload"

LINKS: Final = pa.schema(
    [("key", pa.string()), ("member", pa.string()), ("at_ms", pa.int64()), ("removed", pa.bool_())]
)
UPLOADS: Final = pa.schema([("member", pa.string()), ("at_ms", pa.int64())])
RECENCY: Final = pa.schema(
    [
        ("bucket", pa.int32()),
        ("key", pa.string()),
        ("members", pa.list_(pa.string())),
        ("at_ms", pa.list_(pa.int64())),
        ("is_cut", pa.bool_()),
    ]
)
SCHEMAS: Final = {"links": LINKS, "uploads": UPLOADS, "recency": RECENCY}


def run(
    spark: Any,
    nodes: str,
    path: str,
    *,
    limit: int = LIMIT,
    key: str = "key",
    member: str = "member",
    trigger: str | None = "5 seconds",
    checkpoint: str = "",
    source: Mapping[str, str] | None = None,
) -> Any:
    """Start the query on the events of a cluster and return it as a StreamingQuery.

    spark         a SparkSession with the data sources registered
    nodes         the option bootstrapServers: `host:port`, with commas
    path          folder or URI of the tables
    limit         members per key; by default 100
    key, member   names of the META pairs that hold key and member; by default "key" and "member"
    trigger       time between batches, by default "5 seconds"; None: read everything that exists now, then end
    checkpoint    folder or URI of the checkpoint; by default `_checkpoint_recency` below `path`
    source        further options of `disque-events`; by default LIMITS

    Jobs have `op` (add, remove or upload), key and member in their meta. A job's time is `at` (Unix ms) in its meta,
    or else its creation time, so all events of one job have the same time. `run_on` takes any stream. Raises
    OptionError.
    """
    check_keys((key, member))
    events = spark.readStream.format("disque-events").option("bootstrapServers", nodes)
    events = events.option("startingOffsets", "earliest")
    for name, value in (LIMITS | dict(source or {})).items():
        events = events.option(name, value)
    rows = events.load().where("meta['op'] IS NOT NULL")
    stream = rows.selectExpr(
        "meta['op'] AS op",
        f"meta['{key}'] AS key",
        f"meta['{member}'] AS member",
        # Any producer can write meta. Ignore values that are not numbers: one of them would end the query for ever.
        "coalesce(try_cast(meta['at'] AS bigint), ctime DIV 1000000) AS at_ms",
    )
    return run_on(stream, path, limit=limit, trigger=trigger, checkpoint=checkpoint)


def run_on(stream: Any, path: str, *, limit: int = LIMIT, trigger: str | None = None, checkpoint: str = "") -> Any:
    """Start the query on a streaming DataFrame with the columns op, key (null for uploads), member, at_ms.

    path         folder or URI of the tables
    limit        members per key; by default 100
    trigger      time between batches; by default None: read everything that exists now, then end
    checkpoint   folder or URI of the checkpoint; by default `_checkpoint_recency` below `path`

    Raises OptionError for a limit below 1.
    """
    if limit < 1:
        raise OptionError(f"recency: limit must be a number of members from 1 on, not {limit}")

    def batch(frame: Any, number: int) -> None:
        # Spark reduces the batch first, so the driver gets only the newest change of each link and member.
        apply(path, newest_of(frame).toArrow(), limit)
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            tidy(path)

    writer = stream.writeStream.queryName("recency").foreachBatch(batch)
    writer = writer.option("checkpointLocation", checkpoint or f"{path.rstrip('/')}/_checkpoint_recency")
    writer = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
    return writer.start()


def newest_of(frame: Any) -> Any:
    """Return the newest change per link, and the newest upload per member, of a batch."""
    return (
        frame.where("member IS NOT NULL AND at_ms IS NOT NULL")
        .selectExpr("CASE WHEN op = 'upload' THEN NULL ELSE key END AS key", "member", "at_ms", "op")
        .where("op = 'upload' OR (op IN ('add', 'remove') AND key IS NOT NULL)")
        .groupBy("key", "member")
        .agg(*_newest_columns())
    )


def _newest_columns() -> tuple[Any, Any]:
    from pyspark.sql import functions as f

    # 'remove' is greater than 'add': at equal times it wins.
    return f.max("at_ms").alias("at_ms"), f.expr("max_by(op, struct(at_ms, op))").alias("op")


def apply(path: str, changes: pa.Table, limit: int) -> None:
    """Merge one batch of `newest_of` into the tables. Raises TableError when another machine changes them meanwhile."""
    if len(changes):
        with write_lock(Store(path)):
            _apply(Store(path), changes, limit)


def _apply(store: Store, changes: pa.Table, limit: int) -> None:
    tables = {name: _table(store, name) for name in ("links", "uploads", "recency")}
    links, uploads = tables["links"], tables["uploads"]
    is_upload = pa.compute.equal(changes["op"], UPLOAD)
    new_links = changes.filter(pa.compute.invert(is_upload))
    new_links = pa.table(
        [new_links["key"], new_links["member"], new_links["at_ms"], pa.compute.equal(new_links["op"], REMOVE)],
        schema=LINKS,
    )
    new_uploads = changes.filter(is_upload).select(["member", "at_ms"]).cast(UPLOADS)
    if len(new_links):
        # At equal times a remove wins over an add, whichever comes first.
        _merge(
            links, new_links, "key member", "s.at_ms > t.at_ms OR (s.at_ms = t.at_ms AND s.removed AND NOT t.removed)"
        )
    if len(new_uploads):
        _merge(uploads, new_uploads, "member", "s.at_ms > t.at_ms")
    files = {name: paths_of(store.under(name), table) for name, table in tables.items()}
    _update_lists(files, tables["recency"], new_links, new_uploads, limit)


def tidy(path: str) -> None:
    """Merge the small files of the tables, and remove files that left the tables an hour ago."""
    with write_lock(Store(path)):
        for below in map(Store(path).under, SCHEMAS):
            if below.exists():
                table = below.table()
                table.optimize.compact()
                table.vacuum(VACUUM_HOURS, dry_run=False, enforce_retention_duration=False, full=True)


def _update_lists(
    files: dict[str, list[str]], recency: DeltaTable, new_links: pa.Table, new_uploads: pa.Table, limit: int
) -> None:
    with duckdb.connect() as db:
        for name, schema in SCHEMAS.items():
            _view(db, name, files[name], schema)
        db.register("new_links", new_links)
        db.register("new_uploads", new_uploads)
        # The changed links, as the source now has them.
        db.execute(
            """
            CREATE TEMP TABLE touched AS
            SELECT l.key, l.member,
                   CASE WHEN l.removed THEN NULL ELSE greatest(l.at_ms, coalesce(u.at_ms, 0)) END AS at_ms
            FROM links l LEFT JOIN uploads u USING (member)
            WHERE (l.key, l.member) IN (SELECT (key, member) FROM new_links)
               OR l.member IN (SELECT member FROM new_uploads)
            """
        )
        changes: dict[str, dict[str, int | None]] = {}
        for key, member, at_ms in db.execute("SELECT key, member, at_ms FROM touched").fetchall():
            changes.setdefault(key, {})[member] = at_ms
        lists = {
            key: RecentList(list(zip(at_ms, members, strict=True)), is_cut)
            for key, members, at_ms, is_cut in db.execute(
                "SELECT key, members, at_ms, is_cut FROM recency WHERE key IN (SELECT key FROM touched)"
            ).fetchall()
        }
        results: dict[str, RecentList] = {}
        short = []
        for key, moved in changes.items():
            result = changed(lists[key], moved, limit) if key in lists else None
            if result is None:
                short.append(key)
            else:
                results[key] = result
        for key, members in _all_members(db, short).items():
            results[key] = filled(members, limit)
    _merge(recency, _rows(results), "bucket key", "true")


def _all_members(db: Any, keys: list[str]) -> dict[str, list[tuple[int, str]]]:
    """Return all members of these keys, from the source."""
    found: dict[str, list[tuple[int, str]]] = {key: [] for key in keys}
    if keys:
        db.register("wanted", pa.table({"key": keys}))
        rows = db.execute(
            """
            SELECT l.key, l.member, greatest(l.at_ms, coalesce(u.at_ms, 0))
            FROM links l LEFT JOIN uploads u USING (member) WHERE NOT l.removed AND l.key IN (SELECT key FROM wanted)
            """
        ).fetchall()
        for key, member, at_ms in rows:
            found[key].append((at_ms, member))
    return found


def _rows(results: dict[str, RecentList]) -> pa.Table:
    keys = sorted(results)
    return pa.table(
        [
            [bucket_of(key) for key in keys],
            keys,
            [[member for _, member in results[key].members] for key in keys],
            [[at_ms for at_ms, _ in results[key].members] for key in keys],
            [results[key].is_cut for key in keys],
        ],
        schema=RECENCY,
    )


def bucket_of(key: str) -> int:
    """Return the bucket of a key's row."""
    return zlib.crc32(key.encode()) % BUCKETS


def latest(path: str, key: str, count: int) -> list[tuple[str, int]]:
    """Return the `count` most recent members of a key with their times in Unix ms, newest first. Needs no Spark.

    path    folder or URI of the tables
    key     the owner of the list
    count   the most members to return, from 0 on

    The list is empty for an unknown key, and when there are no tables under `path`. Raises OptionError for a negative
    count.

    Example: `latest("/data/recency", "user-7", 20)` returns `[("photo-9", 1770000000000), …]`.
    """
    if count < 0:
        raise OptionError(f"recency: count must be 0 or more, not {count}")
    store = Store(path).under("recency")
    if not store.exists():
        return []
    bucket = f"/bucket={bucket_of(key)}/"
    files = [file for file in paths_of(store, store.table()) if bucket in file]
    if not files:
        return []
    with duckdb.connect() as db:
        found = db.execute(f"SELECT members, at_ms FROM read_parquet($1, {PLAIN}) WHERE key = $2", [files, key])
        row = found.fetchone()
    return [] if row is None else list(zip(row[0][:count], row[1][:count], strict=True))


def _table(store: Store, name: str) -> DeltaTable:
    schema = SCHEMAS[name]
    below = store.under(name)
    if not below.exists():
        partition = ["bucket"] if name == "recency" else None
        DeltaTable.create(
            below.path, schema, mode="ignore", partition_by=partition, storage_options=below.options or None
        )
    return below.table()


def _merge(table: DeltaTable, rows: pa.Table, keys: str, newer: str) -> None:
    on = " AND ".join(f"s.{name} = t.{name}" for name in keys.split())
    merge = table.merge(rows, predicate=on, source_alias="s", target_alias="t")
    try:
        merge.when_matched_update_all(newer).when_not_matched_insert_all().execute()
    except CommitFailedError as error:
        raise TableError(
            f"another program changed the recency tables while a batch was merged ({str(error).splitlines()[0]}); only "
            "one pipeline may write them: stop the other one, and start this one again"
        ) from error
    table.update_incremental()


def _view(db: Any, name: str, files: list[str], schema: pa.Schema) -> None:
    if files:
        db.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet({_list(files)}, {PLAIN})")
    else:
        db.register(name, schema.empty_table())


def _list(words: Iterable[str]) -> str:
    return "[" + ", ".join("'" + word.replace("'", "''") + "'" for word in words) + "]"
