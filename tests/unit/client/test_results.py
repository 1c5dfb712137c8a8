"""Replies as typed objects (formats: spec R5)."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from disque_py.client import results
from disque_py.client.results import Job, LockGrant


def test_a_job_is_queue_id_and_body():
    """Queue and id are text. The body stays bytes."""
    (job,) = results.jobs([[b"q", b"D-1", b"\xff"]])
    assert (job.queue, job.id, job.body, job.nacks) == ("q", "D-1", b"\xff", None)


def test_counters_are_read_by_name_and_what_follows_is_kept():
    """GETJOB entries may get more fields (spec R5)."""
    (job,) = results.jobs([[b"q", b"D-1", b"", b"nacks", 1, b"additional-deliveries", 2, b"news", [b"k", b"v"]]])
    assert (job.nacks, job.additional_deliveries, job.more) == (1, 2, {"news": ["k", "v"]})


def test_pairs_and_lease_are_read_if_they_were_asked_for():
    (plain,) = results.jobs([[b"q", b"D-1", b""]])
    (job,) = results.jobs([[b"q", b"D-1", b"", b"meta", [b"k", b"v"], b"lease-ms", 2000, b"attempt", 3]])
    assert (plain.meta, plain.lease_ms, plain.attempt) == (None, None, None)
    assert (job.meta, job.lease_ms, job.attempt, job.more) == ({"k": "v"}, 2000, 3, {})


@pytest.mark.parametrize("reply", [None, []])
def test_a_nil_reply_means_no_jobs(reply):
    """A time-out is not an error, so the list of jobs is empty."""
    assert results.jobs(reply) == []


def test_a_body_is_decoded_when_its_value_is_asked_for():
    """`decode` is an encoding, a function or None. An error is raised when the handler reads the value."""
    assert Job("q", "i", b"\xc3\xbc", decode="utf-8").value == "ü"
    assert Job("q", "i", b"[1]", decode=json.loads).value == [1]
    assert Job("q", "i", b"raw").value == b"raw"
    assert Job("q", "i", b"raw").text == "raw"
    with pytest.raises(ValueError, match="Expecting"):
        _ = Job("q", "i", b"{", decode=json.loads).value


@pytest.mark.parametrize(("ttl", "once"), [("05a0", True), ("05a1", False), ("fffe", True), ("ffff", False)])
def test_an_even_ttl_field_means_at_most_once(ttl, once):
    """Spec F4."""
    assert results.is_at_most_once("D-aaaaaaaa-" + "x" * 24 + "-" + ttl) is once


def test_hello_lists_nodes_with_numbers_as_numbers():
    """Port and priority are bulk strings on the wire. Pairs that follow are kept."""
    hello = results.hello([1, b"me", [b"me", b"", b"7711", b"1"], [b"o", b"10.0.0.2", b"7712", b"100", b"zone", b"z"]])
    assert (hello.version, hello.id) == (1, "me")
    other = hello.nodes[1]
    assert (other.host, other.port, other.priority, other.more) == ("10.0.0.2", 7712, 100, {"zone": "z"})


def test_cluster_nodes_are_lines_of_six_fields():
    """A node that doesn't know its own address has an empty one. Further fields are ignored."""
    me, other = results.cluster_nodes(
        b"aa :7711 myself,leaving 0 0 connected\nbb 10.0.0.2:7712 - 5 6 disconnected zone=z\n"
    )
    assert (me.host, me.port, me.flags, me.linked) == ("", 7711, {"myself", "leaving"}, True)
    assert (other.host, other.flags, other.ping_sent_ms, other.pong_received_ms, other.linked) == (
        "10.0.0.2", frozenset(), 5, 6, False,
    )  # fmt: skip


def test_qstat_is_read_by_name():
    """Unknown fields are kept. A missing queue is None."""
    stat = results.queue_stat([b"name", b"q", b"len", 3, b"import-from", [b"aa"], b"pause", b"in", b"new", 1])
    assert stat is not None
    assert (stat.name, stat.len, stat.import_from, stat.pause, stat.more) == ("q", 3, ["aa"], "in", {"new": 1})
    assert results.queue_stat(None) is None
    assert results.queue_stat([b"name", b"q", b"len", 3, b"rate-used", 2]).rate_used == 2


def test_queue_settings_are_read_by_name():
    """Times become spans. A setting without a value is None. Unknown fields are kept."""
    found = results.queue_settings(
        [b"lease", b"", b"delay", b"1500ms", b"ttl", b"60", b"replicate", b"2", b"maxlen", b"7",
         b"require-meta", b"a,b", b"index", b"t", b"paused", b"in", b"version", 3, b"behind", 1, b"colour", b"red"]
    )  # fmt: skip
    assert found is not None
    assert (found.lease, found.delay, found.ttl) == (None, timedelta(seconds=1.5), timedelta(minutes=1))
    assert (found.replicate, found.maxlen, found.require_meta, found.paused) == (2, 7, ["a", "b"], "in")
    assert found.index == ["t"]
    assert (found.version, found.behind, found.more) == (3, 1, {"colour": "red"})
    assert results.queue_settings([b"replicate", b"quorum"]).replicate == "quorum"
    assert results.queue_settings([b"ttl", b"9223372036854"]).ttl is not None
    assert results.queue_settings(None) is None


