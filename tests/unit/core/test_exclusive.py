"""core/exclusive.py: deliveries under a claim."""

from __future__ import annotations

import pytest

from claimed_worlds import add, begin_get, deliveries, exclusive, get, quorum, stat
from cluster_bus.messages import LEASED
from disque_py.core import exclusive as exclusive_module
from disque_py.core import lifecycle
from disque_py.core.errors import CommandError
from disque_py.core.job_snapshot import job_of, snapshot_of
from disque_py.simulator.checks.books import check_books
from voting_worlds import voters


def run_until_replied(world, talker, within_ms=3_000):
    for _ in range(within_ms // 10):
        if talker.replies:
            break
        world.run(10)
    return deliveries(talker.replies[0]) if talker.replies else []


def refused(reply):
    return str(reply).split(" ", maxsplit=1)[0]


def test_two_jobs_of_one_value_never_run_at_the_same_time():
    """Spec EX3."""
    world = exclusive()
    first, second = add(world, "a", "ann"), add(world, "a", "ann")
    assert [each.id for each in get(world, "a", count=10)] == [first]
    assert get(world, "a") == []
    assert world.ask("a", "ACKJOB", first) == 1
    world.run(50)
    assert [each.id for each in get(world, "a", count=10)] == [second]


def test_jobs_of_other_values_are_not_held_back():
    """Spec EX3."""
    world = exclusive()
    add(world, "a", "ann")
    add(world, "a", "ann")
    bob = add(world, "a", "bob")
    assert len(get(world, "a")) == 1
    assert [each.id for each in get(world, "a", count=10)] == [bob]


def test_a_value_is_held_by_one_node_only():
    """Spec EX3."""
    world = exclusive()
    add(world, "a", "ann")
    add(world, "b", "ann")
    assert len(get(world, "a")) + len(get(world, "b")) == 1


def test_jobs_of_a_busy_value_keep_no_slot_of_a_cap():
    """Spec EX3, CP3: the queue became exclusive later, so its jobs get their value when they are fetched."""
    world = voters("abc")
    for _ in range(20):
        add(world, "a", "ann", copies=1, retry=600)
    bob = add(world, "a", "bob", copies=1, retry=600)
    assert world.ask("a", "QUEUE", "SET", "q", "max-running", 2, "type", "exclusive", "exclusive-by", "user") == b"OK"
    world.run(2_000)
    assert len(get(world, "a")) == 1
    waiting = begin_get(world, "a")
    assert [each.id for each in run_until_replied(world, waiting)] == [bob]


def test_fences_grow_with_each_delivery():
    """Spec EX6."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    first = get(world, "a")[0]
    assert world.ask("a", "NACK", job_id) == 1
    world.run(50)
    second = get(world, "a")[0]
    assert (second.id, second.attempt) == (job_id, 2)
    assert second.fence > first.fence > 0


def test_a_value_freed_on_one_node_is_offered_on_another_within_a_second():
    """Spec EX4."""
    world = exclusive()
    add(world, "a", "ann", copies=1)
    add(world, "b", "ann", copies=1)
    held = get(world, "a")[0]
    waiting = begin_get(world, "b")
    world.run(2_000)
    assert waiting.replies == []
    assert world.ask("a", "ACKJOB", held.id) == 1
    assert len(run_until_replied(world, waiting, within_ms=1_000)) == 1


def test_the_value_of_a_dead_node_is_offered_when_the_lease_is_over():
    """Spec EX5."""
    world = exclusive("abcd", "bcd")
    add(world, "a", "ann", retry=5)
    add(world, "b", "ann", retry=5)
    assert len(get(world, "a")) == 1
    waiting = begin_get(world, "b")
    world.run(200)
    world.crash("a")
    world.run(4_000)
    assert waiting.replies == []
    assert len(run_until_replied(world, waiting, within_ms=2_500)) == 1


def test_consumers_that_wait_get_jobs_of_different_values():
    world = exclusive()
    talkers = [begin_get(world, "a") for _ in range(3)]
    for user in ("ann", "ann", "bob", "cid"):
        add(world, "a", user)
    world.run(100)
    bodies = sorted(delivery.body for talker in talkers for delivery in run_until_replied(world, talker))
    assert bodies == [b"work-ann", b"work-bob", b"work-cid"]


def test_a_lease_that_is_over_frees_the_value():
    """Spec EX5."""
    world = exclusive()
    first, second = add(world, "a", "ann", retry=2), add(world, "a", "ann", retry=2)
    assert [each.id for each in get(world, "a")] == [first]
    waiting = begin_get(world, "a")
    world.run(1_900)
    assert waiting.replies == []
    assert run_until_replied(world, waiting, within_ms=1_500)[0].id in (first, second)


def test_working_renews_the_claim():
    """Spec EX5."""
    world = exclusive()
    job_id = add(world, "a", "ann", retry=2)
    add(world, "b", "ann", retry=2)
    get(world, "a")
    for _ in range(4):
        world.run(1_500)
        assert world.ask("a", "WORKING", job_id) == 2
        assert get(world, "b") == []


def test_working_tells_the_lease_that_the_claim_allows():
    """Spec EX5: the lease ends before the grants, which last at most claim-lease-max, on the fastest clock."""
    world = exclusive()
    most_s = world["a"].claims.memory.list.lease_max_ms // 1_000
    job_id = add(world, "a", "ann", retry=most_s)
    get(world, "a")
    told_ms = world.ask("a", "WORKING", job_id, "LEASEMS", 1_000 * most_s)
    assert told_ms < 1_000 * most_s
    reply = world.ask("a", "SHOW", job_id)
    assert told_ms - 5 <= dict(zip(reply[::2], reply[1::2], strict=True))[b"next-requeue-within"] <= told_ms


def test_a_claim_that_is_renewed_after_its_lease_keeps_other_jobs_of_its_value_back():
    """A waiting consumer made its node look at such a job again and again until the lease was over (seed 14129)."""
    world = exclusive()
    first, second = add(world, "a", "ann", retry=2), add(world, "a", "ann", retry=2)
    [held] = get(world, "a")
    assert held.id == first
    queue = world["a"].queues[b"q"]
    while not queue.length:  # The lease is over, and the grants of the voters last a little longer.
        world.run(1)
    assert world.ask("a", "WORKING", first, "FENCE", held.fence) == 2
    assert queue.length == 0
    check_books(world.machines["a"])
    waiting = begin_get(world, "a")
    world.run(100)
    assert (waiting.replies, world["a"].exclusive.looked) == ([], 0)
    assert world.ask("a", "ACKJOB", first, "FENCE", held.fence) == 1
    assert [each.id for each in run_until_replied(world, waiting)] == [second]


def test_working_without_a_majority_leaves_the_old_lease():
    """Spec EX5."""
    world = exclusive()
    job_id = add(world, "a", "ann", retry=4)
    get(world, "a")
    for name in "bc":
        world.cut("a", name)
    world.run(100)
    assert refused(world.ask("a", "WORKING", job_id)) == "NOQUORUM"
    assert world.ask("a", "ACKJOB", job_id) == 1


def test_working_elsewhere_needs_the_fence():
    """Spec EX6."""
    world = exclusive()
    job_id = add(world, "a", "ann", retry=2)
    fence = get(world, "a")[0].fence
    world.run(50)
    assert refused(world.ask("b", "WORKING", job_id)) == "FENCED"
    assert world.ask("b", "WORKING", job_id, "FENCE", fence) == 2
    world.run(1_500)
    assert world.ask("b", "WORKING", job_id, "FENCE", fence) == 2
    world.run(1_500)
    assert get(world, "a") == get(world, "b") == get(world, "c") == []


def test_in_a_minority_no_job_is_delivered():
    """Spec EX3, EX8."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    for name in "bc":
        world.cut("a", name)
    world.run(100)
    reply = world.ask("a", "GETJOB", "NOHANG", "FROM", "q")
    assert str(reply) == "NOQUORUM no majority of the voters answered"
    world.ask("a", "ADDJOB", "plain", "body", 0, "REPLICATE", 1)
    assert len(world.ask("a", "GETJOB", "NOHANG", "COUNT", 5, "FROM", "q", "plain")) == 1
    waiting = begin_get(world, "a")
    world.run(3_000)
    assert waiting.replies == []
    world.heal()
    assert run_until_replied(world, waiting, within_ms=20_000)[0].id == job_id


def test_a_claim_of_a_client_that_hung_up_is_given_back():
    """Spec EX3."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    talker = world.client("b")
    talker.say("GETJOB", "FROM", "q")
    world.run(3)
    talker.hang_up()
    world.run(2_000)
    assert [each.id for each in get(world, "a") or get(world, "b")] == [job_id]


def test_the_end_of_a_lease_that_was_renewed_here_does_not_free_the_value_of_a_later_claim():
    """Spec EX4, EX5: this node renewed the lease, and did not hear that the work ended where it was delivered."""
    world = exclusive()
    held = add(world, "a", "ann", retry=2)
    later = [add(world, "b", "ann", retry=30, copies=1) for _ in range(2)]
    fence = get(world, "a")[0].fence
    world.run(50)
    world.client("b").say("WORKING", held, "FENCE", fence)
    world.run(1)
    waiting = begin_get(world, "b")  # Its claim begins before the renewal is decided, and is refused.
    world.run(20)
    world["a"].exclusive.running[held].is_shared = False  # The LEASED is still on its way to this node.
    assert world.ask("a", "ACKJOB", held) == 1
    assert [each.id for each in run_until_replied(world, waiting)] == later[:1]
    assert world["b"].exclusive.running.keys() == {held, *later[:1]}
    world.run(2_500)
    assert world["b"].exclusive.running.keys() == {*later[:1]}
    assert len(world["b"].exclusive.busy) == 1


def test_an_ack_elsewhere_without_the_fence_leaves_the_claim_to_the_lease():
    """Spec EX5."""
    world = exclusive()
    first = add(world, "a", "ann", retry=3)
    add(world, "a", "ann", retry=3)
    get(world, "a")
    world.run(50)
    assert world.ask("b", "ACKJOB", first) == 1
    world.run(1_000)
    assert get(world, "a") == get(world, "b") == []


def test_an_ack_elsewhere_with_the_fence_ends_the_claim():
    """Spec EX5."""
    world = exclusive()
    first, second = add(world, "a", "ann"), add(world, "a", "ann")
    fence = get(world, "a")[0].fence
    world.run(50)
    assert world.ask("b", "ACKJOB", first, "FENCE", fence) == 1
    world.run(100)
    assert [each.id for each in get(world, "a")] == [second]


@pytest.mark.parametrize("done", [("a", "ACKJOB"), ("a", "NACK"), ("a", "fence"), ("b", "fence"), ("c", "fence")])
def test_a_value_whose_claim_was_renewed_elsewhere_is_free_everywhere_at_its_end(done):
    """Spec EX4, EX5: WORKING came to another node than the delivery."""
    world = exclusive()
    add(world, "a", "ann")
    held = get(world, "a")[0]
    for name in "abc":
        add(world, name, "ann", copies=1)
    world.run(50)
    assert world.ask("b", "WORKING", held.id, "FENCE", held.fence) == 10
    world.run(50)
    assert sum(stat(world, name)[b"claims"] for name in "abc") == 1
    node, word = done
    words = ("ACKJOB", held.id, "FENCE", held.fence) if word == "fence" else (word, held.id)
    assert world.ask(node, *words) == 1
    for _ in range(3):
        world.run(500)
        found = [each for name in "abc" for each in get(world, name)]
        assert len(found) == 1
        assert world.ask(next(name for name in "abc" if world[name].exclusive.running), "ACKJOB", found[0].id) == 1


def test_a_canceled_job_keeps_its_value_until_its_worker_is_answered():
    """Spec EX5."""
    world = exclusive()
    first, second = add(world, "a", "ann"), add(world, "a", "ann")
    get(world, "a")
    assert world.ask("a", "CANCELJOB", first) == 1
    world.run(500)
    assert get(world, "a") == []
    assert refused(world.ask("a", "WORKING", first)) == "CANCELED"
    world.run(100)
    assert [each.id for each in get(world, "a")] == [second]


@pytest.mark.parametrize(("name", "seconds"), [("a", 0), ("a", 60), ("b", 0)])
@pytest.mark.parametrize("word", ["WORKING", "PROGRESS", "ACKJOB", "NACK"])
def test_each_command_of_the_worker_of_a_canceled_job_frees_the_value(name, word, seconds):
    """Spec EX5: at the node that delivered, or with the fence at a node that has not forgotten the job."""
    world = exclusive()
    first = add(world, "a", "ann", retry=600)
    world.run(5)
    second = add(world, "a", "ann", retry=600)
    fence = get(world, "a")[0].fence
    world.run(50)
    assert world.ask("a", "CANCELJOB", first) == 1
    world.run(100 + 1_000 * seconds)
    assert get(world, "a") == []
    named = (word, first, 50) if word == "PROGRESS" else (word, first)
    world.ask(name, *named, *(("FENCE", fence) if name == "b" else ()))
    world.run(1_000)
    assert [each.id for each in get(world, "a")] == [second]


@pytest.mark.parametrize("word", ["WORKING", "PROGRESS"])
def test_a_worker_that_hears_elsewhere_of_an_ack_goes_on_until_then(word):
    """Spec EX5: an ack at another node without FENCE doesn't end the claim before the lease. Nor does news of it."""
    world = exclusive()
    first = add(world, "a", "ann", retry=600)
    world.run(5)
    add(world, "a", "ann", retry=600)
    fence = get(world, "a")[0].fence
    world.run(50)
    assert world.ask("b", "ACKJOB", first) == 1
    named = (word, first, 50) if word == "PROGRESS" else (word, first)
    for _ in range(2):
        assert refused(world.ask("b", *named, "FENCE", fence)) == "NOJOB"
        world.run(1_000)
        assert get(world, "a") == []


def test_a_cancellation_with_the_fence_ends_the_claim():
    """Spec EX5."""
    world = exclusive()
    first, second = add(world, "a", "ann"), add(world, "a", "ann")
    fence = get(world, "a")[0].fence
    world.run(50)
    assert world.ask("c", "CANCELJOB", first, "FENCE", fence) == 1
    world.run(100)
    assert [each.id for each in get(world, "a")] == [second]


def test_an_ack_with_the_fence_frees_the_value_where_the_canceled_job_is_forgotten():
    """Spec EX5."""
    world = exclusive()
    first = add(world, "a", "ann", retry=600)
    fence = get(world, "a")[0].fence
    world.ask("a", "CANCELJOB", first)
    second = add(world, "c", "ann", retry=600)
    world.run(60_000)
    assert world.ask("b", "ACKJOB", first, "FENCE", fence) == 0
    world.run(1_000)
    assert [each.id for each in get(world, "c")] == [second]


@pytest.mark.parametrize(
    "command",
    [("ACKJOB",), ("NACK",), ("WORKING",), ("CANCELJOB",)],
)
def test_commands_of_an_older_claim_are_fenced(command):
    """Spec EX6."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    old = get(world, "a")[0].fence
    world.ask("a", "NACK", job_id)
    world.run(50)
    new = get(world, "a")[0].fence
    world.run(50)
    for name in "abc":
        assert str(world.ask(name, *command, job_id, "FENCE", old)) == "FENCED A later claim is known"
    assert not isinstance(world.ask("a", *command, job_id, "FENCE", new), CommandError)


def test_an_ack_with_a_fence_reaches_the_holders_from_a_node_without_the_job():
    """Spec EX6."""
    world = exclusive("abcd", "abc")
    job_id = add(world, "a", "ann", copies=1)
    fence = get(world, "a")[0].fence
    assert world.ask("d", "ACKJOB", job_id, "FENCE", fence - 1) == 0
    world.run(50)
    assert world.ask("a", "SHOW", job_id) is not None
    assert world.ask("d", "ACKJOB", job_id, "FENCE", fence) == 0
    world.run(50)
    assert world.ask("a", "SHOW", job_id) is None


def test_a_job_that_errs_frees_its_value():
    """Spec EX5."""
    world = exclusive()
    first, second = add(world, "a", "ann"), add(world, "a", "ann")
    get(world, "a")
    assert world.ask("a", "NACK", first, "FINAL") == 1
    world.run(50)
    assert [each.id for each in get(world, "a")] == [second]


def test_a_paused_queue_claims_nothing_and_its_workers_go_on():
    """Spec EX9."""
    world = exclusive()
    first = add(world, "a", "ann", retry=3)
    add(world, "a", "bob", retry=3)
    get(world, "a")
    world.ask("a", "PAUSE", "q", "out")
    assert world.ask("a", "WORKING", first) == 3
    assert get(world, "a") == []
    assert world.ask("a", "ACKJOB", first) == 1


@pytest.mark.parametrize("is_first", [False, True])
def test_a_claim_that_is_granted_during_a_pause_is_released(is_first):
    """Spec EX9: the pause came while the voters were asked."""
    world = exclusive()
    operator = world.client("c")
    consumer = begin_get(world, "c", timeout_ms=1_000) if is_first else None
    add(world, "c", "ann", copies=1)
    consumer = consumer or begin_get(world, "c", timeout_ms=1_000)
    assert world["c"].exclusive.under_way == 1
    operator.say("PAUSE", "q", "out")
    world.run(500)
    assert world["c"].exclusive.under_way == 0
    assert (consumer.replies, world["c"].exclusive.running) == ([], {})
    operator.say("PAUSE", "q", "none")
    assert [each.body for each in run_until_replied(world, consumer)] == [b"work-ann"]


def test_a_nack_while_input_is_paused_frees_the_value():
    """Spec EX9."""
    world = exclusive()
    first, second = add(world, "a", "ann"), add(world, "a", "ann")
    get(world, "a")
    world.ask("a", "PAUSE", "q", "in")
    assert world.ask("a", "NACK", first) == 1
    world.run(50)
    assert [each.id for each in get(world, "a")] == [second]


def test_a_filtered_consumer_gets_a_job_of_a_free_value_behind_another_kind():
    """Spec EX8."""
    world = exclusive()
    add(world, "a", "ann", "META", "kind", "cpu")
    job_id = add(world, "a", "ann", "META", "kind", "gpu")
    assert [each.id for each in get(world, "a", "WHERE", "kind", "gpu")] == [job_id]
    assert get(world, "a", "WHERE", "kind", "cpu") == []


@pytest.mark.parametrize("node", ["a", "b"])
@pytest.mark.parametrize("way", ["poll", "wait"])
def test_a_filtered_consumer_gets_a_job_of_a_free_value_behind_very_many_of_a_busy_one(way, node):
    """Spec EX8: also if it waits at another node."""
    world = exclusive()
    for _ in range(2_100):
        add(world, "a", "ann", "META", "kind", "video", copies=1, retry=600)
    bob = add(world, "a", "bob", "META", "kind", "video", copies=1, retry=600)
    assert len(get(world, "a")) == 1
    if way == "poll" and node == "a":
        found = get(world, "a", "WHERE", "kind", "video")
    else:
        found = run_until_replied(world, begin_get(world, node, "WHERE", "kind", "video"), within_ms=5_000)
    assert [each.id for each in found] == [bob]


def test_a_filtered_consumer_may_wait_for_a_claimed_job():
    """Spec EX8."""
    world = exclusive()
    talker = begin_get(world, "a", "WHERE", "kind", "gpu")
    world.run(50)
    job_id = add(world, "a", "ann", "META", "kind", "gpu")
    assert [each.id for each in run_until_replied(world, talker)] == [job_id]


def test_a_delivery_under_a_token_can_be_repeated_and_extended():
    """Spec EX8."""
    world = exclusive()
    add(world, "a", "ann", retry=2)
    add(world, "b", "ann", retry=2)
    first = get(world, "a", "TOKEN", "t")
    assert [each.id for each in get(world, "a", "TOKEN", "t")] == [first[0].id]
    world.run(1_500)
    assert world.ask("a", "EXTENDTOKEN", "t", 5) == 1
    world.run(3_000)
    assert get(world, "b") == []
    assert world.ask("a", "ACKTOKEN", "t") == 1
    world.run(100)
    assert len(get(world, "b")) == 1


def test_jobs_of_a_token_that_need_no_claim_may_be_leased_for_any_time():
    """Spec EX1. This holds also if other jobs of the node run under claims."""
    world = exclusive()
    add(world, "a", "ann")
    assert len(get(world, "a")) == 1
    world.ask("a", "ADDJOB", "simple", "body", 0, "RETRY", 600)
    assert len(world.ask("a", "GETJOB", "TOKEN", "t", "FROM", "simple")) == 1
    assert world.ask("a", "EXTENDTOKEN", "t", 86_400) == 1


def test_a_moved_job_needs_no_claim_in_a_simple_queue():
    """Spec EX2."""
    world = exclusive()
    add(world, "a", "ann")
    moved = add(world, "a", "ann")
    get(world, "a")
    reply = world.ask("a", "QMOVE", "q", "plain")
    assert dict(zip(reply[::2], reply[1::2], strict=True))[b"jobs"] == 1
    assert [entry[1] for entry in world.ask("a", "GETJOB", "NOHANG", "FROM", "plain")] == [moved]


@pytest.mark.parametrize("way", ["QMOVE", "MOVEJOB"])
def test_an_at_most_once_job_is_not_moved_to_a_queue_whose_jobs_need_a_claim(way):
    """Spec EX1, MV3: it would run next to another job of its value."""
    world = exclusive()
    add(world, "a", "ann")
    assert len(get(world, "a")) == 1
    once = world.ask("a", "ADDJOB", "plain", "once", 0, "RETRY", 0, "META", "user", "ann")
    if way == "MOVEJOB":
        assert world.ask("a", "MOVEJOB", once, "TO", "q") == 0
    else:
        reply = world.ask("a", "QMOVE", "plain", "q")
        assert reply[2:6] == [b"jobs", 0, b"failed", 1]
    assert get(world, "a") == []
    assert [entry[1] for entry in world.ask("a", "GETJOB", "NOHANG", "FROM", "plain")] == [once]


def test_jobs_that_were_there_before_the_setting_are_claimed_by_their_metadata():
    """Spec EX2."""
    world = exclusive()
    world.ask("a", "QUEUE", "SET", "q", "type", "simple")
    world.run(50)
    jobs = [add(world, "a", user) for user in ("ann", "ann", "")]
    world.ask("a", "QUEUE", "SET", "q", "type", "exclusive", "exclusive-by", "user")
    world.run(50)
    assert [each.id for each in get(world, "a", count=10)] == [jobs[0], jobs[2]]
    assert stat(world, "a")[b"without-key"] == 0


def test_pending_jobs_that_lack_the_name_are_counted_before_they_are_fetched():
    """Spec EX2."""
    world = voters("abc")
    world.ask("a", "ADDJOB", "q", "x", 0, "META", "user", "ann")
    for _ in range(2):
        world.ask("a", "ADDJOB", "q", "x", 0)
    world.ask("b", "QUEUE", "SET", "q", "type", "exclusive", "exclusive-by", "user")
    world.run(100)
    assert stat(world, "a")[b"without-key"] == 2


@pytest.mark.parametrize("setting", [("assign", "quorum"), ("type", "exclusive", "exclusive-by", "user")])
def test_a_lease_above_the_longest_is_refused_also_where_no_job_is(setting):
    """Spec EX1."""
    world = voters("abc")
    world.ask("a", "QUEUE", "SET", "q", *setting)
    text = "ERR the lease is above claim-lease-max"
    for words in (("NOHANG",), ("TIMEOUT", 1_000)):
        assert str(world.ask("a", "GETJOB", *words, "LEASE", 3_601, "FROM", "other", "q")) == text
    assert world.ask("a", "GETJOB", "NOHANG", "LEASE", 3_600, "FROM", "q") is None
    assert world.ask("a", "GETJOB", "NOHANG", "LEASE", 3_601, "FROM", "other") is None


def test_stamped_jobs_keep_their_stamp_in_a_simple_queue():
    """Spec EX2."""
    world = exclusive()
    add(world, "a", "ann")
    add(world, "a", "ann")
    world.ask("a", "QUEUE", "RESET", "q")
    world.run(50)
    assert len(get(world, "a", count=10)) == 1


def test_figures_of_the_queue_count_claims_and_all_pending_jobs():
    world = exclusive()
    for _ in range(3):
        add(world, "a", "ann")
    get(world, "a")
    found = stat(world, "a")
    assert (found[b"len"], found[b"claims"], found[b"running"]) == (2, 1, 1)
    assert world.ask("a", "QLEN", "q") == 2
    assert len(world.ask("a", "QPEEK", "q", 10)) == 2


def test_the_fence_survives_a_restart_of_the_node():
    """Spec EX6."""
    world = exclusive("abc")
    world.add("d", journal="always")
    world.meet("a", "d")
    world.run(3_000)
    job_id = add(world, "d", "ann", copies=1, retry=20)
    old = get(world, "d")[0].fence
    world.ask("d", "NACK", job_id)
    world.run(50)
    new = get(world, "d")[0].fence
    world.run(1_500)
    world.crash("d")
    world.restart("d")
    world.run(3_000)
    assert refused(world.ask("d", "WORKING", job_id, "FENCE", old)) == "FENCED"
    assert world.ask("d", "WORKING", job_id, "FENCE", new) == 20


def test_a_holder_knows_the_claim_of_another_nodes_delivery_after_a_restart():
    """Spec EX6."""
    world = exclusive("abc")
    world.add("d", journal="always")
    world.meet("a", "d")
    world.run(3_000)
    job_id = add(world, "a", "ann", copies=4, retry=20)
    delivery = get(world, "a")[0]
    world.run(100)
    world.crash("d")
    world.restart("d")
    world.run(3_000)
    assert refused(world.ask("d", "ACKJOB", job_id, "FENCE", delivery.fence - 1)) == "FENCED"
    assert world.ask("d", "WORKING", job_id, "FENCE", delivery.fence) == 20


def test_a_renewal_extends_the_job_that_the_node_has_when_the_voters_have_answered():
    """Spec EX5: the node was flushed meanwhile, and got a copy of the job again."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    fence = get(world, "a")[0].fence
    world.run(100)
    broker, holder = world.machines["a"].broker, world.machines["b"].broker
    worker = world.client("a")
    worker.say("WORKING", job_id, "FENCE", fence)
    world.client("a").say("DEBUG", "FLUSHALL")
    while broker.find(job_id) is not None:
        world.run(1)
    copy = job_of(broker, snapshot_of(holder, holder.find(job_id)))
    lifecycle.register(broker, copy)
    assert worker.replies == []
    world.run(100)
    assert worker.replies == [10]
    assert copy.requeue_at_ms > broker.now_ms


def test_under_quorum_a_job_has_one_worker():
    """Spec EX7."""
    world = quorum()
    job_id = add(world, "a", copies=3, retry=5)
    first = get(world, "a")[0]
    world.run(50)
    world.ask("b", "ENQUEUE", job_id)
    world.run(50)
    assert get(world, "b") == get(world, "c") == []
    assert world.ask("a", "NACK", job_id) == 1
    world.run(1_500)
    again = (get(world, "a") + get(world, "b") + get(world, "c"))[0]
    assert (again.id, again.attempt) == (job_id, 2)
    assert again.fence > first.fence


def test_under_quorum_the_voters_count_the_attempts():
    """Spec EX7: a node that has not heard of the deliveries learns of them by its claim."""
    world = quorum()
    job_id = add(world, "a", "", "ATTEMPTS", 2, copies=1, retry=2)
    broker = world.machines["a"].broker
    for attempt in (1, 2):
        assert get(world, "a")[0].attempt == attempt
        world.ask("a", "NACK", job_id)
        world.run(50)
        job = broker.find(job_id)
        assert job.part.is_errored == (attempt == 2)
    world.ask("a", "ENQUEUE", job_id)
    world.run(50)
    broker.find(job_id).attempt = 2
    assert get(world, "a")[0].attempt == 3


def test_under_quorum_a_job_may_have_the_longest_ttl():
    """Spec EX7: voters keep the count for the longest span that they accept."""
    world = quorum()
    job_id = add(world, "a", "", "ATTEMPTS", 3, "TTL", 9_200_000_000_000)
    assert [(each.id, each.attempt) for each in get(world, "a")] == [(job_id, 1)]
    assert world.ask("a", "NACK", job_id) == 1
    world.run(50)
    assert [each.attempt for each in get(world, "a")] == [2]


@pytest.mark.parametrize("limit", [1, 2])
def test_under_quorum_attempts_of_a_dead_node_count_that_no_holder_heard_of(limit):
    """Spec EX7: the voters know of the delivery."""
    world = quorum()
    job_id = add(world, "a", "", "ATTEMPTS", limit, retry=2)
    world.run(50)
    world.drop = lambda sender, receiver, kind, item: kind == LEASED
    assert [each.attempt for each in get(world, "a")] == [1]
    world.crash("a")
    world.run(30_000)
    assert [world.machines[name].broker.find(job_id).attempt for name in "bc"] == [0, 0]
    found = get(world, "b") + get(world, "c")
    assert [(each.id, each.attempt) for each in found] == [(job_id, 2)] * (limit - 1)


def test_under_quorum_a_job_without_attempts_left_becomes_errored():
    """Spec EX7: this node has not heard of the last delivery."""
    world = quorum()
    job_id = add(world, "a", "", "ATTEMPTS", 1, copies=1, retry=2)
    job = world.machines["a"].broker.find(job_id)
    get(world, "a")
    world.ask("a", "DEQUEUE", job_id)
    job.attempt = 0
    world.run(4_000)
    assert get(world, "a") == []
    assert job.part.is_errored


def test_a_claim_that_is_refused_after_a_flush_changes_no_forgotten_job():
    """Spec EX7: the voters say that the job has no attempts left, but the node has forgotten the job meanwhile."""
    world = quorum()
    job_id = add(world, "a", "", "ATTEMPTS", 1, copies=1, retry=2)
    broker = world.machines["a"].broker
    get(world, "a")
    world.ask("a", "DEQUEUE", job_id)
    broker.find(job_id).attempt = 0
    world.run(4_000)
    begin_get(world, "a")
    world.client("a").say("DEBUG", "FLUSHALL")
    world.run(3_000)
    assert (broker.job_count, broker.stats.jobs_errored) == (0, 0)
    check_books(world.machines["a"])


def test_both_claims_may_be_needed():
    """Spec EX7."""
    world = exclusive()
    world.ask("a", "QUEUE", "SET", "q", "assign", "quorum")
    world.run(50)
    first, second = add(world, "a", "ann"), add(world, "a", "ann")
    found = get(world, "a", count=5)
    assert [each.id for each in found] == [first]
    world.ask("b", "ACKJOB", first, "FENCE", found[0].fence)
    world.run(100)
    assert [each.id for each in get(world, "a", count=5)] == [second]


@pytest.mark.parametrize("make", [exclusive, quorum])
def test_a_lease_that_is_short_against_the_way_to_the_voters_is_delivered(make):
    """The claim was over before the grant arrived, again and again. Spec EX3."""
    world = make(delay_ms=80)
    job_id = add(world, "a", "ann")
    talker = begin_get(world, "a", "LEASEMS", 20)
    assert [each.id for each in run_until_replied(world, talker)] == [job_id]


def test_slow_claims_make_later_claims_longer_for_a_while_only():
    world = exclusive(delay_ms=80)
    for user in range(40):
        add(world, "a", f"u{user}")
    get(world, "a")
    state = world["a"].exclusive
    assert state.took_ms >= 160
    world.traffic.delay_ms = (1, 1)
    for _ in range(35):
        get(world, "a")
    assert state.took_ms < 20


def test_a_value_that_is_refused_again_and_again_has_one_timer():
    """Spec EX4: its grant may run for an hour, and the value is tried again every second."""
    world = exclusive()
    add(world, "a", "ann", retry=3_600)
    get(world, "a")
    add(world, "b", "ann", retry=3_600, copies=1)
    waiting = begin_get(world, "b")
    world.run(5_000)
    before = world["b"].schedule.task_count
    world.run(60_000)
    assert waiting.replies == []
    assert world["b"].schedule.task_count <= before + 5
    assert len(world["b"].exclusive.timed) == 1


def test_a_value_that_is_freed_during_a_claim_is_busy_when_the_claim_is_refused():
    """Spec EX4: a worker of a former delivery renewed and ended it here meanwhile (seed 19997)."""
    world = exclusive()
    add(world, "b", "ann", copies=1)
    get(world, "b")
    for _ in range(2):
        add(world, "a", "ann", copies=1)
    begin_get(world, "a")
    broker = world.machines["a"].broker
    (key,) = broker.exclusive.busy
    exclusive_module.free(broker, key)
    world.run(100)
    assert key in broker.exclusive.busy
    check_books(world.machines["a"])


def test_a_value_is_tried_again_when_the_earlier_of_two_grants_ends():
    """Spec EX4: a later holder has the value for a shorter time than the first one."""
    world = exclusive()
    broker = world.machines["a"].broker
    broker.exclusive.busy[b"key"] = b"q"
    exclusive_module.wait(broker, b"key", 60_000)
    exclusive_module.wait(broker, b"key", 3_000)
    exclusive_module.wait(broker, b"key", 3_001)
    world.run(2_700)
    assert b"key" in broker.exclusive.busy
    world.run(400)
    assert b"key" not in broker.exclusive.busy
    exclusive_module.wait(broker, b"key", 80_000)
    world.run(70_000)
    assert broker.exclusive.timed.keys() == {b"key"}  # The timer of the first refusal did nothing.
    world.run(15_000)
    assert not broker.exclusive.timed


def test_working_tells_a_lost_claim_from_a_lack_of_voters():
    """Spec EX5: the voters answer that the claim has ended, so its worker must stop."""
    world = exclusive()
    job_id = add(world, "a", "ann", retry=60)
    held = get(world, "a")[0]
    running = world.machines["a"].broker.exclusive.running[job_id]
    for machine in world.machines.values():
        machine.broker.claims.memory.grants.records[running.value_key].until_ms = 0
    for words in ((), ("FENCE", held.fence)):
        assert str(world.ask("a", "WORKING", job_id, *words)) == "FENCED The claim of this delivery is over"


def test_in_a_minority_a_grant_of_another_delivery_is_not_the_reason():
    """Spec EX8: the others may have ended it."""
    world = exclusive()
    add(world, "a", "ann", retry=60, copies=1)
    add(world, "b", "ann", retry=60, copies=1)
    (held,) = get(world, "a")
    for name in "ac":
        world.cut("b", name)
    world.run(3_000)
    assert world.ask("a", "ACKJOB", held.id) == 1
    assert refused(world.ask("b", "GETJOB", "NOHANG", "FROM", "q")) == "NOQUORUM"
