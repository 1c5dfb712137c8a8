"""client/flow_commands.py: bytes on the wire, and typed answers."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from client_node import JOB_A, JOB_B
from disque_py.client import commands, flow_commands
from disque_py.client.results import Job
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (flow_commands.wait_jobs(JOB_A, JOB_B), f"WAITJOB {JOB_A} {JOB_B} TIMEOUT 0"),
        (flow_commands.wait_jobs(JOB_A, timeout=1.5, first=True), f"WAITJOB {JOB_A} ANY TIMEOUT 1500"),
        (flow_commands.wait_jobs(JOB_A, timeout=timedelta(0)), f"WAITJOB {JOB_A} TIMEOUT 1"),
        (flow_commands.progress(JOB_A, 40), f"PROGRESS {JOB_A} 40"),
        (flow_commands.progress(JOB_A, 40, "half", attempt=2), f"PROGRESS {JOB_A} 40 half ATTEMPT 2"),
        (flow_commands.progress(JOB_A, 40, fence=3), f"PROGRESS {JOB_A} 40 FENCE 3"),
        (flow_commands.progress(Job("q", JOB_A, b"", fence=7), 40), f"PROGRESS {JOB_A} 40 FENCE 7"),
        (flow_commands.batch_info("b"), "BATCH SHOW b"),
        (flow_commands.wait_batch("b", 2), "BATCH WAIT b TIMEOUT 2000"),
        (flow_commands.close_batch("b"), "BATCH CLOSE b"),
        (flow_commands.close_batch("b", ("q", "x")), "BATCH CLOSE b CALLBACK q x"),
        (flow_commands.delete_batch("b"), "BATCH DEL b"),
        (flow_commands.batches("u*"), "BATCH LIST u*"),
        (commands.ack(JOB_A, attempt=1, result="r"), f"ACKJOB {JOB_A} ATTEMPT 1 RESULT r"),
        (commands.add_job("q", "x", batch="b"), "ADDJOB q x 5000 BATCH b"),
    ],
)
def test_a_command_has_these_words(request_, wire):
    """Spec RW4, RW5, BT6."""
    assert words_of(request_) == wire


def test_the_end_of_each_job_is_typed():
    read = flow_commands.wait_jobs(JOB_A).read
    done, failed = read([[b"a", b"completed", b"r", None], [b"b", b"running", None, b"no"]])
    assert (done.id, done.status, done.result, done.error, done.is_over) == ("a", "completed", b"r", None, True)
    assert (failed.error, failed.is_over) == ("no", False)


def test_a_result_belongs_to_one_job():
    with pytest.raises(ValueError, match="one job"):
        commands.ack(JOB_A, JOB_B, result="r")
    with pytest.raises(ValueError, match="needs a job"):
        flow_commands.wait_jobs()


@pytest.mark.parametrize("timeout", [math.inf, -math.inf, math.nan, 1e306])
def test_a_wait_that_has_no_end_says_none(timeout):
    """As for the time-out of a lock. Python's own error would not name the argument."""
    with pytest.raises(ValueError, match="timeout must be finite, or None"):
        flow_commands.wait_jobs(JOB_A, timeout=timeout)
    with pytest.raises(ValueError, match="timeout must be finite, or None"):
        flow_commands.wait_batch("b", timeout)


@pytest.mark.parametrize(
    ("percent", "note", "reason"),
    [
        (101, "", "from 0 to 100"),
        (-1, "", "from 0 to 100"),
        (33.3, "", "whole number"),
        (50, "é" * 129, "256 bytes"),
        (50, "\ud83d", "surrogates"),
    ],
)
def test_wrong_progress_is_refused_where_it_is_reported(percent, note, reason):
    """The worker sends it later, and a refusal there would reach no handler."""
    told = []
    job = Job("q", JOB_A, b"", tell=lambda *report: told.append(report))
    with pytest.raises(ValueError, match=reason):
        job.progress(percent, note)
    job.progress(50.0, "é" * 128)
    assert told == [(job, 50, "é" * 128)]


def test_progress_goes_to_the_node_that_delivered_the_job():
    job = Job("q", JOB_A, b"", node=("127.0.0.1", 1))
    assert flow_commands.progress(job, 1).node == ("127.0.0.1", 1)
    with pytest.raises(RuntimeError, match="no worker"):
        job.progress(1)
