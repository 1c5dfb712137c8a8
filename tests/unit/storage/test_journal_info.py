"""storage/journal_info.py: INFO persistence."""

from __future__ import annotations

import errno

from disque_py.storage.journal_info import figures
from journaled import JournaledNode


def shown(node: JournaledNode) -> dict[str, str | int]:
    return dict(figures(node.driver, True, 7, (3, "err")))


def test_without_a_journal_the_original_fields_are_there():
    node = JournaledNode(appendonly=False)
    found = dict(figures(node.driver, False, 0, (3, "err")))
    assert (found["loading"], found["aof_enabled"], found["aof_state"], found["aof_last_write_status"]) == (
        0,
        0,
        "off",
        "ok",
    )
    assert (found["aof_last_rewrite_time_sec"], found["aof_last_bgrewrite_status"]) == (3, "err")
    assert "loading_last_time_ms" not in found


def test_with_a_journal_the_fields_tell_the_pending_work():
    node = JournaledNode()
    node.settle()
    node.ask("ADDJOB", "q", "x", 0)
    found = shown(node)
    assert (found["aof_enabled"], found["aof_state"], found["loading_last_time_ms"]) == (1, "on", 7)
    assert found["aof_unsynced_bytes"] > 0
    node.settle()
    assert shown(node)["aof_unsynced_bytes"] == 0


def test_a_problem_of_the_disk_is_named():
    node = JournaledNode(appendfsync="everysec")
    node.folder.has_windows = False
    node.settle()
    node.folder.fail("write create", errno.ENOSPC, times=-1)
    node.ask("ADDJOB", "q", "x", 0)
    node.settle(10)
    found = shown(node)
    assert (found["aof_last_write_status"], found["aof_refusing"]) == ("err", 1)
    assert found["aof_trouble"] == "No space left on device"
    assert found["aof_unrecorded_bytes"] > 0


def test_the_progress_of_loading_is_shown():
    node = JournaledNode()
    found = shown(node)
    assert (found["loading"], found["loading_trouble"], found["loading_loaded_perc"]) == (1, "", "0.00")
