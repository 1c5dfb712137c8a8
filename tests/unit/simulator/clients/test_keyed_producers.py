"""Keyed producers: one job per key, and the book that decides when two ids break a rule."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disque_py.core.keys import KEY_AT, KEY_END
from disque_py.simulator.clients.keyed_producers import KeyBook, KeyedProducer, Label
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import ClientPlan, Fault
from simulated import ask, joined, small_plan


@pytest.fixture
def world():
    return joined("ab")


@pytest.fixture
def plan():
    return small_plan(3, nodes=2)


@pytest.fixture
def oracle():
    return Oracle()


@pytest.fixture
def book(world, oracle, plan):
    return KeyBook(world, oracle, plan)


def promised(world, oracle, book, *, retry_ms=1_000, ttl_ms=3_600_000, was_settled=True):
    promise = oracle.add(b"q", 20, retry_ms, ttl_ms, 1, world.now_ms)
    label = book.labels[promise.number] = Label(b"k", None, [])
    label.sent_ms, label.was_settled = world.now_ms, was_settled
    return promise


def add(world, name, promise, *options):
    return ask(world, name, "ADDJOB", "q", promise.body(), 0, "RETRY", promise.retry_ms // 1000, "KEY", "k", *options)


def test_producers_use_keys_again_and_again(world, plan, oracle, book):
    """The reply to most requests is the id of another request's job."""
    producer = KeyedProducer(world, oracle, plan, ClientPlan(0, "keyed producer"))
    producer.book = book
    producer.begin()
    world.run(20_000)
    answered = [promise for promise in oracle.promises if promise.answered_ms]
    assert 0 < len(answered) < len(oracle.promises)


def test_the_second_request_has_the_id_of_the_first(world, oracle, book):
    """It does not make a second job."""
    first, second = (promised(world, oracle, book) for _ in "ab")
    job_id = add(world, "a", first)
    assert book.answered(first, job_id, world.now_ms, True)
    assert add(world, "b", second) == job_id
    assert not book.answered(second, job_id, world.now_ms, True)


def test_another_answer_tells_which_request_made_a_job(world, oracle, book):
    """The producer's own reply was lost. From now on the job must not be lost."""
    first, second = (promised(world, oracle, book) for _ in "ab")
    job_id = add(world, "a", first)
    assert not book.answered(second, job_id, world.now_ms, True)
    assert (first.id, bool(first.answered_ms), second.id) == (job_id, True, b"")
    assert (first.asked, first.copies) == (None, 1)


@pytest.mark.parametrize(
    ("was_settled", "unrest_ms", "retry_ms", "rule"),
    [
        (True, 0, 1_000, "one job per key"),
        (False, 0, 1_000, ""),
        (True, 1 << 40, 1_000, ""),
        (False, 0, 0, "one at-most-once job per key"),
    ],
)
def test_two_ids_need_an_excuse(world, oracle, book, was_settled, unrest_ms, retry_ms, rule):
    """A fault meanwhile is an excuse, except for an at-most-once job."""
    job_ids = [b"D-0000000a-%b%b-05a1" % (b"k" * 18, end) for end in (b"aaaaaa", b"bbbbbb")]
    book.never_two = True
    assert book.is_settled()
    oracle.unrest_ms = unrest_ms
    first, second = (promised(world, oracle, book, retry_ms=retry_ms) for _ in "ab")
    book.answered(first, job_ids[0], world.now_ms, was_settled)
    if rule:
        with pytest.raises(RuleBrokenError, match=rule):
            book.answered(second, job_ids[1], world.now_ms, was_settled)
    else:
        book.answered(second, job_ids[1], world.now_ms, was_settled)


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("was_settled", [False, True])
def test_a_job_that_was_made_before_the_nodes_had_met_is_excused(world, oracle, book, is_over, was_settled):
    """Its producer got no reply. A later request, without faults, gets its id."""
    maker = promised(world, oracle, book, was_settled=was_settled)
    job_id = add(world, "a", maker)
    if is_over:
        ask(world, "a", "FASTACK", job_id)
    world.run(100)
    first, second = (promised(world, oracle, book) for _ in "ab")
    book.answered(first, job_id, world.now_ms, True)
    assert bool(maker.id) != is_over
    other_id = b"D-0000000b-%bbbbbbb-05a1" % job_id[KEY_AT:KEY_END]
    if was_settled:
        with pytest.raises(RuleBrokenError, match="one job per key"):
            book.answered(second, other_id, world.now_ms, True)
    else:
        book.answered(second, other_id, world.now_ms, True)


def test_a_key_is_free_when_the_life_of_its_job_is_over(world, oracle, book):
    first = promised(world, oracle, book, ttl_ms=4_000)
    book.answered(first, b"D-0000000a-%baaaaaa-05a1" % (b"k" * 18), world.now_ms, True)
    world.run(5_000)
    book.answered(promised(world, oracle, book), b"D-0000000a-%bbbbbbb-05a1" % (b"k" * 18), world.now_ms, True)


def test_a_wall_clock_that_is_set_ahead_may_free_a_key(world, oracle, book):
    """The node that remembers the key is down meanwhile."""
    first = promised(world, oracle, book)
    book.answered(first, b"D-0000000a-%baaaaaa-05a1" % (b"k" * 18), world.now_ms, True)
    first.early_ms = first.ttl_ms
    book.answered(promised(world, oracle, book), b"D-0000000a-%bbbbbbb-05a1" % (b"k" * 18), world.now_ms, True)


def test_ids_of_a_key_have_its_characters(world, oracle, book):
    book.answered(promised(world, oracle, book), b"D-0000000a-%baaaaaa-05a1" % (b"k" * 18), world.now_ms, True)
    with pytest.raises(RuleBrokenError, match="ids tell their key"):
        book.answered(promised(world, oracle, book), b"D-0000000a-%baaaaaa-05a1" % (b"l" * 18), world.now_ms, True)


@pytest.mark.plain
def test_the_stricter_rule_holds_only_if_no_fault_makes_a_node_forget():
    """A journal with the policy `always` keeps jobs after a kill, but not after a reset."""
    world, oracle = SimpleNamespace(), Oracle()

    def is_strict(*kinds, journals=("", "")):
        faults = tuple(Fault(number, 0, kind, 100, ()) for number, kind in enumerate(kinds))
        plan = SimpleNamespace(faults=faults, journals=journals, nodes=2, maxmemory=0)
        return KeyBook(world, oracle, plan).never_two

    assert is_strict("halves", "stop")
    assert not is_strict("kill")
    assert is_strict("kill", journals=("always", "always"))
    assert not is_strict("kill", "policy", journals=("always", "always"))
    assert not is_strict("halves", "reset-amid")
    assert not is_strict("reset", journals=("always", "always"))
