"""The journal under trouble, one operation of the disk after the other: nothing that was answered is lost.

A fixed day (`STORY`) uses everything the journal has: segments begin and end, a rewrite drops some, the policy changes,
everything is flushed. In each test one operation of the disk fails, or the process dies in it.
"""

from __future__ import annotations

import errno
import os
from random import Random

import hiredis
import pytest

from disque_py.simulator.world.disk_errors import CrashError
from disque_py.simulator.world.folder import SimFolder
from journaled import JournaledNode, is_once

CHANGES = ("write", "sync", "create", "replace", "remove", "rename", "allocate", "truncate")

STORY = (
    ("add", 4), ("settle",), ("get",), ("ack", 0), ("settle",), ("add", 6), ("once",), ("settle",), ("get",),
    ("CONFIG", "SET", "appendfsync", "everysec"), ("add", 3), ("settle",), ("ack", 2), ("PAUSE", "q", "out"),
    ("CONFIG", "SET", "appendfsync", "always"), ("settle",), ("ack", 3), ("ack", 4), ("settle",), ("BGREWRITEAOF",),
    ("settle",), ("PAUSE", "q", "none"), ("add", 5), ("delete", 6), ("pass",), ("BGREWRITEAOF",), ("settle",),
    ("get",), ("NACK",), ("settle",), ("DEBUG", "FLUSHALL"), ("once",), ("add", 2), ("settle",), ("ack", -1), ("pass",),
)  # fmt: skip


class Story:
    """The day, on a node whose clients' ids are kept as they hear them."""

    def __init__(self, node: JournaledNode) -> None:
        self.node = node
        self.ids: list[bytes] = []
        node.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)

    def play(self) -> None:
        """All of it."""
        for step in STORY:
            self.do(*step)
            self.node.recount()

    def do(self, what: str, *details: str | int) -> None:
        """One step; replies are noted whenever they come."""
        node = self.node
        if what == "settle":
            node.settle()
        elif what == "pass":
            node.settle(3_000)
        elif what == "add":
            for number in range(int(details[0])):
                node.ask("ADDJOB", "q", b"%d" % number * 90, 0, "RETRY", 5)
        elif what == "once":
            node.ask("ADDJOB", "q", "once", 0, "RETRY", 0)
        elif what == "get":
            node.ask("GETJOB", "NOHANG", "COUNT", 3, "FROM", "q", client=1)
        elif what in ("ack", "delete", "NACK"):
            command = {"ack": "ACKJOB", "delete": "FASTACK"}.get(what, what)
            at = int(details[0]) if details else 1
            if -len(self.ids) <= at < len(self.ids):
                node.ask(command, self.ids[at])
        else:
            node.ask(what, *details)
        for reply in [*node.taken(0), *node.taken(1)]:
            if isinstance(reply, bytes) and reply.startswith(b"D-"):
                self.ids.append(reply)


def start(seed: int) -> JournaledNode:
    node = JournaledNode(SimFolder(Random(seed)), segment_bytes=700)
    node.settle()
    return node


def operations() -> int:
    """How many operations of the disk a day without trouble has."""
    node = start(1)
    node.folder.trace = []
    Story(node).play()
    return sum(each[0] in CHANGES for each in node.folder.trace)


def places(count: int) -> range:
    """Which operations of so many: all of them with JOURNAL_EVERY=1 in the environment, else some."""
    every = int(os.environ.get("JOURNAL_EVERY", "0")) or 1 + count // 12
    return range(1 + int(os.environ.get("JOURNAL_FROM", "0")), count + 1, every)


COUNT = operations()


def test_without_faults_a_reader_finds_what_memory_has():
    """Many operations, and at its end memory is what a reader finds."""
    node = start(1)
    Story(node).play()
    assert COUNT > 60
    assert node.check_folder(at_least=node.promised) == node.journal_service.journal.position
    assert node.log == [
        "Journal loaded: 0 jobs in 0.0 seconds (0 queued, 0 waiting for their time, 0 acknowledged, 0 expired)"
    ]


