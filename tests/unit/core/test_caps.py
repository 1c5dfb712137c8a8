"""core/caps.py: slots of rates and of running leases on one node. In clusters: tests/scenarios/test_caps.py."""

from __future__ import annotations

import pytest

from disque_py.core.caps import PARTS_MAX, Window, aside_key
from tests.support.brokers import ask, ask_parsed, make_broker, make_client, pass_time


@pytest.fixture
def pair():
    broker = make_broker()
    return broker, make_client(broker)


def cap(pair, *words):
    assert ask(*pair, "QUEUE", "SET", "q", *words) == b"+OK\r\n"


def add(pair, value="", retry=60):
    meta = ("META", "user", value) if value else ()
    return ask(*pair, "ADDJOB", "q", "b", 0, "RETRY", retry, *meta)[1:-2]


def get(pair):
    """The id of the next job; None if there is none."""
    reply = ask_parsed(*pair, "GETJOB", "NOHANG", "FROM", "q")
    return reply[0][1] if reply else None


def test_a_window_forgets_what_is_older_than_its_time():
    """Spec CP1: never early, and at most a sixteenth of the time late."""
    window = Window()
    for now_ms in range(0, 1_000, 10):
        window.add(now_ms, 1, 1_000)
    assert window.used(999, 1_000) == 100
    assert 0 < window.used(1_500, 1_000) <= 56
    assert window.used(2_100, 1_000) == 0
    assert window.free_at_ms(1_000) == 0


def tell(window, other, now_ms, span_ms=1_600, delay_ms=0):
    """Let a window learn from another one, as capping.on_use does."""
    for count, at_ms in window.since(now_ms, span_ms):
        other.add_known(at_ms + delay_ms, count, span_ms)


def test_deliveries_of_which_a_node_hears_again_keep_their_moments():
    """Spec CP1: nodes that restart in turn tell each other old deliveries."""
    window = Window()
    for now_ms in range(0, 1_000, 10):
        window.add(now_ms, 1, 1_600)
    for hop in range(20):
        other = Window()
        tell(window, other, 1_000)
        assert other.used(1_000, 1_600) == 100, hop
        window = other
    assert 30 <= window.used(2_250, 1_600) <= 50
    assert window.used(2_700, 1_600) == 0


@pytest.mark.parametrize("delay_ms", [0, 90])
def test_deliveries_that_a_node_knows_already_count_once(delay_ms):
    """Spec CP1: although messages take time, and parts begin at other moments."""
    window, other = Window(), Window()
    for now_ms in range(0, 1_000, 7):
        window.add(now_ms, 1, 1_600)
        if now_ms > 300:
            other.add(now_ms + delay_ms, 1, 1_600)
    for _ in range(3):
        tell(window, other, 1_000)
        tell(other, window, 1_000)
    assert window.used(1_000, 1_600) == other.used(1_000, 1_600) == 143


def test_deliveries_that_a_node_lacks_are_counted_at_their_moments():
    """Spec CP1: later ones and older ones."""
    window, other = Window(), Window()
    window.add(0, 5, 1_600)
    other.add(500, 5, 1_600)
    tell(other, window, 600)
    tell(window, other, 600)
    assert window.used(600, 1_600) == other.used(600, 1_600) == 10
    assert window.used(1_700, 1_600) == other.used(1_700, 1_600) == 5


def test_a_window_has_a_bounded_number_of_parts():
    """Spec CP1: it counts deliveries a little longer instead."""
    window = Window()
    window.add(2_000, 1, 1_600)
    for number in range(2, 500):
        window.add_known(2_000 - number, number, 1_600)
    assert window.used(2_000, 1_600) == 499
    assert len(window.since(2_000, 1_600)) == PARTS_MAX


def test_values_have_keys_of_their_own():
    """Spec CP3: also values that look like others put together."""
    pairs = [(b"q", b"=a", b"=b"), (b"q", b"=a=b", b""), (b"q", None, b"=a"), (b"q", b"=a", None), (b"q", b"", b"=a")]
    assert len({aside_key(each) for each in pairs}) == len(pairs)


def test_a_rate_counts_deliveries(pair):
    """Spec CP1."""
    cap(pair, "rate", "2/10s")
    ids = [add(pair) for _ in range(3)]
    assert [get(pair) for _ in range(3)] == [*ids[:2], None]
    broker, client = pair
    stat = ask_parsed(broker, client, "QSTAT", "q")
    assert stat[stat.index(b"rate-used") + 1] == 2
    assert ask(*pair, "QLEN", "q") == b":1\r\n"


