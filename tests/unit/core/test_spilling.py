"""core/spilling.py: bodies leave memory when it gets scarce, and come back when they are needed."""

from __future__ import annotations

import errno
from random import Random

import pytest

from disque_py.core import lifecycle, spilling
from disque_py.core.client import RUNNING
from disque_py.core.filters import Filter
from disque_py.core.spilled import SPILLED_BYTES, Spilled
from disque_py.node import dispatch
from spilled import BODY_BYTES, SpillingNode, take_all


def test_below_the_mark_nothing_leaves_memory():
    node = SpillingNode(maxmemory=1_000_000)
    node.fill(20)
    assert node.out() == []
    node.check()


def test_without_a_limit_nothing_leaves_memory():
    node = SpillingNode(maxmemory=0)
    node.fill(50)
    assert node.out() == []


def test_above_sixty_percent_bodies_far_from_the_head_go_to_disk():
    """With 30,000 bytes, bodies leave above 18,000. The newest go, the first two stay."""
    node = SpillingNode()
    ids = node.fill(30)
    out = node.out()
    assert out
    assert not set(ids[:2]) & set(out)
    assert out == ids[-len(out) :]
    assert node.broker.used_memory < 30_000
    node.check()


def test_a_spilled_job_counts_with_the_bytes_left_in_memory():
    node = SpillingNode()
    before = node.fill(12) and node.broker.used_memory
    node.fill(18)
    gone = len(node.out())
    assert node.broker.used_memory == before + 18 * (560 + BODY_BYTES) - gone * (BODY_BYTES - SPILLED_BYTES)


def test_small_bodies_stay():
    node = SpillingNode()
    for _ in range(45):
        node.add("q", b"small")
    node.settle()
    assert node.out() == []


def test_jobs_are_delivered_in_order_with_their_bodies():
    node = SpillingNode()
    ids = node.fill(40)
    got = [node.answer("GETJOB", "NOHANG", "FROM", "q")[0] for _ in ids]
    assert [entry[1] for entry in got] == ids
    assert [entry[2] for entry in got] == [node.bodies[job_id] for job_id in ids]
    node.settle()
    node.check()


def test_getjob_waits_for_the_body_of_the_head_and_skips_nothing():
    node = SpillingNode()
    ids = node.fill(30)
    node.answer("GETJOB", "COUNT", 2, "FROM", "q")
    spill_out(node)
    assert node.ask("GETJOB", "NOHANG", "COUNT", 3, "FROM", "q") == []
    found = [entry[1] for entry in wait(node)]
    assert found
    assert found == ids[2 : 2 + len(found)]


def test_a_queue_whose_head_moves_while_its_body_is_read_goes_on():
    node = SpillingNode()
    ids = node.fill(30)
    node.answer("GETJOB", "COUNT", 2, "FROM", "q")
    spill_out(node)
    node.broker.spill.near_jobs = 1
    assert node.ask("GETJOB", "FROM", "q") == []
    node.service.settle()
    head = node.job(ids[2])
    lifecycle.dequeue(node.broker, head)
    lifecycle.rename_queue(node.broker, head, b"other")
    lifecycle.enqueue(node.broker, head)
    assert [entry[1] for entry in wait(node)] == [ids[3]]


def test_getjob_with_two_queues_keeps_to_its_order():
    """The first queue's job is on disk, the second's is not. The first one still comes first."""
    node = SpillingNode()
    first = node.fill(30, "a")
    spill_out(node)
    second = node.add("b", b"small")
    assert node.answer("GETJOB", "FROM", "a", "b")[0][1] == first[0]
    assert second in [entry[1] for entry in node.answer("GETJOB", "COUNT", 2, "FROM", "a", "b")]


def test_getjob_with_count_takes_the_jobs_before_one_on_disk():
    """Its lease must not run while the client waits for a disk."""
    node = SpillingNode()
    ids = node.fill(30)
    found = [entry[1] for entry in node.ask("GETJOB", "COUNT", 30, "FROM", "q")[0]]
    assert 2 <= len(found) < 30
    assert found == ids[: len(found)]
    node.check()


def test_a_waiting_client_gets_a_requeued_job_whose_body_is_on_disk():
    node = SpillingNode()
    job_id = node.add("late", None, "RETRY", 1)
    node.answer("GETJOB", "FROM", "late")
    node.fill(30)
    spill_out(node)
    assert type(node.job(job_id).body) is Spilled
    assert node.ask("GETJOB", "FROM", "late") == []
    node.settle(3_000)
    assert [entry[1:3] for entry in node.taken()[0]] == [[job_id, node.bodies[job_id]]]


