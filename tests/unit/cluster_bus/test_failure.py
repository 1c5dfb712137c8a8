"""cluster_bus/failure.py: one node suspects, a majority decides on failure, and an answer ends both states."""

from __future__ import annotations

import pytest

from cluster_bus import failure
from cluster_bus.node import FAIL, HANDSHAKE, LEAVING, MYSELF, PFAIL, Node

T = 2000


def node(flags: int = 0) -> Node:
    return Node(b"n" * 20, flags=flags)


@pytest.mark.parametrize(("size", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (100, 51)])
def test_a_quorum_is_more_than_half(size: int, needed: int):
    assert failure.quorum(size) == needed


def test_a_node_is_silent_when_a_ping_is_older_than_the_time_out():
    silent = node()
    assert not failure.is_silent(silent, 10_000, T)  # No ping is unanswered.
    silent.ping_sent_ms = 5_000
    assert not failure.is_silent(silent, 7_000, T)
    assert failure.is_silent(silent, 7_001, T)


def test_suspicion_sets_a_flag_once_and_keeps_the_others():
    suspected = node(LEAVING)
    assert failure.suspect(suspected)
    assert suspected.flags == LEAVING | PFAIL
    assert not failure.suspect(suspected)


@pytest.mark.parametrize("flags", [MYSELF, HANDSHAKE, FAIL])
def test_ourselves_handshakes_and_failed_nodes_are_never_suspected(flags: int):
    assert not failure.suspect(node(flags))


def test_reports_alone_without_own_suspicion_do_not_fail_a_node():
    reported = node()
    for name in range(5):
        failure.report(reported, Node(bytes([name]) * 20), 1_000)
    assert not failure.agree(reported, 3, 1_000, T)


def test_our_suspicion_and_a_report_are_a_majority_of_three():
    """Spec N3."""
    failing = node(PFAIL | LEAVING)
    assert not failure.agree(failing, 3, 1_000, T)
    failure.report(failing, Node(b"r" * 20), 1_000)
    assert failure.agree(failing, 3, 1_000, T)
    assert failing.flags == FAIL | LEAVING
    assert failing.fail_at_ms == 1_000


def test_two_nodes_never_agree_on_a_failure():
    assert not failure.agree(node(PFAIL), 2, 1_000, T)


def test_a_report_counts_for_two_time_outs():
    failing = node(PFAIL)
    failure.report(failing, Node(b"r" * 20), 1_000)
    assert failure.report_count(failing, 1_000 + 2 * T, T) == 1
    assert failure.report_count(failing, 1_001 + 2 * T, T) == 0
    assert failing.reports == {}


def test_a_withdrawn_report_no_longer_counts():
    failing, reporter = node(PFAIL), Node(b"r" * 20)
    failure.report(failing, reporter, 1_000)
    failure.withdraw(failing, reporter)
    failure.withdraw(failing, reporter)
    assert not failure.agree(failing, 3, 1_000, T)


def test_an_announced_failure_needs_no_suspicion_of_the_receiver():
    failed = node()
    assert failure.mark_failed(failed, 5)
    assert not failure.mark_failed(failed, 6)
    assert not failure.mark_failed(node(MYSELF), 5)


def test_an_answer_heals_at_once():
    failed = node(FAIL | LEAVING)
    assert failure.heal(failed)
    assert failed.flags == LEAVING
    assert not failure.heal(failed)
