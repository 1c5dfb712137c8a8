"""Fetchers: a reply under a token can be fetched again, and no other jobs come under the token."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from disque_py.simulator.clients.fetchers import (
    RESTORED_LEASE_MS_MAX,
    Batch,
    Fetcher,
    check_attempts,
    check_order,
    check_repeated,
)
from disque_py.simulator.clients.keyed_producers import KeyBook, Label
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from simulated import ask, joined, small_plan

WITH = ("WITHMETA", "WITHLEASE")


@pytest.fixture
def world():
    return joined("ab")


@pytest.fixture
def machine(world):
    return world.machines["a"]


@pytest.fixture
def fetcher(world):
    oracle, plan = Oracle(), small_plan(3, nodes=2)
    fetcher = Fetcher(world, oracle, plan, ClientPlan(0, "fetcher"))
    fetcher.book = KeyBook(world, oracle, plan)
    return fetcher


def add(world, oracle, *options, retry_s=5):
    """Add a job on a."""
    promise = oracle.add(b"q0", 20, retry_s * 1000, 3_600_000, 1, world.now_ms)
    job_id = ask(world, "a", "ADDJOB", "q0", promise.body(), 0, "RETRY", retry_s, "REPLICATE", 1, *options)
    oracle.answered(promise, job_id, world.now_ms)
    return promise


@pytest.fixture
def batch(world, machine, fetcher):
    """Return a batch of three jobs that were fetched under a token."""
    for _ in range(3):
        add(world, fetcher.oracle)
    batch = Batch(machine, b"t", 2_000)
    reply = ask(world, "a", "GETJOB", *WITH, "COUNT", 9, "LEASE", 2, "TOKEN", "t", "FROM", "q0")
    fetcher._got(reply, batch)
    return batch


def test_fetchers_fetch_repeat_and_acknowledge(world, fetcher):
    for _ in range(30):
        add(world, fetcher.oracle)
    fetcher.begin()
    world.run(20_000)
    assert fetcher.oracle.delivered >= 30
    assert fetcher.oracle.acked > 10


def test_a_repeat_is_what_is_still_leased_in_the_order_of_the_answer(world, fetcher, batch):
    """It delivers no other jobs."""
    first, second, third = batch.attempts
    ask(world, "a", "ACKJOB", second)
    fetcher._got(ask(world, "a", "GETJOB", *WITH, "TOKEN", "t", "FROM", "q0"), batch)
    check_repeated(batch, [first, third])
    assert fetcher.oracle.delivered == 3
    for wrong in ([third, first], [first, b"D-other"], [third]):
        with pytest.raises(RuleBrokenError, match="a token answers again"):
            check_repeated(batch, wrong)


def test_other_jobs_or_none_while_some_are_leased_break_a_rule(world, fetcher, batch):
    other = add(world, fetcher.oracle)
    for reply in (None, [[b"q0", other.id, other.body(), b"meta", [], b"lease-ms", 5, b"attempt", 1]]):
        with pytest.raises(RuleBrokenError, match="a token answers again"):
            fetcher._got(reply, batch)


@pytest.mark.parametrize(("disk_level", "is_refused"), [(0, True), (2, False)])
def test_answers_on_a_failing_disk_may_be_unknown_to_the_next_process(world, machine, fetcher, disk_level, is_refused):
    """During a disk fault work goes on in memory (spec P5). The same delivery may come again, with other jobs."""
    machine.keep_journal("always")
    batch = Batch(machine, b"t", 2_000)
    words = (*WITH, "COUNT", 9, "LEASE", 2, "FROM", "q0")
    add(world, fetcher.oracle)
    reply = ask(world, "a", "GETJOB", *words)
    machine.broker.journal.disk_level = disk_level
    fetcher._got(reply, batch)
    machine.broker.journal.disk_level = 0
    machine.runs += 1
    add(world, fetcher.oracle)
    reply += ask(world, "a", "GETJOB", *words)
    with pytest.raises(RuleBrokenError, match="a token answers again") if is_refused else nullcontext():
        fetcher._got(reply, batch)


def test_when_all_leases_are_over_the_token_is_unknown_again(world, fetcher, batch):
    world.run(2_500)
    fetcher._got(ask(world, "a", "GETJOB", *WITH, "NOHANG", "TOKEN", "t", "LEASE", 2, "FROM", "q0"), batch)
    assert fetcher.oracle.duplicates == 1


def test_counts_are_those_of_the_answer(world, fetcher, batch):
    end = fetcher._end_of(batch)
    fetcher._acknowledged(ask(world, "a", "ACKTOKEN", "t"), end)
    assert fetcher.oracle.acked == 3
    with pytest.raises(RuleBrokenError, match="tokens are counted"):
        fetcher._counted(4, end)


def test_a_token_counts_what_is_leased_under_it_and_no_later_delivery_of_the_same_job(world, fetcher, batch):
    """The leases have ended, and another consumer has one of the jobs."""
    world.run(6_000)
    ask(world, "a", "GETJOB", "FROM", "q0")
    end = fetcher._end_of(batch)
    fetcher._counted(ask(world, "a", "ACKTOKEN", "t"), end)
    with pytest.raises(RuleBrokenError, match="tokens are counted"):
        fetcher._counted(1, end)


def test_a_repeat_has_the_attempts_of_the_answer(batch):
    [first, *_] = batch.attempts
    check_attempts(batch, [[b"q0", first, b"", b"meta", [], b"lease-ms", 5, b"attempt", 1]])
    with pytest.raises(RuleBrokenError, match="a token answers for its own deliveries"):
        check_attempts(batch, [[b"q0", first, b"", b"meta", [], b"lease-ms", 5, b"attempt", 2]])


@pytest.mark.parametrize(("left_ms", "was_lost"), [(2_000, False), (900, True), (900, False)])
def test_a_later_delivery_to_another_client_is_no_answer_under_the_token(world, fetcher, batch, left_ms, was_lost):
    """Its lease began before the request, unless a reply to this token was lost."""
    world.run(3_000)
    batch.was_lost = was_lost
    promise = batch.promises[0]
    entry = [b"q0", promise.id, promise.body(), b"meta", [], b"lease-ms", left_ms, b"attempt", 2]
    is_wrong = left_ms < 2_000 and not was_lost
    rule = "a token answers for its own deliveries"
    with pytest.raises(RuleBrokenError, match=rule) if is_wrong else nullcontext():
        fetcher._got([entry], batch)


def test_metadata_and_priority_are_those_that_were_given(world, fetcher, machine):
    promise = add(world, fetcher.oracle, "META", "carrier", "UA", "PRIORITY", 7)
    fetcher.book.labels[promise.number] = Label(b"", 7, [b"carrier", b"UA"])
    [entry] = ask(world, "a", "GETJOB", *WITH, "LEASE", 2, "FROM", "q0")
    batch = Batch(machine, b"t", 2_000)
    fetcher._check_entry(entry, promise, batch)
    batch.lease_ms = 1_000
    with pytest.raises(RuleBrokenError, match="a lease is as long"):
        fetcher._check_entry(entry, promise, batch)
    fetcher._check_entry(entry, promise, batch, RESTORED_LEASE_MS_MAX)
    for label in (Label(b"", 7, []), Label(b"", 8, [b"carrier", b"UA"])):
        fetcher.book.labels[promise.number] = label
        with pytest.raises(RuleBrokenError, match="as they were added"):
            fetcher._check_entry(entry, promise, batch)
    promise.is_reordered = True  # An operator has given it another priority (seed 11593).
    fetcher._check_entry(entry, promise, batch, RESTORED_LEASE_MS_MAX)


def test_the_best_come_first(world, machine, fetcher):
    """The order is priority, then age."""
    late, early, urgent = (add(world, fetcher.oracle, "PRIORITY", priority) for priority in (9, 9, 2))
    entries = ask(world, "a", "GETJOB", "COUNT", 9, "FROM", "q0")
    assert [entry[1] for entry in entries] == [urgent.id, late.id, early.id]
    check_order(machine, entries)
    with pytest.raises(RuleBrokenError, match="a queue is in order"):
        check_order(machine, entries[::-1])


def test_at_most_once_jobs_are_skipped(world, machine, fetcher):
    promise = add(world, fetcher.oracle, retry_s=0)
    with pytest.raises(RuleBrokenError, match="pass at-most-once"):
        fetcher._check_entry([b"q0", promise.id, promise.body(), b"meta", []], promise, Batch(machine, b"t", 0))


def test_an_answer_that_was_not_received_is_requested_again(fetcher, batch):
    """The second answer under a token may bring other jobs than the first, after a reset (seed 9881)."""
    asked = []
    for is_unheard in [True] * 30 + [False] * 30:
        batch.is_unheard = is_unheard
        fetcher.batch = batch
        fetcher.act()
        line = fetcher.reach()
        asked.append(bool(line._waiting) and line._waiting[-1][0] == fetcher._got)
        line.hang_up()
    assert all(asked[:30])
    assert not all(asked[30:]), "a reply that was read is acknowledged, given back or kept"
