"""latency.py: samples and their output."""

from __future__ import annotations

import contextlib
import re

from disque_py.cli.address import Target
from disque_py.cli.connection import Connection, ConnectionLostError
from disque_py.cli.shell.latency import Spread, measure, measure_intrinsic
from disque_py.client import Address


def test_a_spread_keeps_minimum_maximum_and_average():
    spread = Spread()
    for sample_ms in (1.0, 3.0, 2.0):
        spread.add(sample_ms)
    assert spread.text() == "min: 1.00, max: 3.00, avg: 2.00 (3 samples)"
    assert spread.bare() == "1.00 3.00 2.00 3"


def test_into_a_pipe_it_measures_once_and_ends(scripted, capsys):
    node = scripted({"PING": b"+PONG\r\n"})
    with contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as connection:
        measure(connection, with_history=False, every_s=0.05, on_terminal=False)
    assert re.fullmatch(r"\d+\.\d\d \d+\.\d\d \d+\.\d\d \d+\n", capsys.readouterr().out)


def test_the_history_begins_anew_every_interval(scripted, capsys):
    answers = iter([b"+PONG\r\n"] * 12)
    node = scripted({"PING": lambda words: next(answers, None)})
    with (
        contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as connection,
        contextlib.suppress(ConnectionLostError),
    ):
        measure(connection, with_history=True, every_s=1e-6, on_terminal=False)
    counts = [line.split()[3] for line in capsys.readouterr().out.splitlines()]
    assert len(counts) > 2
    assert set(counts) == {"1"}


def test_intrinsic_latency_reports_the_worst_and_the_average():
    lines = []
    measure_intrinsic(0.01, lines.append)
    assert lines[0].startswith("Max latency so far: ")
    assert "total runs (avg latency:" in lines[-2]
    assert lines[-1].endswith("x longer than the average latency.")
