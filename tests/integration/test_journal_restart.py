"""Nodes with a journal that are stopped, killed and started again: the jobs that return, and their state."""

from __future__ import annotations

import os
import signal
import time

import hiredis
import pytest

from persistence.records import HEADER_ALIGN
from servers import Connection, Server, until

JOURNAL = ("--appendonly", "yes")
ALWAYS = (*JOURNAL, "--appendfsync", "always")
FOLDER = "disque.aof.d"
# Enough jobs to make the loading visible.
JOBS_TO_LOAD = 30_000


def ids_in(server: Server, queue: str, count: int = 100) -> list[bytes]:
    """Return the ids of a queue's current jobs, in order."""
    return [job[1] for job in server.command("GETJOB", "NOHANG", "COUNT", count, "FROM", queue) or []]


def show(server: Server, job_id: bytes) -> dict[bytes, object] | None:
    """Return the reply to SHOW as a dict."""
    reply = server.command("SHOW", job_id)
    return None if reply is None else dict(zip(reply[::2], reply[1::2], strict=True))


def state_of(server: Server, job_id: bytes) -> bytes | None:
    """Return the state in SHOW; None if there is no such job."""
    shown = show(server, job_id)
    return None if shown is None else shown[b"state"]


def segments(server: Server) -> list[str]:
    """Return the journal's files, oldest first."""
    return sorted(path.name for path in (server.folder / FOLDER).glob("[0-9]*.seg"))


def refusal(server: Server) -> str:
    """Return the error text of a node that doesn't start."""
    before = len(server.output())
    server.launch()
    assert server.wait_ended() == 1
    return server.output()[before:]


# -- crash and stop --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_killed_process_loses_nothing_that_it_acknowledged(make_server, policy):
    """With any policy, records reach the system before the reply: bodies, acks, pauses and counters."""
    server = make_server(*JOURNAL, "--appendfsync", policy).start()
    waiting, acked, nacked = (server.command("ADDJOB", "q", word, 0, "RETRY", 1) for word in ("w", "a", "n"))
    assert ids_in(server, "q") == [waiting, acked, nacked]
    server.command("ACKJOB", acked)
    server.command("NACK", nacked)
    server.command("PAUSE", "other", "in")
    server.kill()
    server.restart()
    assert state_of(server, acked) is None
    assert show(server, nacked)[b"nacks"] == 1
    assert server.command("PAUSE", "other", "state") == b"in"
    until(lambda: server.command("QLEN", "q") == 2, 5)
    assert ids_in(server, "q") == [waiting, nacked]


@pytest.mark.parametrize("how", ["kill", "stop", "SHUTDOWN"])
def test_queued_jobs_return_at_once_when_their_state_is_certain(make_server, how):
    """This needs `always`, or a clean stop. Jobs that no other node can have then need no RETRY first, even RETRY 0."""
    server = make_server(*(ALWAYS if how == "kill" else JOURNAL)).start()
    ids = [server.command("ADDJOB", "q", f"body {n}", 0, "RETRY", 0 if n % 2 else 300) for n in range(10)]
    if how == "SHUTDOWN":
        with pytest.raises(EOFError):
            server.command("SHUTDOWN")
        assert server.wait_ended() == 0
    else:
        getattr(server, how)()
    server.restart()
    assert ids_in(server, "q") == ids
    server.kill()


def test_without_always_at_most_once_jobs_are_visible_but_not_delivered_after_a_kill(make_server):
    """The node can't know whether they were delivered, not even after a later clean stop."""
    server = make_server(*JOURNAL).start()
    job_id = server.command("ADDJOB", "q", "body", 0, "RETRY", 0)
    server.kill()
    server.restart()
    assert ids_in(server, "q") == []
    assert state_of(server, job_id) == b"active"
    assert server.info("persistence")["total_at_most_once_lost_in_restart"] == "1"
    assert "at-most-once jobs may have been delivered" in server.output()
    server.restart()
    assert ids_in(server, "q") == []


def test_a_delivered_at_most_once_job_never_comes_again(make_server):
    """The node may die or stop any number of times afterwards."""
    server = make_server(*ALWAYS).start()
    job_id = server.command("ADDJOB", "q", "body", 0, "RETRY", 0)
    assert ids_in(server, "q") == [job_id]
    for stop in (server.kill, server.stop, server.kill):
        stop()
        server.restart()
        assert ids_in(server, "q") == []


def test_delay_and_retry_continue_after_a_restart(make_server):
    """They don't begin again (spec Q22): half of the time had passed before the restart."""
    server = make_server(*ALWAYS).start()
    delayed = server.command("ADDJOB", "later", "body", 0, "DELAY", 9, "RETRY", 100)
    leased = server.command("ADDJOB", "q", "body", 0, "RETRY", 9)
    assert ids_in(server, "q") == [leased]
    begun = time.monotonic()
    time.sleep(1.5)
    server.kill()
    server.restart()
    for job_id in (delayed, leased):
        left_ms = show(server, job_id)[b"next-requeue-within"]
        assert left_ms <= 9050 - (time.monotonic() - begun) * 1000 + 200
        assert left_ms > 6300 - (time.monotonic() - begun) * 1000
    until(lambda: ids_in(server, "later") == [delayed], 15)
    until(lambda: ids_in(server, "q") == [leased], 15)


