"""The journal of a running node: switched on and off, rewritten, read back, and the controlled restart."""

from __future__ import annotations

import socket
import time

import hiredis
import pytest

from servers import Server, until

JOURNAL = ("--appendonly", "yes")
ALWAYS = (*JOURNAL, "--appendfsync", "always")
FOLDER = "disque.aof.d"


def fill(server: Server, count: int, queue: str = "q", retry: int = 300) -> list[bytes]:
    """Add `count` jobs of 100 bytes. Return their ids."""
    request = hiredis.pack_command(("ADDJOB", queue, "x" * 100, 0, "RETRY", retry))
    with server.connect() as client:
        client.send_raw(request * count)
        return [client.read() for _ in range(count)]


def ids_in(server: Server, queue: str, count: int = 100) -> list[bytes]:
    """Return the ids of a queue's current jobs, in order."""
    return [job[1] for job in server.command("GETJOB", "NOHANG", "COUNT", count, "FROM", queue) or []]


def journal(server: Server) -> dict[str, str]:
    return server.info("persistence")


def journal_bytes(server: Server) -> int:
    """Return the bytes of all segments on disk, without the prepared zeros behind the last block."""
    return sum(len(path.read_bytes().rstrip(b"\0")) for path in (server.folder / FOLDER).glob("*.seg"))


def is_rewritten(server: Server) -> bool:
    info = journal(server)
    return info["aof_rewrite_in_progress"] == info["aof_rewrite_scheduled"] == "0"


# -- on and off ------------------------------------------------------------------------------------


def test_a_journal_that_is_switched_on_has_the_earlier_jobs(make_server):
    """It also gets jobs that arrive during the recording. Until its end the state is `wait-rewrite`."""
    server = make_server().start()
    ids = fill(server, 10_000)
    server.command("CONFIG", "SET", "appendonly", "yes")
    ids += fill(server, 500)
    until(lambda: journal(server)["aof_state"] == "on", 10)
    server.kill()
    server.options += JOURNAL
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) == len(ids)


def test_changes_while_the_journal_is_off_are_not_undone(make_server):
    """The new journal replaces the old one, so jobs that were acknowledged meanwhile don't come back."""
    server = make_server(*ALWAYS).start()
    first = fill(server, 10)
    server.command("CONFIG", "SET", "appendonly", "no")
    until(lambda: journal(server)["aof_enabled"] == "0", 5)
    assert ids_in(server, "q", 10) == first
    server.command("ACKJOB", *first)
    second = fill(server, 10)
    server.command("CONFIG", "SET", "appendonly", "yes")
    until(lambda: journal(server).get("aof_state") == "on", 5)
    server.kill()
    server.restart()
    assert [server.command("SHOW", job_id) for job_id in first] == [None] * 10
    assert int(server.info("jobs")["registered_jobs"]) == len(second)


def test_a_journal_that_was_switched_off_leaves_at_most_once_jobs_uncertain(make_server):
    """Later changes are in no journal, so a later start must not queue them."""
    server = make_server(*ALWAYS).start()
    job_id = server.command("ADDJOB", "q", "body", 0, "RETRY", 0)
    server.command("CONFIG", "SET", "appendonly", "no")
    until(lambda: journal(server)["aof_enabled"] == "0", 5)
    assert ids_in(server, "q") == [job_id]
    server.kill()
    server.restart()
    assert ids_in(server, "q") == []


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_appendfsync_may_change_at_any_time(make_server, how):
    """Acknowledged jobs survive a kill under each policy. RETRY 0 needs `always` all the time."""
    server = make_server(*ALWAYS).start()
    ids, once = [], []
    for policy in ("always", "everysec", "no", "always", "no", "everysec", "always"):
        assert server.command("CONFIG", "SET", "appendfsync", policy) == b"OK"
        ids += fill(server, 50)
        once += fill(server, 5, "once", retry=0)
    getattr(server, how)()
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) == len(ids) + len(once)
    assert ids_in(server, "once") == (once if how == "stop" else once[-5:])


def test_of_two_switches_in_one_packet_the_last_one_counts(make_server):
    server = make_server(*JOURNAL).start()
    ids = fill(server, 10)
    with server.connect() as client:
        for value in ("no", "yes", "no", "yes"):
            client.send("CONFIG", "SET", "appendonly", value)
        assert [client.read() for _ in range(4)] == [b"OK"] * 4
    until(lambda: journal(server).get("aof_state") == "on", 5)
    server.kill()
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) == len(ids)


def test_a_signal_waits_until_a_new_journal_has_all_jobs(make_server):
    """SHUTDOWN is refused meanwhile."""
    server = make_server().start()
    ids = fill(server, 30_000)
    assert server.command("CONFIG", "SET", "appendonly", "yes") == b"OK"
    server.stop()
    server.options += JOURNAL
    server.start()
    assert int(server.info("jobs")["registered_jobs"]) == len(ids)