def recovers(node: JournaledNode) -> None:
    """The disk is well again, and so, by itself, is the node: all is recorded, and survives a power cut."""
    node.folder.heal()
    node.settle(8_000)
    journal = node.journal_service.journal
    assert (journal.level, journal.error, node.broker.journal.disk_level) == (0, "", 0)
    assert not any(port.asked for port in node.clients if not port.client.waiting)
    node.settle(2_000)
    node.recount()
    node.folder.cut_power()
    assert node.check_folder(at_least=node.promised) == journal.position
    again = node.restart()
    assert again.is_ready
    again.recount()


@pytest.mark.parametrize("is_partial", [False, True], ids=["nothing done", "half done"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_every_operation_may_fail_once(number, is_partial):
    for nth in places(COUNT):
        node = start(nth)
        node.folder.fail(" ".join(CHANGES), number, nth=nth, is_partial=is_partial)
        Story(node).play()
        recovers(node)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_every_operation_may_fail_and_all_after_it_for_a_while(number):
    """Until the disk works again, commands that need a record are refused or wait."""
    for nth in places(COUNT):
        node = start(nth)
        node.folder.fail(" ".join(CHANGES), number, nth=nth, times=25, is_partial=nth % 4 == 1)
        Story(node).play()
        recovers(node)


@pytest.mark.parametrize("end", ["killed", "without power"])
def test_the_process_may_die_in_every_operation(end):
    """The restored state is one that a client could have seen, and no confirmed change is missing."""
    for steps in places(2 * COUNT):
        node = start(steps)
        node.folder.crash_in(steps)
        try:
            Story(node).play()
        except CrashError:
            pass
        if end == "killed":
            node.folder.kill()
        else:
            node.folder.cut_power()
        if end == "killed" or node.broker.settings.appendfsync == "always":
            node.check_folder(at_least=node.promised if end == "killed" else 0)
        again = node.restart(appendfsync="always")
        assert again.is_ready
        again.recount()
        assert again.folder.copy(Random(0)).names() == again.folder.names()


def test_under_always_nothing_is_answered_before_it_is_on_disk():
    """Power may fail after any step of the disk."""
    for seed in range(12):
        rng = Random(seed)
        node = start(seed)
        story = Story(node)
        for step in STORY:
            if step[0] == "CONFIG":
                continue
            if step[0] == "settle":
                while node.work(rng.choice(sorted({lane for lane, _, _ in node.disk.waiting}) or [0])):
                    copy = node.folder.copy(rng)
                    copy.cut_power()
                    node.check_folder(copy, at_least=node.promised)
            story.do(*step)


def test_while_the_disk_fails_commands_that_need_a_record_are_refused_and_retried_jobs_are_delivered():
    """Spec P5: GETJOB of jobs with RETRY goes on. Commands that need a record get MISCONF."""
    node = start(1)
    for retry in (0, 5):
        node.ask("ADDJOB", "q", "x", 0, "RETRY", retry)
    node.settle()
    node.taken()
    node.folder.fail("write create sync rename", errno.EIO, times=-1)
    node.ask("ADDJOB", "q", "late", 0, "RETRY", 5)
    node.settle(10)
    assert node.taken() == []  # The command came before the failure was known, so its reply waits for the record.
    (entries,) = node.ask("GETJOB", "NOHANG", "COUNT", 5, "FROM", "q", client=1)
    got = entries[0]
    assert [entry[2] for entry in entries] == [b"x", b"late"]
    assert not any(map(is_once, (entry[1] for entry in entries)))
    refused = node.ask("ADDJOB", "q", "no", 0, client=1) + node.ask("ACKJOB", got[1], client=1)
    assert len(refused) == 2
    assert all(isinstance(each, hiredis.ReplyError) and str(each).startswith("MISCONF") for each in refused)
    node.folder.heal()
    node.settle(3_000)
    assert len(node.taken()) == 1
    node.check_folder(at_least=node.promised)
