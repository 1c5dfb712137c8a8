"""Commands about jobs: their words, their nodes, and the deliveries that they name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disque_py.client import job_commands
from disque_py.client.address import Address
from disque_py.client.results import Job
from request_words import words_of

A, B = Address("a", 1), Address("b", 1)


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (job_commands.working("i", 90), "WORKING i 90"),
        (job_commands.ack("i", b"j"), "ACKJOB i j"),
        (job_commands.fast_ack("i"), "FASTACK i"),
        (job_commands.nack("i"), "NACK i"),
        (job_commands.enqueue("i"), "ENQUEUE i"),
        (job_commands.dequeue("i"), "DEQUEUE i"),
        (job_commands.delete("i"), "DELJOB i"),
        (job_commands.promote("i", b"j"), "PROMOTE i j"),
        (job_commands.move_jobs("i", b"j", to="q"), "MOVEJOB i j TO q"),
        (job_commands.reschedule("i", delay=60, priority=-2), "RESCHEDULE i DELAY 60 PRIORITY -2"),
        (job_commands.reschedule("i", delay=timedelta(milliseconds=1500)), "RESCHEDULE i DELAYMS 1500"),
        (job_commands.working("i"), "WORKING i"),
        (job_commands.show("i"), "SHOW i"),
        (job_commands.show("i", cluster=True), "SHOW i CLUSTER"),
        (job_commands.job_ids("q", ["k", b"l"]), "JOBID q k l"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire


def test_commands_about_a_job_go_where_it_was_fetched():
    """WORKING and NACK work only at a node that knows the job."""
    job = Job("q", "i", b"", node=A)
    assert job_commands.working(job).node == A
    assert job_commands.show(job).node == A
    assert job_commands.nack("i").node is None


def test_jobs_of_several_nodes_are_grouped():
    """Groups are in the order in which the nodes appear."""
    one, two, three = Job("q", "1", b"", node=A), Job("q", "2", b"", node=B), Job("q", "3", b"", node=A)
    assert job_commands.by_node([one, two, "4", three]) == {A: [one, three], B: [two], None: ["4"]}


def claimed(fence=5):
    return Job("q", "D-1", b"", attempt=2, fence=fence)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (job_commands.ack(claimed()), [b"FENCE", b"5"]),
        (job_commands.ack(claimed(), attempt=2), [b"ATTEMPT", b"2", b"FENCE", b"5"]),
        (job_commands.nack(claimed()), [b"FENCE", b"5"]),
        (job_commands.working(claimed()), [b"FENCE", b"5"]),
        (job_commands.working("D-1", fence=7), [b"FENCE", b"7"]),
        (job_commands.cancel("D-1", fence=7), [b"FENCE", b"7"]),
        (job_commands.cancel(claimed()), []),
        (job_commands.ack(claimed(fence=0)), []),
        (job_commands.ack(claimed(), claimed()), []),
    ],
)
def test_a_job_under_a_claim_is_named_with_its_fence(request_, words):
    ids = 2 if request_.argv.count(b"D-1") == 2 else 1
    assert list(request_.argv[1 + ids :]) == words


def test_a_fence_is_about_one_job():
    with pytest.raises(ValueError, match="exactly one job"):
        job_commands.ack("D-1", "D-2", fence=5)