def test_an_unusable_journal_is_refused_and_changes_nothing(make_server):
    """Another file is in its place, or another node uses it."""
    server = make_server().start()
    (server.folder / FOLDER).write_text("precious")
    with pytest.raises(hiredis.ReplyError, match="ERR Unable to turn on AOF"):
        server.command("CONFIG", "SET", "appendonly", "yes")
    assert server.command("CONFIG", "GET", "appendonly")[1] == b"no"
    assert (server.folder / FOLDER).read_text() == "precious"
    (server.folder / FOLDER).unlink()
    owner = make_server(*JOURNAL, "--dir", server.folder, "--cluster-config-file", "other.conf").start()
    with pytest.raises(hiredis.ReplyError, match=f"in use by process {owner.pid}"):
        server.command("CONFIG", "SET", "appendonly", "yes")
    assert server.command("ADDJOB", "q", "body", 0)


def test_a_journal_that_is_switched_off_and_on_again_is_made_when_it_can_be(make_server):
    """The first CONFIG SET still closes the journal when the second one replies."""
    server = make_server(*JOURNAL).start()
    (server.folder / FOLDER).rename(server.folder / "away")
    (server.folder / FOLDER).write_text("in the way")
    with server.connect() as client:
        words = [("CONFIG", "SET", "appendonly", value) for value in ("no", "yes")]
        client.send_raw(b"".join(map(hiredis.pack_command, words)))
        assert [client.read() for _ in range(2)] == [b"OK"] * 2
    until(lambda: "The journal can't be made: File exists" in server.output(), 5)
    (server.folder / FOLDER).unlink()
    until(lambda: journal(server).get("aof_state") == "on", 5)


def test_shutdown_rewrite_aof_with_an_unusable_journal_leaves_the_node_running(make_server):
    """The end of the connection would look like the end of the node."""
    server = make_server().start()
    (server.folder / FOLDER).write_text("precious")
    with pytest.raises(hiredis.ReplyError, match="ERR Errors trying to SHUTDOWN"):
        server.command("SHUTDOWN", "REWRITE-AOF")
    assert "SHUTDOWN refused: File exists" in server.output()
    assert server.command("ADDJOB", "q", "body", 0)


def test_shutdown_rewrite_aof_while_the_journal_is_being_closed_makes_a_new_one(make_server):
    """The rewrite of the old journal would never end, and the client would wait for ever."""
    server = make_server(*JOURNAL).start()
    ids = fill(server, 100)
    with server.connect() as client:
        client.send_raw(b"CONFIG SET appendonly no\r\nSHUTDOWN REWRITE-AOF\r\n")
        assert server.wait_ended() == 0
    server.options = ("--aof-enqueue-jobs-once", "yes")
    assert ids_in(server.restart(), "q") == ids


# -- rewriting -------------------------------------------------------------------------------------


def test_bgrewriteaof_frees_the_space_of_finished_jobs(make_server):
    server = make_server(*JOURNAL, "--auto-aof-rewrite-percentage", 0).start()
    ids = fill(server, 10_000)
    for at in range(0, 9_000, 1000):
        server.command("FASTACK", *ids[at : at + 1000])
    before = journal_bytes(server)
    reply = server.command("BGREWRITEAOF")
    assert reply == b"Background append only file rewriting started"
    until(lambda: is_rewritten(server) and journal_bytes(server) < before / 5, 15)
    assert journal(server)["aof_last_bgrewrite_status"] == "ok"
    server.kill()
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) == 1000


def test_the_journal_does_not_grow_without_limit(make_server):
    """With `auto-aof-rewrite-*`, jobs come and go, and the journal's size stays in proportion to the live jobs."""
    server = make_server(*JOURNAL, "--auto-aof-rewrite-min-size", "1mb").start()
    keep = fill(server, 1000, "keep")
    for _ in range(20):
        server.command("FASTACK", *fill(server, 1000))
    until(lambda: is_rewritten(server) and journal_bytes(server) < 3_000_000, 15)
    server.kill()
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) == len(keep)


def test_a_kill_in_the_middle_of_a_rewrite_loses_nothing(make_server):
    """The kill is repeated, while jobs and acks arrive."""
    server = make_server(*ALWAYS, "--auto-aof-rewrite-percentage", 0).start()
    ids = fill(server, 10_000)
    gone = set()
    for turn in range(3):
        done = ids[turn::7][:1000]
        server.command("FASTACK", *done)
        gone.update(done)
        server.command("BGREWRITEAOF")
        time.sleep(0.05 * turn)
        ids += fill(server, 300)
        was_running = journal(server)["aof_rewrite_in_progress"]
        server.kill()
        server.restart()
        assert int(server.info("jobs")["registered_jobs"]) == len(ids) - len(gone), was_running
    assert all(server.command("SHOW", job_id) is None for job_id in sorted(gone)[:200])


def test_bgrewriteaof_with_the_journal_off_writes_it_once(make_server):
    """A snapshot that a later start with `appendonly yes` reads."""
    server = make_server().start()
    ids = fill(server, 5000)
    server.command("BGREWRITEAOF")
    until(lambda: journal_bytes(server) > 500_000 and journal(server)["aof_enabled"] == "0", 10)
    server.command("FASTACK", *ids[:100])  # These are not recorded, because the journal is off.
    server.kill()
    server.options += JOURNAL
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) == len(ids)