def test_a_ttl_runs_while_the_node_is_down(make_server):
    server = make_server(*ALWAYS).start()
    job_id = server.command("ADDJOB", "q", "body", 0, "TTL", 2, "RETRY", 1)
    server.kill()
    time.sleep(2.1)
    server.restart()
    assert server.command("SHOW", job_id) is None
    assert "1 expired" in server.output()


def test_sigterm_under_load_loses_nothing_acknowledged(make_server):
    """The journal has every job with a reply. Jobs without a reply may be in it or not."""
    server = make_server(*JOURNAL).start()
    ids = []
    with server.connect() as client:
        client.send_raw(hiredis.pack_command(("ADDJOB", "q", "x" * 200, 0, "RETRY", 300)) * 20_000)
        ids.extend(client.read() for _ in range(3000))
        os.kill(server.pid, signal.SIGTERM)
        try:
            while True:
                ids.append(client.read())
        except (OSError, EOFError):
            pass
    assert server.wait_ended() == 0
    server.restart()
    assert int(server.info("jobs")["queued_jobs"]) >= len(ids)
    assert all(state_of(server, job_id) == b"queued" for job_id in ids[-50:])


# -- reading the journal ---------------------------------------------------------------------------


def fill(server: Server, count: int, body: int = 100, queue: str = "q") -> None:
    """Add `count` jobs with RETRY."""
    request = hiredis.pack_command(("ADDJOB", queue, "x" * body, 0, "RETRY", 300)) * 500
    with server.connect() as client:
        for _ in range(count // 500):
            client.send_raw(request)
            for _ in range(500):
                assert isinstance(client.read(), bytes)


def launch_and_connect(server: Server) -> Connection:
    """Start a node and return a connection to it. The node may be reading its journal."""
    server.launch()
    found: list[Connection] = []

    def is_there() -> bool:
        try:
            found.append(server.connect(30.0))
        except OSError:
            return False
        return True

    until(is_there, 20)
    return found[0]


def test_early_requests_wait_for_the_journal(make_server):
    """A script that starts a node and uses it sees no -LOADING, and its commands run in order."""
    server = make_server(*JOURNAL, "--loading-wait", 60).start()
    fill(server, JOBS_TO_LOAD)
    server.kill()
    with launch_and_connect(server) as client, server.connect() as other:
        for words in (("ADDJOB", "new", "body", 0), ("QLEN", "new"), ("QLEN", "q")):
            client.send(*words)
        other.send("INFO", "persistence")
        assert b"loading:1" in other.read()
        replies = [client.read() for _ in range(3)]
    assert replies[0].startswith(b"D-")
    assert replies[1:] == [1, 0]
    assert server.info("jobs")["registered_jobs"] == str(JOBS_TO_LOAD + 1)


def test_shutdown_works_while_requests_wait_for_the_journal(make_server):
    server = make_server(*JOURNAL, "--loading-wait", 60).start()
    fill(server, JOBS_TO_LOAD)
    server.kill()
    with launch_and_connect(server) as client, server.connect() as other:
        client.send("QLEN", "q")
        other.send("SHUTDOWN")
        assert server.wait_ended() == 0


def test_a_loading_node_says_so_and_answers_commands_that_need_no_jobs(make_server):
    """Commands about jobs, and PING, get LOADING. INFO shows the progress. After that all jobs are there."""
    server = make_server(*JOURNAL, "--loading-wait", 0).start()
    fill(server, JOBS_TO_LOAD)
    server.kill()
    server.launch()
    replies, infos = set(), []
    while server.is_running:
        try:
            with server.connect() as client:
                while True:
                    client.send("QLEN", "q")
                    reply = client.read()
                    replies.add(str(reply))
                    if isinstance(reply, int):
                        break
                    client.send("INFO", "persistence")
                    if b"loading_total_bytes" in (info := client.read()):
                        infos.append(info)
                break
        except (OSError, EOFError):
            time.sleep(0.01)
    assert "LOADING Disque is loading the dataset in memory" in replies
    assert infos
    assert all(b"loading:1" in info and b"loading_loaded_perc:" in info for info in infos[:1])
    assert server.info("persistence")["loading"] == "0"
    assert server.info("jobs")["registered_jobs"] == str(JOBS_TO_LOAD)


def test_sigterm_while_it_loads_ends_the_node_and_changes_nothing(make_server):
    """It has served no client, so its log does not say that it was ready."""
    server = make_server(*JOURNAL).start()
    fill(server, JOBS_TO_LOAD)
    server.stop()
    before = len(server.output())
    server.launch()
    until(lambda: is_up(server))
    assert server.stop() == 0
    said = server.output()[before:]
    assert ("ready to accept" in said) == ("Journal loaded" in said)
    server.restart()
    assert server.info("jobs")["registered_jobs"] == str(JOBS_TO_LOAD)


def is_up(server: Server) -> bool:
    """Return whether the node answers, perhaps with LOADING."""
    try:
        with server.connect() as client:
            client.send("PING")
            return bool(client.read())
    except (OSError, EOFError):
        return False


def tear(server: Server) -> int:
    """Cut the last bytes off the journal, and the zeros behind them. Return its new size."""
    path = server.folder / FOLDER / segments(server)[-1]
    size = len(path.read_bytes().rstrip(b"\0")) - 7
    os.truncate(path, size)
    return size


def test_a_torn_tail_is_cut_with_a_warning_or_refused_as_the_directive_says(make_server):
    server = make_server(*ALWAYS).start()
    whole, torn = (server.command("ADDJOB", "q", word, 0, "RETRY", 1) for word in ("whole", "torn"))
    server.kill()
    size = tear(server)
    server.options += ["--aof-load-truncated", "no"]
    said = refusal(server)
    assert "aof-load-truncated yes" in said
    assert "disque-check-journal repair" in said
    assert (server.folder / FOLDER / segments(server)[-1]).stat().st_size == size
    server.options[-1] = "yes"
    server.restart()
    assert "cut off, since the machine or the process died" in server.output()
    assert state_of(server, whole) is not None
    assert state_of(server, torn) is None


def test_a_flipped_bit_in_a_closed_file_is_refused_with_its_place(make_server):
    """The node guesses nothing and changes nothing. After a repair it starts again."""
    server = make_server(*ALWAYS).start()
    server.command("ADDJOB", "q", "body", 0)
    server.restart()  # A restart closes the file, and makes the next one soon.
    until(lambda: len(segments(server)) > 1)
    server.kill()
    name = segments(server)[0]
    path = server.folder / FOLDER / name
    data = bytearray(path.read_bytes())
    data[HEADER_ALIGN + 60] ^= 4
    path.write_bytes(data)
    said = refusal(server)
    assert f"{name}: damaged at byte {HEADER_ALIGN}" in said
    assert "disque-check-journal verify" in said
    assert f"the journal {server.folder / FOLDER}: " in said
    assert path.read_bytes() == data
    data[HEADER_ALIGN + 60] ^= 4
    path.write_bytes(data)
    assert server.restart().command("QLEN", "q") == 1


def test_a_journal_of_a_newer_version_is_refused(make_server):
    server = make_server(*ALWAYS).start()
    server.stop()
    path = server.folder / FOLDER / segments(server)[-1]
    data = bytearray(path.read_bytes())
    data[8] = 99
    path.write_bytes(data)
    assert "written in format 99" in refusal(server)


def test_a_second_node_on_one_journal_does_not_start(make_server):
    """The error names the process that has it."""
    first = make_server(*JOURNAL).start()
    second = make_server(*JOURNAL, "--dir", first.folder, "--cluster-config-file", "second.conf")
    said = refusal(second)
    assert f"in use by process {first.pid}" in said
    assert first.command("PING") == b"PONG"


def test_a_journal_of_the_original_is_not_ignored_silently(make_server):
    """Starting empty beside the original's file would look like losing everything."""
    server = make_server(*JOURNAL)
    (server.folder / "disque.aof").write_bytes(b"*2\r\n$6\r\nDELJOB\r\n$40\r\n" + b"D-" + b"0" * 38 + b"\r\n")
    said = refusal(server)
    assert "disque-check-journal import" in said
    assert not (server.folder / FOLDER).exists()


# -- several nodes ---------------------------------------------------------------------------------


def test_an_ack_is_not_forgotten_by_a_restart(make_cluster):
    """One holder is down when the job is acknowledged. Then the other one restarts, and the job stays acknowledged."""
    cluster = make_cluster(2, *ALWAYS)
    a, b = cluster.servers
    job_id = a.command("ADDJOB", "q", "body", 5000, "REPLICATE", 2, "RETRY", 1)
    assert ids_in(a, "q") == [job_id]
    b.kill()
    a.command("ACKJOB", job_id)
    a.kill()
    a.restart()
    assert state_of(a, job_id) == b"acked"
    b.restart()
    cluster.wait_whole()
    until(lambda: state_of(a, job_id) is None and state_of(b, job_id) is None, 15)
    assert ids_in(a, "q") == ids_in(b, "q") == []
    assert int(b.info("jobs")["total_jobs_requeued"]) == 0


def test_a_lost_nodes_file_costs_no_job(make_server):
    """The node has a new id. Jobs that only this node had still belong to it (spec Q21)."""
    server = make_server(*ALWAYS).start()
    old_id = server.node_id
    job_id = server.command("ADDJOB", "q", "body", 0, "RETRY", 300)
    server.stop()
    (server.folder / "nodes.conf").unlink()
    server.restart()
    assert server.node_id != old_id
    assert show(server, job_id)[b"nodes-delivered"] == [server.node_id.encode()]
    assert ids_in(server, "q") == [job_id]
    server.command("ACKJOB", job_id)
    assert state_of(server, job_id) is None