def test_qstat_of_all_nodes_tells_the_missing_ones():
    """The stat of a single node counts one node and no missing ones."""
    stat = results.queue_stat(
        [
            b"name",
            b"q",
            b"len",
            3,
            b"oldest-ms",
            70,
            b"invisible",
            1,
            b"running",
            2,
            b"nodes",
            2,
            b"nodes-missing",
            [b"aa"],
        ]
    )
    assert stat is not None
    assert (stat.oldest_ms, stat.invisible, stat.running, stat.nodes, stat.nodes_missing) == (70, 1, 2, 2, ["aa"])
    alone = results.queue_stat([b"name", b"q", b"len", 3])
    assert alone is not None
    assert (alone.oldest_ms, alone.nodes, alone.nodes_missing) == (None, 1, [])


def test_show_keeps_the_body_as_bytes():
    """Names may come in any order. An ack of an unknown job has neither queue nor body."""
    info = results.job_info([b"id", b"D-1", b"queue", b"q", b"state", b"active", b"retry", 3, b"body", b"\xff"])
    assert info is not None
    assert (info.id, info.queue, info.state, info.retry, info.body) == ("D-1", "q", "active", 3, b"\xff")
    dummy = results.job_info([b"id", b"D-2", b"queue", None, b"state", b"acked", b"body", None])
    assert dummy is not None
    assert (dummy.queue, dummy.body) == (None, None)
    assert results.job_info(None) is None


def test_show_tells_progress_result_batch_and_topic():
    """Spec RW4, BT6, TP8."""
    pairs = [b"progress", 40, b"progress-text", b"page 4", b"result", b"\xff", b"batch", b"b", b"topic", None]
    info = results.job_info([b"id", b"D-1", b"state", b"active", *pairs, b"key-window-ms", 9, b"later", b"x"])
    assert (info.progress, info.progress_text, info.result) == (40, "page 4", b"\xff")
    assert (info.batch, info.topic, info.key_window_ms, info.more) == ("b", None, 9, {"later": "x"})


def test_info_turns_numbers_into_numbers_and_ids_stay_text():
    """A hexadecimal id stays text even if it has only digits. A version stays text too."""
    info = results.info(
        b"# Server\r\ndisque_version:1.0-rc1\r\nrun_id:1234\r\nhz:10\r\nratio:1.50\r\nx:-1\r\nempty:\r\n"
    )
    assert info == {"disque_version": "1.0-rc1", "run_id": "1234", "hz": 10, "ratio": 1.5, "x": -1, "empty": ""}


def test_info_keeps_names_of_zones_as_text():
    """A zone may be named `1` or `1.10`."""
    info = results.info(b"cluster_zone:1.10\r\ncluster_datacenter:2\r\ndisque_version:1.0\r\n")
    assert info == {"cluster_zone": "1.10", "cluster_datacenter": "2", "disque_version": "1.0"}


def test_config_get_is_a_dictionary():
    """Names and values alternate in the reply."""
    assert results.pairs([b"port", b"7711", b"bind", b""]) == {"port": "7711", "bind": ""}


def test_depths_are_a_dict_with_jobs_without_the_name_under_none():
    assert results.depths([b"a", 12, b"b", 3, None, 1]) == {b"a": 12, b"b": 3, None: 1}


def test_a_task_is_read_by_name():
    pairs = [b"task", b"t1", b"jobs", 3, b"failed", 1, b"nodes", 2, b"nodes-missing", [b"n"]]
    task = results.ended_task(pairs, "qpurge", "q")
    assert (task.id, task.command, task.queue, task.state) == ("t1", "qpurge", "q", None)
    assert (task.jobs, task.failed, task.nodes, task.nodes_missing) == (3, 1, 2, ["n"])
    shown = [*pairs, b"command", b"qmove", b"queue", b"q", b"state", b"done", b"started", 5, b"later", 7]
    [listed] = results.tasks([shown])
    assert (listed.command, listed.state, listed.started, listed.more) == ("qmove", "done", 5, {"later": 7})
    assert results.task(shown) == listed
    assert results.task(None) is None
    assert results.begun_task(b"t2", "qmove", "q").state == "running"


def test_a_grant_of_a_lock_has_no_limit_of_attempts_or_says_how_many_are_left():
    """On the wire, -1 means no limit, and nil means that another owner has the lock."""
    assert results.lock_grant([9, 1, -1]) == LockGrant(9, 1, None)
    assert results.lock_grant([9, 3, 0]) == LockGrant(9, 3, 0)
    assert results.lock_grant(None) is None


def test_a_free_lock_has_no_owner_and_may_be_done():
    """Unknown pairs are kept."""
    pairs = [b"owner", None, b"fence", 9, b"attempt", 0, b"ms-left", 0, b"done-ms-left", 500, b"new", b"x"]
    lock = results.lock_info(pairs)
    assert lock is not None
    assert (lock.owner, lock.fence, lock.done_ms_left, lock.more) == (None, 9, 500, {"new": "x"})
    assert results.lock_info(None) is None


def test_voters_are_read_by_name():
    pairs = [b"epoch", 2, b"claim-lease-max", 60, b"voters", [b"a", b"b"], b"state", b"ready", b"mute", [b"b"]]
    found = results.voters([*pairs, b"reachable", 2, b"recovered", [b"a"]])
    assert (found.epoch, found.lease_max, found.voters, found.state) == (2, 60, ["a", "b"], "ready")
    assert (found.mute, found.reachable_count, found.recovered) == (["b"], 2, ["a"])
    assert results.voters([*pairs, b"reachable", 2]).recovered == []
