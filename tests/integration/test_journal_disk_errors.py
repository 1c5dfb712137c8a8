"""A node whose disk fills up, vanishes or becomes read-only: its refusals, its reports and its recovery."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress

import hiredis
import pytest

from servers import Server, until

FOLDER = "disque.aof.d"
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
EVERYSEC = ("--appendonly", "yes")
# The journal needs 8 MiB for its reserved file, and as much again before it continues after a disk error.
DISK_SIZE = "32m"
BODY = b"x" * 10_000


@pytest.fixture
def small_disk(tmp_path):
    """A separate file system with DISK_SIZE bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def small_disk_node(small_disk):
    """Make a node whose folder is on the small disk. It ends before the disk is removed.

    The node keeps no log of events, because that would free and take room on the disk.
    """
    made = []

    def make(*options):
        server = Server(small_disk / "node", None, ("--events", "no", *options))
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.close()


def add_until_refused(server, *, limit_s=60):
    """Add jobs until MISCONF. Return the acknowledged ids, the error, and the waiting connections.

    An ADDJOB in progress when the disk fails waits on its connection until it is recorded. There may be several, if the
    disk reports its failure late.
    """
    ids = []
    waiting = []
    client = server.connect(1.0)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            ids.append(client.command("ADDJOB", "q", BODY, 0, "RETRY", 300))
        except TimeoutError:
            waiting.append(client)
            client = server.connect(1.0)
        except hiredis.ReplyError as error:
            client.close()
            return ids, str(error), waiting
    raise AssertionError("the disk did not fill up")


def answered(waiting):
    """Return the replies to the waiting ADDJOBs, once the disk is back."""
    replies = []
    for connection in waiting:
        with connection:
            connection.sock.settimeout(10)
            replies.append(connection.read())
    return replies


def accepts(server):
    """Return whether the node accepts a job."""
    try:
        server.command("ADDJOB", "again", "body", 0)
    except hiredis.ReplyError:
        return False
    return True


