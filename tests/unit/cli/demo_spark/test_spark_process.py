"""disque_py/cli/demo_spark/spark_process.py, with a program that writes the same output as Spark's."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from disque_py.cli.demo_spark.spark_process import SparkError, SparkProcess

PROGRAM = """
import json, sys
def say(**words): print(json.dumps(words), flush=True)
say(kind="ready", version="9.9")
for word in map(str.strip, sys.stdin):
    if word == "fail":
        print("no such luck", file=sys.stderr)
        print("  at java.lang.Nowhere", file=sys.stderr)
        break
    say(kind="batch", indexed=7)
    say(kind=word)
"""


def process(tmp_path, program=PROGRAM):
    found = SparkProcess("nodes", tmp_path / "flights", tmp_path / "index", tmp_path / "log")
    found._words = [sys.executable, "-c", program]
    return found


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_program_gets_orders_answers_and_is_ended(tmp_path):
    async def story():
        async with process(tmp_path) as spark:
            await asyncio.wait_for(spark.heard("ready"), 20)
            spark.tell("produced")
            await asyncio.wait_for(spark.heard("produced"), 20)
            return spark.version, spark.indexed, spark._process.pid

    version, indexed, pid = asyncio.run(story())
    assert (version, indexed) == ("9.9", 7)
    assert not is_there(pid)


def test_an_early_end_is_an_error_with_the_last_output(tmp_path):
    async def story():
        async with process(tmp_path) as spark:
            spark.tell("fail")
            await asyncio.wait_for(spark.heard("produced"), 20)

    with pytest.raises(SparkError, match=r"(?s)ended before it was produced:\nno such luck$"):
        asyncio.run(story())


def test_of_a_long_traceback_only_our_message_is_shown(tmp_path):
    spark = process(tmp_path)
    (tmp_path / "log").write_text(
        "StreamingQueryException: [STREAM_FAILED]\n"
        "disque_py.spark.nodes.ClusterError: disque-events: node n1 can't be reached\n"
        "Current State: ACTIVE\n"
    )
    assert spark.last_words() == "disque-events: node n1 can't be reached"


def test_a_program_that_ignores_the_signal_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("disque_py.cli.demo_spark.spark_process.STOP_SECONDS", 0.1)
    deaf = (
        'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(\'{"kind": "ready"}\', flush=True)'
    )

    async def story():
        async with process(tmp_path, f"{deaf}; time.sleep(60)") as spark:
            await asyncio.wait_for(spark.heard("ready"), 20)
            return spark._process.pid

    assert not is_there(asyncio.run(story()))