@pytest.mark.parametrize(
    ("words", "is_free"),
    [
        (("rate", "3/10s"), 1),
        (("rate", "2/20s"), 0),
        (("rate", "1/10s"), 0),
        (("max-running", 5, "max-running-by", "user"), 0),
        (("rate-by", "user"), 2),
    ],
)
def test_deliveries_count_although_the_number_of_the_rate_changes(pair, words, is_free):
    """Spec CP2: only with another `rate-by` they are counted anew."""
    cap(pair, "rate", "2/10s")
    ids = [add(pair) for _ in range(5)]
    assert [get(pair) for _ in range(3)] == [*ids[:2], None]
    cap(pair, *words)
    settle(pair)
    assert [get(pair) is not None for _ in range(3)] == [number < is_free for number in range(3)]


def test_an_ack_frees_a_slot(pair):
    """Spec CP1."""
    cap(pair, "max-running", 1)
    first, second = add(pair), add(pair)
    assert [get(pair), get(pair)] == [first, None]
    ask(*pair, "ACKJOB", first)
    settle(pair)
    assert get(pair) == second


@pytest.mark.parametrize("way", [("DELAY", 60), ("FINAL",), ("back-off",), ("paused",), ("dead letter",), ()])
def test_a_nack_frees_a_slot_in_the_same_turn(pair, way):
    """Spec CP1: also if the job is not queued again now."""
    cap(pair, "max-running", 1)
    first, second = add(pair), add(pair)
    assert [get(pair), get(pair)] == [first, None]
    if way == ("back-off",):
        cap(pair, "backoff", "fixed:5000:5000")
    if way == ("paused",):
        ask(*pair, "PAUSE", "q", "in")
    if way == ("dead letter",):
        cap(pair, "dead-letter", "dead")
    options = way if way[:1] in (("DELAY",), ("FINAL",)) else ("FINAL",) if way == ("dead letter",) else ()
    assert ask(*pair, "NACK", first, *options) == b":1\r\n"
    settle(pair)
    assert not pair[0].caps.running
    assert get(pair) == (second if way else first)


def settle(pair):
    """The end of a turn."""
    from disque_py.node import dispatch

    dispatch.settle(pair[0])


def test_values_do_not_hold_back_each_other(pair):
    """Spec CP3: and the best job of each value comes first."""
    cap(pair, "max-running", 1, "max-running-by", "user")
    ids = [add(pair, value) for value in ("ann", "ann", "bob", "", "")]
    assert [get(pair) for _ in range(4)] == [ids[0], ids[2], ids[3], None]


def test_a_job_that_is_held_back_is_found_by_its_pairs(pair):
    """Spec CP3: GETJOB WHERE passes jobs of values without a slot by, too."""
    cap(pair, "max-running", 1, "max-running-by", "user")
    ids = [add(pair, value) for value in ("ann", "ann", "bob")]
    for expected in (ids[0], None):
        reply = ask_parsed(*pair, "GETJOB", "NOHANG", "WHERE", "user", "ann", "FROM", "q")
        assert (reply[0][1] if reply else None) == expected
    assert get(pair) == ids[2]


def test_queues_without_caps_keep_nothing(pair):
    """Spec CP1."""
    add(pair)
    get(pair)
    caps = pair[0].caps
    assert [caps.limits, caps.running, caps.windows, caps.uses, caps.admitted] == [{}] * 5


def test_a_flush_frees_all_slots(pair):
    """Spec CP1."""
    cap(pair, "max-running", 1)
    add(pair)
    get(pair)
    ask(*pair, "DEBUG", "FLUSHALL")
    assert not pair[0].caps.running
    second = add(pair)
    assert get(pair) == second


def test_a_slot_of_a_rate_is_free_when_its_time_is_over(pair):
    """Spec CP1."""
    cap(pair, "rate", "1/1s")
    ids = [add(pair) for _ in range(2)]
    assert [get(pair), get(pair)] == [ids[0], None]
    settle(pair)
    pass_time(pair[0], 1_100)
    from disque_py.core import timers

    timers.tick(pair[0])
    settle(pair)
    assert get(pair) == ids[1]