def ballast(folder):
    """Fill the rest of the disk with one file. Files of a process that was killed may be freed a moment later."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        for _ in range(3):
            with suppress(OSError):
                while True:
                    file.write(bytes(4096))
            time.sleep(0.1)
    return path


def journal_info(server):
    return server.info("persistence")


@pytest.mark.parametrize("options", [ALWAYS, EVERYSEC], ids=["always", "everysec"])
def test_a_node_with_a_full_disk_refuses_jobs_but_delivers_and_acknowledges(small_disk_node, small_disk, options):
    """ADDJOB and PING get MISCONF. RETRY jobs are delivered and acknowledged. INFO and log have the reason.

    Spec Q40.
    """
    server = small_disk_node(*options)
    until(lambda: (server.folder / FOLDER / "reserve").exists(), 5)
    first = [server.command("ADDJOB", "q", BODY, 0, "RETRY", 300) for _ in range(20)]
    once = server.command("ADDJOB", "once", "body", 0, "RETRY", 0)
    path = ballast(small_disk)
    ids, said, waiting = add_until_refused(server)
    assert said.startswith("MISCONF Errors writing to the AOF file: No space left on device")
    with pytest.raises(hiredis.ReplyError, match="MISCONF"):
        server.command("PING")
    got = [job[1] for job in server.command("GETJOB", "NOHANG", "COUNT", 10, "FROM", "q")]
    assert got == first[:10]
    assert server.command("ACKJOB", *got) == 10
    with pytest.raises(hiredis.ReplyError, match="MISCONF"):
        server.command("GETJOB", "NOHANG", "FROM", "once")
    info = journal_info(server)
    assert info["aof_last_write_status"] == "err"
    assert info["aof_refusing"] == "1"
    assert info["aof_trouble"] == "No space left on device"
    assert info["aof_on_reserve"] == "1"
    assert "Writes are refused, the journal can't be written: No space left on device" in server.output()
    path.unlink()
    until(lambda: accepts(server), 5)
    ids += answered(waiting)
    assert all(isinstance(job_id, bytes) for job_id in ids)
    assert journal_info(server)["aof_last_write_status"] == "ok"
    assert "The journal is written again" in server.output()
    server.kill()
    server.restart()
    assert server.command("SHOW", got[0]) is None  # Acks from the time of the full disk are on disk now.
    assert all(server.command("SHOW", job_id) is not None for job_id in (*first[10:], *ids))
    if options is ALWAYS:
        assert server.command("GETJOB", "NOHANG", "FROM", "once")[0][1] == once


def test_acks_of_a_full_disk_survive_a_kill_under_always(small_disk_node, small_disk):
    """The reserved file has room for them."""
    server = small_disk_node(*ALWAYS)
    until(lambda: (server.folder / FOLDER / "reserve").exists(), 5)
    ids = [server.command("ADDJOB", "q", BODY, 0, "RETRY", 300) for _ in range(20)]
    path = ballast(small_disk)
    assert add_until_refused(server)[2] == []
    server.command("GETJOB", "COUNT", 10, "FROM", "q")
    assert server.command("ACKJOB", *ids[:10]) == 10
    server.kill()
    path.unlink()
    server.restart()
    assert all(server.command("SHOW", job_id) is None for job_id in ids[:10])
    assert all(server.command("SHOW", job_id) is not None for job_id in ids[10:])


@pytest.mark.parametrize("options", [ALWAYS, EVERYSEC], ids=["always", "everysec"])
def test_acks_free_a_full_disk(small_disk_node, options):
    """Only the journal fills the disk, and its size is far below auto-aof-rewrite-min-size."""
    server = small_disk_node(*options)
    until(lambda: (server.folder / FOLDER / "reserve").exists(), 5)
    ids, _, waiting = add_until_refused(server)
    got = []
    while jobs := server.command("GETJOB", "NOHANG", "COUNT", 100, "FROM", "q"):
        got += [job[1] for job in jobs]
        server.command("ACKJOB", *(job[1] for job in jobs))
    until(lambda: accepts(server), 10)
    answered(waiting)
    assert int(journal_info(server)["aof_current_size"]) < 2_000_000
    server.kill()
    server.restart()
    assert not any(server.command("SHOW", job_id) for job_id in ids if job_id in got)


def test_a_start_on_a_full_disk_continues_when_there_is_room(small_disk_node, small_disk):
    """The state of at-most-once jobs has to be recorded before the node serves a client."""
    server = small_disk_node(*EVERYSEC, "--loading-wait", 0)
    reserve = server.folder / FOLDER / "reserve"
    job_id = server.command("ADDJOB", "q", "body", 0, "RETRY", 0)
    until(reserve.exists, 5)  # A node that is killed while it makes this file leaves room to the next start.
    server.kill()
    reserve.unlink()  # With this file there would be room.
    path = ballast(small_disk)
    server.launch()
    until(lambda: "No client is served before the disk works" in server.output(), 10)
    with pytest.raises(hiredis.ReplyError, match="LOADING"):
        server.command("QLEN", "q")
    assert journal_info(server)["loading_trouble"] == "No space left on device"
    path.unlink()
    until(lambda: server.answers() and journal_info(server)["loading"] == "0", 10)
    assert server.command("GETJOB", "NOHANG", "FROM", "q") is None
    assert server.command("SHOW", job_id) is not None
    assert accepts(server)


def test_a_file_size_limit_is_a_disk_error_like_any_other(make_server):
    """RLIMIT_FSIZE acts like a quota. Its signal does not kill the process, and lifting the limit helps."""
    server = make_server(*EVERYSEC).start()
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        pytest.skip("prlimit is not installed")
    server.command("ADDJOB", "q", "body", 0, "RETRY", 300)
    subprocess.run([prlimit, "--pid", str(server.pid), "--fsize=8192:unlimited"], check=True)
    _, said, waiting = add_until_refused(server)
    assert said.startswith("MISCONF Errors writing to the AOF file: File too large")
    subprocess.run([prlimit, "--pid", str(server.pid), "--fsize=unlimited:unlimited"], check=True)
    until(lambda: accepts(server), 5)
    answered(waiting)
    before = server.info("jobs")["registered_jobs"]
    server.kill()
    server.restart()
    assert server.info("jobs")["registered_jobs"] == before


def test_a_node_recovers_when_its_directory_vanishes_and_comes_back(make_server):
    """A volume may be unmounted for a while. The node writes the missing records when it is back."""
    server = make_server(*EVERYSEC).start()
    ids = [server.command("ADDJOB", "q", "body", 0, "RETRY", 300) for _ in range(3)]
    folder = server.folder / FOLDER
    away = server.folder / "away"
    folder.rename(away)
    more, said, waiting = add_until_refused(server)
    assert said.startswith("MISCONF Errors writing to the AOF file: ")
    ids += more
    assert server.command("GETJOB", "NOHANG", "FROM", "q")[0][1] == ids[0]
    assert server.command("ACKJOB", ids[0]) == 1
    away.rename(folder)
    until(lambda: accepts(server), 5)
    ids += answered(waiting)
    server.kill()
    server.restart()
    assert server.command("SHOW", ids[0]) is None
    assert all(server.command("SHOW", job_id) is not None for job_id in ids[1:])


def refuses(server):
    """Return whether a new ADDJOB is refused. An ADDJOB in progress when the disk failed waits until it works again."""
    with server.connect(1.0) as connection:
        try:
            connection.command("ADDJOB", "again", "body", 0)
        except hiredis.ReplyError as reply:
            return str(reply).startswith("MISCONF")
        except TimeoutError:
            return False
    return False


def test_a_node_recovers_from_a_read_only_disk(small_disk_node):
    """A file system with open files can't be made read-only by force. In this test only new files fail."""
    server = small_disk_node(*EVERYSEC)
    job_id = server.command("ADDJOB", "q", "body", 0, "RETRY", 300)
    folder = server.folder / FOLDER
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder, folder], check=True)
        server.command("BGREWRITEAOF")
        until(lambda: refuses(server), 10)
        assert journal_info(server)["aof_trouble"] == "Read-only file system"
        assert server.command("GETJOB", "NOHANG", "FROM", "q")[0][1] == job_id
        server.kill()
        server.launch()
        assert server.wait_ended() == 1
        assert f"can't open the journal: {folder}: Read-only file system" in server.output()
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
    server.restart()
    assert server.command("SHOW", job_id)


