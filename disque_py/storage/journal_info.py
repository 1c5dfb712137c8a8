"""Journal info: the fields of INFO persistence, as docs/info.md lists them.

Names and meanings are those of the original where it has them (spec R8). Fields that mean nothing here, like the
buffer of a rewriting child process, keep the value of a healthy node.
"""

from __future__ import annotations

from disque_py.node.turn import Driver

Fields = list[tuple[str, str | int]]


def figures(driver: Driver, has_loaded: bool, load_ms: int, rewritten: tuple[int, str]) -> Fields:
    """Return all fields, in order.

    has_loaded   whether a journal was read
    load_ms      how long the last loading took
    rewritten    seconds and status of the last rewrite of a journal that is off now
    """
    broker = driver.broker
    journal = driver.journal
    compaction = driver.compaction
    loading = driver.loading
    fields: Fields = [("loading", int(broker.is_loading))]
    if journal is None or compaction is None:
        fields += [
            ("aof_enabled", 0),
            ("aof_state", "off"),
            ("aof_rewrite_in_progress", 0),
            ("aof_rewrite_scheduled", 0),
            ("aof_last_rewrite_time_sec", rewritten[0]),
            ("aof_current_rewrite_time_sec", -1),
            ("aof_last_bgrewrite_status", rewritten[1]),
            ("aof_last_write_status", "ok"),
        ]
    else:
        done, total = compaction.progress
        fields += [
            ("aof_enabled", 1),
            ("aof_state", "wait-rewrite" if compaction.is_first else "on"),
            ("aof_rewrite_in_progress", int(compaction.is_running)),
            ("aof_rewrite_scheduled", int(compaction.is_scheduled)),
            ("aof_last_rewrite_time_sec", compaction.last_seconds),
            ("aof_current_rewrite_time_sec", compaction.running_seconds),
            ("aof_last_bgrewrite_status", compaction.last_status),
            ("aof_last_write_status", "err" if journal.error else "ok"),
            ("aof_current_size", journal.size),
            ("aof_base_size", compaction.base_size),
            ("aof_pending_rewrite", int(compaction.is_scheduled)),
            ("aof_buffer_length", journal.unwritten_bytes),
            ("aof_rewrite_buffer_length", 0),
            ("aof_pending_bio_fsync", int(journal.is_syncing)),
            ("aof_delayed_fsync", journal.delayed_syncs),
            ("aof_fsyncs", journal.syncs),
            ("aof_unsynced_bytes", journal.position - journal.synced),
            ("aof_oldest_unsynced_ms", journal.unsynced_ms()),
            ("aof_unrecorded_bytes", journal.position - journal.written if journal.error else 0),
            ("aof_refusing", journal.level),
            ("aof_trouble", journal.refusal_reason),
            ("aof_on_reserve", int(journal.is_on_reserve)),
            ("aof_segments", len(journal.closed_segments()) + 1),
            ("aof_live_bytes", sum(broker.journal.live_bytes.values())),
            ("aof_rewrite_segments_done", done),
            ("aof_rewrite_segments_total", total),
        ]
    if loading is not None:
        seconds = max(broker.now_ms - loading.started_ms, 1) / 1000
        rate = loading.loaded_bytes / seconds
        left = loading.total_bytes - loading.loaded_bytes
        fields += [
            ("loading_start_time", (broker.wall_ms - (broker.now_ms - loading.started_ms)) // 1000),
            ("loading_total_bytes", loading.total_bytes),
            ("loading_loaded_bytes", loading.loaded_bytes),
            ("loading_loaded_perc", f"{100 * loading.loaded_bytes / max(loading.total_bytes, 1):.2f}"),
            ("loading_eta_seconds", int(left / rate) if rate else 0),
            ("loading_trouble", loading.trouble),
        ]
    if has_loaded:
        fields += [
            ("loading_last_time_ms", load_ms),
            ("total_at_most_once_lost_in_restart", broker.stats.once_lost_in_restart),
        ]
    return fields