def test_delayed_jobs_have_no_head_that_stays():
    """No consumer can want them soon."""
    node = SpillingNode()
    ids = node.fill(31, "d", "DELAY", 1000, "RETRY", 10)
    node.answer("CONFIG", "SET", "maxmemory", 20_000)
    node.settle(2_000)
    assert node.out() == ids


def test_show_qpeek_and_jscan_read_bodies_and_leave_them_where_they_are():
    node = SpillingNode()
    ids = node.fill(30)
    out = node.out()
    shown = node.answer("SHOW", out[0])
    assert shown[shown.index(b"body") + 1] == node.bodies[out[0]]
    assert [entry[1:] for entry in node.answer("QPEEK", "q", -3)] == [[i, node.bodies[i]] for i in ids[:-4:-1]]
    _, found = node.answer("JSCAN", 0, "COUNT", 100, "REPLY", "all")
    assert {job[1]: job[job.index(b"body") + 1] for job in found} == node.bodies
    assert node.out() == out
    node.check()


def test_an_ack_frees_the_place_on_disk():
    node = SpillingNode()
    node.fill(30)
    for job_id in node.out():
        assert node.answer("ACKJOB", job_id) == 1
    node.settle(3_000)
    assert (node.broker.memory.spilled_count, node.service.store.live) == (0, 0)
    node.check()
    assert [name for name in node.spill_folder.names() if name.endswith(".spill")] == []


def test_a_job_that_changes_while_it_is_written_keeps_its_body():
    node = SpillingNode()
    for _ in range(30):
        node.add()
    writing = list(node.broker.spill.writing)
    assert writing
    node.answer("DELJOB", *[job.id for job in writing])
    node.settle()
    assert not set(node.out()) & {job.id for job in writing}
    node.check()


def test_flushall_forgets_bodies_on_disk_and_under_way():
    node = SpillingNode()
    node.fill(25)
    for _ in range(5):
        node.add()
    assert node.ask("SHOW", node.out()[0]) == []
    assert node.ask("DEBUG", "FLUSHALL", client=1)
    node.settle(1_500)
    assert node.taken() in ([None], [b""])
    node.bodies.clear()
    node.check()
    assert (node.broker.memory.spilled_count, node.service.store.files) == (0, {})


def test_a_body_that_cannot_be_read_is_lost_counted_and_logged():
    """No body is delivered in part, and the queue goes on with the next job."""
    node = SpillingNode()
    ids = node.fill(30)
    spill_out(node)
    node.spill_folder.fail("read", errno.EIO, times=2)
    got = take_all(node)
    lost = node.broker.spill.lost
    assert lost >= 1
    assert [entry[1] for entry in got] == [job_id for job_id in ids if node.broker.find(job_id) is not None]
    assert len(got) == 30 - lost
    assert sum(call[0] == "log" and "can't be read" in call[2] for call in node.broker.host.calls) == lost


def test_a_damaged_body_is_lost_too():
    node = SpillingNode()
    node.fill(30)
    spill_out(node)
    place = node.job(node.out()[0]).body
    file = node.spill_folder._files[f"{place.file:010}.spill"].content
    file[place.offset + 60] ^= 1
    assert len(take_all(node)) == 29
    assert node.broker.spill.lost == 1


def test_the_percentages_count_the_bytes_left_in_memory():
    """Twice the limit fits, and -OOM comes when even the jobs without bodies are too much. Spec M6."""
    node = SpillingNode(maxmemory=60_000)
    ids = node.fill(70)
    assert sum(560 + BODY_BYTES for _ in ids) > 60_000 > node.broker.used_memory
    with pytest.raises(AssertionError, match="OOM"):
        node.fill(60)
    node.check()


def fill_while_the_disk_does_nothing(node):
    """Add jobs until no reply comes; return the words of the request that waits."""
    for number in range(1_000):
        words = ("ADDJOB", "q", b"%06d" % number + b"x" * 394, 0, "REPLICATE", 1)
        if not node.ask(*words):
            return words
    raise AssertionError("it was never full")


def test_a_producer_that_is_faster_than_the_disk_waits_until_there_is_room():
    node = SpillingNode()
    fill_while_the_disk_does_nothing(node)
    assert node.broker.used_memory >= 30_000
    assert "spill_waiting_clients:1\r\n" in str(node.ask("INFO", "memory", client=1)[0].decode())
    node.settle()
    node.tick()
    (job_id,) = node.taken()
    assert node.broker.find(job_id) is not None
    assert node.clients[0].client.waiting == RUNNING


