"""Several nodes with journals: hand-overs, leaving, joining and pauses across restarts."""

from __future__ import annotations

import pytest

from servers import until

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def ids_in(server, queue, count=100):
    return [job[1] for job in server.command("GETJOB", "NOHANG", "COUNT", count, "FROM", queue) or []]


def state_of(server, job_id):
    reply = server.command("SHOW", job_id)
    return None if reply is None else dict(zip(reply[::2], reply[1::2], strict=True))[b"state"]


@pytest.fixture
def pair(make_cluster):
    """Two nodes with journals."""
    return make_cluster(2, *ALWAYS)


@pytest.mark.parametrize("retry", [0, 300])
def test_a_job_that_was_handed_over_stays_with_its_new_node(pair, retry):
    """Both nodes die at the same time after B's client has taken a job of A. It is not delivered again and not lost."""
    a, b = pair.servers
    job_id = a.command("ADDJOB", "q", "body", 5000, "RETRY", retry, "REPLICATE", 1)
    assert b.command("GETJOB", "TIMEOUT", 5000, "FROM", "q")[0][1] == job_id
    for server in pair.servers:
        server.kill()
    for server in pair.servers:
        server.restart()
    pair.wait_whole()
    assert ids_in(a, "q") == ids_in(b, "q") == []
    if retry:
        assert b.command("ACKJOB", job_id) == 1
        until(lambda: state_of(a, job_id) is None and state_of(b, job_id) is None, 15)


def test_all_nodes_die_and_every_job_is_delivered_once(pair):
    """Both nodes have copies and journals. After the restart they agree which node queues each job."""
    a, b = pair.servers
    ids = {a.command("ADDJOB", "q", f"body {n}", 5000, "RETRY", 300, "REPLICATE", 2) for n in range(200)}
    for server in pair.servers:
        server.kill()
    for server in pair.servers:
        server.restart()
    pair.wait_whole()
    got = []

    def is_all_there():
        got.extend(ids_in(a, "q", 1000) + ids_in(b, "q", 1000))
        return len(set(got)) == len(ids)

    until(is_all_there, 20)
    assert sorted(got) == sorted(ids)


def test_pauses_set_with_bcast_survive_the_restart_of_all(pair):
    a, b = pair.servers
    a.command("PAUSE", "q", "in", "bcast")
    until(lambda: b.command("PAUSE", "q", "state") == b"in", 5)
    for server in pair.servers:
        server.kill()
    for server in pair.servers:
        server.restart()
    assert a.command("PAUSE", "q", "state") == b.command("PAUSE", "q", "state") == b"in"
    pair.wait_whole()
    b.command("PAUSE", "q", "none", "bcast")
    until(lambda: a.command("PAUSE", "q", "state") == b"none", 5)


def test_a_drained_node_has_no_jobs_after_a_restart(pair):
    """Its journal must not bring back jobs that it gave away."""
    a, b = pair.servers
    ids = {a.command("ADDJOB", "q", "body", 5000, "RETRY", 300, "REPLICATE", 1) for _ in range(100)}
    a.command("CLUSTER", "LEAVING", "yes")
    until(lambda: a.info("jobs")["registered_jobs"] == "0", 15)
    a.command("PAUSE", "other", "in")  # INFO waits for no record. The record of this PAUSE comes after all others.
    a.kill()
    a.restart()
    assert a.info("jobs")["registered_jobs"] == "0"
    assert set(ids_in(b, "q", 200)) == ids


def test_copies_that_came_from_others_are_journaled(pair):
    """The node that added the job is gone for good, and the other one was restarted meanwhile."""
    a, b = pair.servers
    job_id = a.command("ADDJOB", "q", "body", 5000, "RETRY", 2, "REPLICATE", 2)
    b.kill()
    a.kill()
    b.restart()
    assert state_of(b, job_id) == b"active"
    until(lambda: ids_in(b, "q") == [job_id], 15)


def test_an_ack_in_progress_continues_after_the_restart(make_cluster):
    """The restarted node tells the other holder, long before its RETRY."""
    cluster = make_cluster(3, *ALWAYS)
    a, b, c = cluster.servers
    job_id = a.command("ADDJOB", "q", "body", 5000, "RETRY", 300, "REPLICATE", 3)
    assert ids_in(a, "q") == [job_id]
    b.kill()
    c.kill()
    assert a.command("ACKJOB", job_id) == 1
    a.kill()
    for server in cluster.servers:
        server.restart()
    cluster.wait_whole()
    until(lambda: all(state_of(server, job_id) is None for server in cluster.servers), 15)