def test_switching_the_journal_off_clears_its_disk_errors(small_disk_node, small_disk):
    """Switching it on again makes a new journal with all jobs (spec Q27)."""
    server = small_disk_node(*EVERYSEC)
    path = ballast(small_disk)
    ids, _, waiting = add_until_refused(server)
    server.command("CONFIG", "SET", "appendonly", "no")
    until(lambda: accepts(server), 5)
    ids += answered(waiting)
    path.unlink()
    server.command("CONFIG", "SET", "appendonly", "yes")
    until(lambda: journal_info(server).get("aof_state") == "on", 5)
    server.kill()
    server.restart()
    assert int(server.info("jobs")["registered_jobs"]) >= len(ids)


def test_shutdown_is_refused_while_something_is_unrecorded(small_disk_node, small_disk):
    server = small_disk_node(*EVERYSEC)
    path = ballast(small_disk)
    _, _, waiting = add_until_refused(server)
    for words in (("SHUTDOWN",), ("SHUTDOWN", "REWRITE-AOF")):
        with pytest.raises(hiredis.ReplyError, match="ERR Errors trying to SHUTDOWN"):
            server.command(*words)
    assert "SHUTDOWN refused" in server.output()
    os.unlink(path)
    until(lambda: accepts(server), 5)
    answered(waiting)
    with pytest.raises(EOFError):
        server.command("SHUTDOWN")
    assert server.wait_ended() == 0
