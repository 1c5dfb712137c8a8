"""maxmemory-spill with real processes, threads and files."""

from __future__ import annotations

import os
import time

import hiredis
import pytest

from servers import Cluster, Server, until

COUNT = 6_000
BODY = "x" * 4000
OPTIONS = ("--maxmemory", "12mb", "--maxmemory-spill", "yes")


def add(server, count, first=0):
    """Add jobs with numbered bodies, in order. After -OOM (the producer is faster than the disk), try again."""
    with server.connect(60) as connection:
        for number in range(first, first + count):
            words = ("ADDJOB", "q", f"{number:06}{BODY}", 1000, "REPLICATE", 1, "RETRY", 600)
            for _ in range(1_000):
                try:
                    connection.command(*words)
                    break
                except hiredis.ReplyError as refused:
                    if not str(refused).startswith("OOM"):
                        raise
                    time.sleep(0.01)


def take(server, count):
    """Fetch and acknowledge jobs, and return their numbers in order."""
    found = []
    with server.connect(60) as connection:
        while len(found) < count:
            jobs = connection.command("GETJOB", "TIMEOUT", 10_000, "COUNT", 100, "FROM", "q")
            if not jobs:
                break
            connection.command("ACKJOB", *[job[1] for job in jobs])
            for _, _, body in jobs:
                assert body[6:] == BODY.encode()
                found.append(int(body[:6]))
    return found


def spill_folder(server):
    return server.folder / "disque.aof.spill"


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "node", None, OPTIONS) as server:
        yield server


def test_jobs_of_twice_the_memory_are_accepted_and_delivered(server):
    """The bodies are 24 MB, the limit is 12 MB. No job is refused, all come in order, and the files are removed."""
    add(server, COUNT)
    memory = server.info("memory")
    assert int(memory["used_memory"]) < 12 << 20
    assert int(memory["spilled_jobs"]) > COUNT // 2
    assert take(server, COUNT) == list(range(COUNT))
    memory = server.info("memory")
    assert (memory["spilled_jobs"], memory["total_bodies_lost"]) == ("0", "0")
    until(lambda: server.info("memory")["spill_file_bytes"] == "0")
    assert server.stop() == 0
    assert os.listdir(spill_folder(server)) == ["lock"]


def test_spilled_jobs_survive_a_kill_with_a_journal(tmp_path):
    """Spilled bodies are void after the restart. The journal has all jobs, and loads into little memory."""
    with Server(tmp_path / "node", None, (*OPTIONS, "--appendonly", "yes", "--appendfsync", "no")) as server:
        add(server, COUNT)
        server.kill()
        assert len(os.listdir(spill_folder(server))) > 1
        server.restart()
        assert int(server.info("memory")["used_memory"]) < 12 << 20
        assert server.info("jobs")["registered_jobs"] == str(COUNT)
        with server.connect(60) as connection:
            _, ids = connection.command("JSCAN", 0, "COUNT", 10 * COUNT, "QUEUE", "q")
            connection.command("ENQUEUE", *ids)
        assert take(server, COUNT) == list(range(COUNT))


def test_truncated_spill_files_cost_only_their_own_bodies(server):
    """The node logs it and goes on."""
    add(server, 3_000)
    out = int(server.info("memory")["spilled_jobs"])
    for path in spill_folder(server).glob("*.spill"):
        os.truncate(path, 0)
    found = take(server, 3_000 - out)
    assert found == sorted(found)
    with server.connect() as connection:
        connection.command("GETJOB", "TIMEOUT", 500, "FROM", "q")
    assert int(server.info("memory")["total_bodies_lost"]) > 0
    assert "can't be read" in server.output()


def test_with_a_journal_truncated_spill_files_cost_nothing(tmp_path):
    """The node reads the bodies from the journal, in order."""
    with Server(tmp_path / "node", None, (*OPTIONS, "--appendonly", "yes", "--appendfsync", "no")) as server:
        add(server, 3_000)
        for path in spill_folder(server).glob("*.spill"):
            os.truncate(path, 0)
        assert take(server, 3_000) == list(range(3_000))
        memory = server.info("memory")
        assert int(memory["total_bodies_rescued"]) > 0
        assert memory["total_bodies_lost"] == "0"
        assert server.output().count("from the journal") == 1


def test_spilling_can_be_switched_on_while_the_node_runs(tmp_path):
    with Server(tmp_path / "node", None, ("--maxmemory", "12mb")) as server:
        add(server, 1_800)
        assert not spill_folder(server).exists()
        server.command("CONFIG", "SET", "maxmemory-spill", "yes")
        until(lambda: int(server.info("memory")["spilled_jobs"]) > 100)
        add(server, 3_000, 1_800)
        assert take(server, 4_800) == list(range(4_800))


def test_a_leaving_node_reads_the_bodies_that_it_hands_over(tmp_path):
    """This includes the bodies of copies."""
    with Cluster(tmp_path, 2, OPTIONS) as cluster:
        a, b = cluster.servers
        add(a, 2_400)
        until(lambda: int(a.info("memory")["spilled_jobs"]) > 300, 10)
        a.command("CLUSTER", "LEAVING", "yes")
        until(lambda: a.info("jobs")["registered_jobs"] == "0", 60)
        assert sorted(take(b, 2_400)) == list(range(2_400))