def test_a_producer_is_refused_when_the_disk_makes_no_progress():
    """Two seconds without a body that got out are enough."""
    node = SpillingNode()
    words = fill_while_the_disk_does_nothing(node)
    node.pass_ms(spilling.WAIT_MS)
    node.tick()
    assert not node.broker.spill.blocked_producers
    assert str(node.ask(*words)[0]).startswith("OOM")


def test_a_producer_that_hangs_up_waits_no_longer():
    node = SpillingNode()
    fill_while_the_disk_does_nothing(node)
    dispatch.disconnect(node.broker, node.clients[0].client)
    assert not node.broker.spill.blocked_producers


def test_bodies_on_disk_come_back_when_spilling_is_switched_off():
    node = SpillingNode()
    ids = node.fill(30)
    node.answer("CONFIG", "SET", "maxmemory-spill", "no")
    assert not node.broker.memory.is_spilling
    assert [entry[1] for entry in take_all(node)] == ids


def test_a_base_in_an_earlier_journal_does_not_count():
    """The journal was switched off and on: until it has the job again, the only body there is stays in memory."""
    node = SpillingNode(appendonly=True, maxmemory=1_000_000)
    node.settle()
    ids = node.fill(20)
    node.answer("CONFIG", "SET", "appendonly", "no")
    node.settle()
    assert all(node.job(job_id).place for job_id in ids)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.driver.begin()
    assert node.disk.run_one()
    node.put("CONFIG", "SET", "maxmemory", 10_000)
    node.end_turn()
    assert (node.broker.is_journaling, node.driver.compaction.is_first) == (True, True)
    assert node.broker.spill.writing == {}
    node.settle(3_000)
    assert node.out()
    node.check()


def test_a_walk_that_finds_no_body_pauses():
    node = SpillingNode()
    node.fill(45)
    node.settle(200)
    for _ in range(10):
        found = spilling.seek(node.broker, 10_000)
    assert found == []
    assert node.broker.spill.rest_until_ms > node.broker.now_ms or node.broker.used_memory < node.broker.spill.above


def test_a_walk_that_rests_goes_on_when_many_bodies_have_come_back():
    """GETJOB reads bodies from the disk, and jobs that consumers have are in no list: memory would fill meanwhile."""
    node = SpillingNode()
    broker = node.broker
    jobs = [node.job(job_id) for job_id in node.fill(45)]
    node.settle(200)
    broker.spill.rest_until_ms = broker.now_ms + 10_000
    broker.spill.rest_bytes = spilling.bodies_in_memory(broker) + broker.settings.maxmemory // spilling.RESTED_SHARE
    assert spilling.seek(broker, 10_000) == []
    back = [job for job in jobs if type(job.body) is Spilled]
    for job in back:
        spilling._put_back(broker, job, b"x" * job.body.size)
    assert any(spilling.seek(broker, 10_000) for _ in range(10))


def test_the_list_of_new_jobs_forgets_those_that_are_over():
    node = SpillingNode(maxmemory=100_000_000)
    broker = node.broker
    for _ in range(6):
        broker.spill.fresh = [node.job(job_id) for job_id in node.fill(1)] * spilling.CHUNK
        node.answer("ACKJOB", *list(node.bodies)[-1:])
        spilling.tidy_fresh(broker)
    assert len(broker.spill.older) <= 2


def spill_out(node: SpillingNode) -> None:
    """Make memory so scarce that even the heads of queues are spilled."""
    limit = node.broker.settings.maxmemory
    node.answer("CONFIG", "SET", "maxmemory", 1_000)
    node.pass_ms(spilling.USED_MS + 1)
    node.settle(5_000)
    node.answer("CONFIG", "SET", "maxmemory", limit)
    node.settle()


def wait(node: SpillingNode) -> list:
    """Let the disks work until there is a reply, and return it."""
    for _ in range(1000):
        got = node.taken()
        if got:
            return got[0]
        if not node.work():
            node.pass_ms(1)
            node.tick()
    raise AssertionError("no reply")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("journal", ["", "always", "everysec"])
def test_random_operations_keep_all_invariants(seed, journal):
    """Order, bodies and sums are right for any commands, in whatever order the disks work."""
    rng = Random(seed * 7 + len(journal))
    settings = {"appendonly": True, "appendfsync": journal} if journal else {}
    node = SpillingNode(**settings)
    node.settle()
    for _ in range(250):
        node = step(node, rng)
        node.check()
    node.settle(2_000)
    node.check()
    for queue in ("a", "b"):
        get_in_order(node, queue, 1_000)