def test_pauses_survive_a_rewrite(make_server):
    server = make_server(*ALWAYS).start()
    server.command("PAUSE", "q", "out")
    server.command("BGREWRITEAOF")
    until(lambda: is_rewritten(server), 5)
    server.kill()
    server.restart()
    assert server.command("PAUSE", "q", "state") == b"out"


# -- reading back ----------------------------------------------------------------------------------


def test_debug_loadaof_restores_the_jobs_of_the_journal(make_server):
    """It restores all jobs of the journal. Clients get LOADING meanwhile, and the node goes on writing."""
    server = make_server(*JOURNAL).start()
    ids = fill(server, 5000)
    once = server.command("ADDJOB", "once", "body", 0, "RETRY", 0)
    fetched = ids_in(server, "q", 10)
    assert server.command("DEBUG", "LOADAOF") == b"OK"
    assert int(server.info("jobs")["registered_jobs"]) == 5001
    assert ids_in(server, "once") == [once]
    assert ids_in(server, "q", 10) == ids[10:20]
    server.command("ACKJOB", *fetched)
    server.kill()
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) == 4991


def test_debug_loadaof_without_a_journal_is_refused(make_server):
    server = make_server().start()
    ids = fill(server, 10)
    with pytest.raises(hiredis.ReplyError, match="ERR there is no journal"):
        server.command("DEBUG", "LOADAOF")
    assert ids_in(server, "q") == ids


@pytest.mark.parametrize("how", ["RESTART", "CRASH-AND-RECOVER"])
def test_a_node_that_restarts_itself_reads_its_journal(make_server, how):
    """The same process has the same lock again."""
    server = make_server(*ALWAYS, config=["loglevel notice"]).start()
    ids = fill(server, 100)
    run_id = server.info("server")["run_id"]
    with pytest.raises(EOFError):
        server.command("DEBUG", how, 10)
    until(lambda: server.answers() and server.info("server")["run_id"] != run_id)
    assert ids_in(server, "q") == ids


def test_commands_before_a_shutdown_in_one_packet_are_on_disk(make_server):
    """Spec Q8: buffered records are flushed."""
    server = make_server(*JOURNAL).start()
    with server.connect() as client:
        client.send_raw(hiredis.pack_command(("ADDJOB", "q", "body", 0)) + hiredis.pack_command(("SHUTDOWN",)))
        job_id = client.read()
    assert server.wait_ended() == 0
    server.restart()
    assert ids_in(server, "q") == [job_id]


@pytest.mark.parametrize("last", ["QUIT", "NONSENSE", "end of file"])
def test_a_disconnecting_client_gets_the_replies_that_wait_for_the_journal(make_server, last):
    """These are replies to commands before QUIT, before a protocol error, or before the client closed its side."""
    server = make_server(*ALWAYS).start()
    with server.connect() as client:
        request = hiredis.pack_command(("ADDJOB", "q", "body", 0)) * 3
        client.send_raw(request + {"QUIT": b"QUIT\r\n", "NONSENSE": b"*1\r\n!\r\n"}.get(last, b""))
        if last == "end of file":
            client.sock.shutdown(socket.SHUT_WR)
        assert all(isinstance(client.read(), bytes) for _ in range(3))
        assert client.is_closed()
    assert server.command("QLEN", "q") == 3


# -- the controlled restart ------------------------------------------------------------------------


def test_the_controlled_restart_brings_back_queues(make_server):
    """
    After aof-enqueue-jobs-once, SHUTDOWN REWRITE-AOF and a start, queues are back immediately, including at-most-once
    jobs (spec Q4). Then the option is `no` again, also in the file, and the journal is off as before.
    """
    server = make_server(config=["loglevel notice"]).start()
    ids = [server.command("ADDJOB", "q", f"body {n}", 0, "RETRY", 300 * (n % 2)) for n in range(20)]
    delayed = server.command("ADDJOB", "q", "later", 0, "DELAY", 100, "RETRY", 0)
    assert ids_in(server, "q", 4) == ids[:4]
    server.command("CONFIG", "SET", "aof-enqueue-jobs-once", "yes")
    server.command("CONFIG", "REWRITE")
    with pytest.raises(EOFError):
        server.command("SHUTDOWN", "REWRITE-AOF")
    assert server.wait_ended() == 0
    server.restart()
    assert ids_in(server, "q") == ids[4:]
    assert server.command("SHOW", delayed) is not None
    until(lambda: server.command("CONFIG", "GET", "aof-enqueue-jobs-once")[1] == b"no", 5)
    until(lambda: "aof-enqueue-jobs-once yes" not in server.config_path.read_text(), 5)
    assert server.command("CONFIG", "GET", "appendonly")[1] == b"no"
    until(lambda: journal(server)["aof_enabled"] == "0", 5)


def test_the_next_start_with_appendonly_no_is_empty(make_server):
    """The journal stays in its place, and the node does not read it."""
    server = make_server(*JOURNAL).start()
    fill(server, 10)
    server.stop()
    server.options = []
    server.restart()
    assert server.info("jobs")["registered_jobs"] == "0"
    assert journal_bytes(server) > 0