def step(node: SpillingNode, rng: Random) -> SpillingNode:
    """Do one random step of a day."""
    dice = rng.random()
    queue = rng.choice("ab")
    some = rng.choice(list(node.bodies)) if node.bodies else b""
    if dice < 0.45:
        options = rng.choice(
            (("RETRY", 3600), ("RETRY", 3600), ("RETRY", 2), ("RETRY", 0), ("DELAY", 1), ("RETRY", 5, "TTL", 9))
        )
        if node.broker.used_memory < node.broker.memory.limits[1]:
            node.add(queue, rng.randbytes(rng.choice((10, 300, 900, 1500))), *options)
    elif dice < 0.60:
        get_in_order(node, queue, rng.randrange(1, 7))
    elif dice < 0.72 and some:
        node.answer(rng.choice(("ACKJOB", "ACKJOB", "ACKJOB", "NACK", "DEQUEUE", "ENQUEUE", "DELJOB")), some)
    elif dice < 0.80 and some:
        shown = node.answer("SHOW", some)
        if shown and shown[5] != b"acked":
            assert shown[shown.index(b"body") + 1] == node.bodies[some]
    elif dice < 0.85:
        for entry in node.answer("QPEEK", queue, rng.choice((3, -3, 20))):
            assert node.bodies[entry[1]] == entry[2]
    elif dice < 0.90:
        node.settle(rng.choice((0, 50, 1_000, 4_000)))
    elif dice < 0.93:
        for _ in range(rng.randrange(6)):
            node.work_spill() if rng.random() < 0.5 else node.work()
    elif dice < 0.94:
        node.answer("CONFIG", "SET", "maxmemory", rng.choice((5_000, 30_000, 30_000, 60_000)))
    elif dice < 0.95:
        node.spill_folder.fail(rng.choice(("write", "create")), errno.ENOSPC, times=2, is_partial=True)
    elif dice < 0.952 and some and is_recorded(node):
        node.spill_folder.fail("read", errno.EIO, times=2)
        shown = node.answer("SHOW", some)  # Nothing, if its life is over.
        if shown and shown[5] != b"acked":
            assert shown[shown.index(b"body") + 1] == node.bodies[some]
        assert node.broker.spill.lost == 0
        node.settle()
        node.spill_folder.heal()
    elif dice < 0.955:
        node.answer("DEBUG", "FLUSHALL")
        node.bodies.clear()
    elif dice < 0.97:
        node.answer("BGREWRITEAOF")
    elif dice < 0.98 and node.settings.get("appendonly"):
        node.answer("CONFIG", "SET", "appendonly", rng.choice(("no", "yes")))
        node.settle(100)
    elif dice < 0.985 and node.settings.get("appendonly") and node.broker.settings.appendonly:
        node.settle(2_000)
        ids = {job_id for shard in node.broker.shards for job_id in shard}
        if rng.random() < 0.5:
            node.stop()
        node = node.restart()
        assert {job_id for shard in node.broker.shards for job_id in shard} >= ids - expired(node, ids)
    return node


def is_recorded(node: SpillingNode) -> bool:
    """Return whether the journal has every job."""
    compaction = node.driver.compaction
    return compaction is not None and not compaction.is_first


def get_in_order(node: SpillingNode, queue: str, count: int) -> None:
    """Check that the oldest jobs come, complete and in order. Meanwhile some may expire and others become due."""
    expected = [job.id for job in node.broker.queue(queue.encode()).oldest()]
    got = []
    while len(got) < count and (part := node.answer("GETJOB", "NOHANG", "COUNT", count - len(got), "FROM", queue)):
        got += part
    assert all(node.bodies[entry[1]] == entry[2] for entry in got)
    found = [entry[1] for entry in got if entry[1] in expected]
    assert found == [job_id for job_id in expected if job_id in found or node.broker.find(job_id)][: len(found)]
    assert len(got) >= min(count, len([job_id for job_id in expected if node.broker.find(job_id)]))


def expired(node: SpillingNode, ids: set[bytes]) -> set[bytes]:
    """Return the jobs that may have expired in the restart."""
    return {job_id for job_id in ids if node.broker.find(job_id) is None and node.broker.stats.jobs_expired}


def test_a_filtered_job_whose_body_is_on_disk_stays_in_its_queue():
    """To put it back would make the clients that wait for it due again, and the turn would not end."""
    node = SpillingNode()
    node.answer("PAUSE", "q", "out")
    ids = node.fill(20, "q", "RETRY", 3600, "META", "t", "a")
    for job_id in ids[: ids.index(node.out()[-1])]:
        node.answer("DEQUEUE", job_id)
    assert not node.ask("GETJOB", "WHERE", "t", "a", "FROM", "q")
    queue = node.broker.queues[b"q"]
    assert lifecycle.fetch_matching(node.broker, queue, Filter({b"t": b"a"}), is_picky=False) is None
    assert queue.is_stalled
    assert not node.broker.ready
