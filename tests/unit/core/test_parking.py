"""core/parking.py: jobs of a queue, set aside by value."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from claimed_worlds import add, exclusive, get
from disque_py.core import lifecycle, parking
from disque_py.core.filters import Filter, Group
from disque_py.core.job import ACTIVE, QUEUED, Job, JobTerms
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.parking import LOOKED_PER_TURN, SEARCHES_MAX, SHOWN_PER_CALL, Parking
from disque_py.core.queue import Queue
from world import World


def value_of(job):
    return job.body or None


def make_queue(room=1):
    queue = Queue(b"q", 0)
    queue.parking = Parking(queue, value_of, lambda value: room)
    return queue


def make(number, value=b"", priority=None, retry_ms=1000):
    job = Job(b"D-%037d-" % number, JobTerms(b"q", retry_ms, 0, 1), value, 1000 + number, 1 << 40, frozenset())
    if priority is not None:
        job.attributes = JobAttributes(priority, ())
    return job


def push(queue, *jobs):
    for job in jobs:
        job.state = QUEUED
        queue.push(job)


def take(queue):
    job = queue.pop()
    if job is not None:
        job.state = ACTIVE
    return job


def group_of(*jobs):
    """An index's group with these jobs."""
    group = Group((b"kind",), (b"video",))
    for job in jobs:
        group.add(job)
    return group


def leave(queue, job):
    job.state = ACTIVE
    queue.removed(job)
    queue.parking.show_due()


def test_a_value_without_room_holds_back_no_other_value():
    queue = make_queue()
    first, second, other = make(1, b"a"), make(2, b"a"), make(3, b"b")
    push(queue, first, second, other)
    assert [take(queue), take(queue), take(queue)] == [first, other, None]
    assert [queue.length, queue.pending] == [0, 1]


def test_jobs_without_a_value_are_always_offered():
    queue = make_queue()
    jobs = [make(number) for number in range(3)]
    push(queue, *jobs)
    assert [take(queue) for _ in jobs] == jobs


def test_the_best_job_of_a_value_is_offered_whichever_came_first():
    queue = make_queue()
    worse, better = make(1, b"a", priority=5), make(2, b"a", priority=3)
    push(queue, worse, better)
    assert queue.length == 1
    assert take(queue) is better


def test_the_next_job_of_a_value_is_offered_when_there_is_room():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    take(queue)
    assert not queue.parking.set_room(b"a", 0)
    assert take(queue) is None
    assert queue.parking.set_room(b"a", 1)
    assert take(queue) is second


def test_a_value_may_have_room_for_several():
    queue = make_queue(room=2)
    jobs = [make(number, b"a") for number in range(4)]
    push(queue, *jobs)
    assert queue.length == 2
    queue.parking.set_room(b"a", 3)
    assert queue.length == 3


def test_with_less_room_the_last_jobs_go_aside():
    queue = make_queue(room=3)
    jobs = [make(number, b"a") for number in range(3)]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 1)
    assert [queue.length, queue.pending] == [1, 3]
    assert take(queue) is jobs[0]


def test_a_job_that_is_put_back_is_offered_again():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    push(queue, take(queue))
    assert take(queue) is first


def test_after_a_hand_over_the_next_job_of_the_value_is_offered():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    take(queue)
    assert queue.parking.show_due()
    assert take(queue) is second


@pytest.mark.parametrize("number", [0, 1])
def test_a_job_may_leave_in_another_way(number):
    queue = make_queue()
    jobs = [make(1, b"a"), make(2, b"a")]
    push(queue, *jobs)
    leave(queue, jobs[number])
    assert [queue.length, queue.pending] == [1, 1]
    assert take(queue) is jobs[1 - number]
    assert not queue.parking.groups


def test_a_job_that_left_may_come_back_and_wait_aside():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, second)
    leave(queue, second)
    push(queue, first)
    push(queue, second)
    assert not second.is_listed
    assert [take(queue), take(queue)] == [first, None]


def test_pending_jobs_are_listed_in_order_whether_offered_or_aside():
    queue = make_queue()
    jobs = [make(number, b"ab"[number % 2 : number % 2 + 1]) for number in range(6)]
    push(queue, *jobs)
    assert list(queue.oldest()) == jobs
    assert list(queue.newest(4)) == jobs[:1:-1]
    found = [job for each in queue.first_lists(6) for job in each]
    assert sorted(found, key=jobs.index) == jobs


def test_a_job_may_be_set_aside_for_a_second_reason():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    job = take(queue)
    job.state = QUEUED
    queue.parking.set_aside(job, b"cap")
    queue.parking.show_due()
    assert take(queue) is second
    assert queue.parking.give_back(b"cap", 5) == 1
    assert take(queue) is first
    assert queue.pending == 0


def test_a_job_given_back_still_needs_room_of_its_own_value():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first)
    job = take(queue)
    job.state = QUEUED
    queue.parking.set_aside(job, b"cap")
    push(queue, second)
    queue.parking.set_room(b"a", 0)
    queue.parking.room_of = lambda value: 0
    queue.parking.give_back(b"cap", 1)
    assert [queue.length, queue.pending] == [0, 2]


def test_at_most_once_jobs_wait_aside_too():
    queue = make_queue()
    first, second = make(1, b"a", retry_ms=0), make(2, b"a", retry_ms=0)
    push(queue, first, second)
    assert [queue.once_length, queue.pending] == [1, 2]
    assert take(queue) is first
    queue.parking.show_due()
    assert take(queue) is second
    assert queue.once_length == 0


def test_very_much_room_is_used_a_part_at_a_time():
    queue = make_queue(room=0)
    push(queue, *(make(number, b"a") for number in range(SHOWN_PER_CALL + 5)))
    queue.parking.set_room(b"a", 1000)
    assert queue.length == SHOWN_PER_CALL
    queue.parking.show_due()
    assert queue.length == SHOWN_PER_CALL + 5


def test_of_certain_jobs_the_first_with_room_is_found_whichever_the_queue_offers():
    queue = make_queue()
    jobs = [make(1, b"a"), make(2, b"b"), make(3, b"a"), make(4, b"b")]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 0)
    assert queue.parking.search(group_of(*jobs[2:]), 0, is_picky=False) is jobs[3]
    assert queue.parking.search(group_of(jobs[2]), 0, is_picky=False) is None


def searched(queue, group, *, is_picky=False):
    """Search until all jobs were looked at. Return the job, and the number of turns."""
    for now_ms in range(1, 100):
        job = queue.parking.search(group, now_ms, is_picky=is_picky)
        if not queue.parking.is_cut(group):
            return job, now_ms
    return None


def many(count=2_500):
    """A queue with many jobs of a value without room. The group has all of them, and one behind them that has room."""
    queue = make_queue()
    jobs = [*(make(number, b"a") for number in range(count)), make(count, b"b")]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 0)
    return queue, jobs, group_of(*jobs)


def test_a_search_behind_very_many_jobs_goes_on_in_the_next_turn():
    queue, jobs, group = many()
    assert searched(queue, group) == (jobs[-1], 3)
    assert searched(queue, group) == (jobs[-1], 1)


def test_all_searches_of_a_turn_look_at_a_bounded_number_of_jobs():
    queue, jobs, group = many(1_500)
    for each in (group, group_of(*jobs)):
        assert queue.parking.search(each, 1, is_picky=False) is None
        assert queue.parking.is_cut(each)
    assert queue.parking.looked == LOOKED_PER_TURN


def test_a_search_that_has_looked_at_all_jobs_looks_at_none_again():
    queue, jobs, _ = many()
    group = group_of(*jobs[:-1])
    assert searched(queue, group) == (None, 3)
    assert queue.parking.search(group, 200, is_picky=False) is None
    assert queue.parking.looked <= 1


@pytest.mark.parametrize("way", ["room", "pushed", "given back"])
def test_a_search_goes_back_to_a_job_that_gets_room(way):
    queue, jobs, group = many()
    first = jobs[5]
    if way == "given back":
        leave(queue, first)
        first.state = QUEUED
        queue.parking.set_aside(first, b"cap")
    assert searched(queue, group) == (jobs[-1], 3)
    if way == "room":
        queue.parking.set_room(b"a", 1)
        first = jobs[0]
    elif way == "pushed":
        first = make(-1)
        push(queue, first)
        group.add(first)
    else:
        queue.parking.value_of = {first: b"b"}.get
        queue.parking.give_back(b"cap", 1)
    assert searched(queue, group)[0] is first


def test_a_search_for_consumers_that_skip_at_most_once_jobs_hides_none_from_others():
    queue = make_queue()
    jobs = [make(number, b"a") for number in range(1_200)]
    once = make(1_200, b"", retry_ms=0)
    late = make(1_201, b"b")
    push(queue, *jobs, once, late)
    queue.parking.set_room(b"a", 0)
    group = group_of(*jobs, once, late)
    assert searched(queue, group, is_picky=True) == (late, 2)
    assert searched(queue, group)[0] is once


def test_a_bounded_number_of_searches_is_noted_and_all_end():
    queue, jobs, _ = many(1_500)
    groups = [group_of(*jobs) for _ in range(SEARCHES_MAX + 5)]
    left = groups
    for now_ms in range(1, 200):
        left = [each for each in left if queue.parking.search(each, now_ms, is_picky=False) is None]
        assert all(queue.parking.is_cut(each) for each in left)
        assert len(queue.parking.searches) <= SEARCHES_MAX
    assert not left


def test_a_search_goes_back_to_an_at_most_once_job_behind_another_one_of_its_value():
    queue = make_queue()
    once = make(1, b"c", retry_ms=0)
    jobs = [make(0, b"c"), once, *(make(number, b"a") for number in range(2, 1_200))]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 0)
    queue.parking.set_room(b"c", 0)
    group = group_of(*jobs[1:])
    assert searched(queue, group) == (None, 2)
    queue.parking.set_room(b"c", 1)
    assert searched(queue, group)[0] is once


def test_a_node_that_leaves_offers_all_jobs():
    queue = make_queue(room=0)
    jobs = [make(number, b"a") for number in range(3)]
    push(queue, *jobs)
    queue.parking.offer(10)
    assert [take(queue) for _ in jobs] == jobs


@pytest.mark.parametrize("seed", range(5))
def test_each_value_always_offers_its_best_jobs_as_far_as_it_has_room(seed):
    rng = Random(seed)
    queue = make_queue(room=2)
    rooms = dict.fromkeys((b"a", b"b", b"c"), 2)
    queue.parking.room_of = rooms.__getitem__
    pending = []
    for number in range(2_000):
        what = rng.random()
        if what < 0.4:
            job = make(number, rng.choice((b"", *rooms)), priority=rng.randrange(100))
            push(queue, job)
            pending.append(job)
        elif what < 0.6:
            job = take(queue)
            queue.parking.show_due()
            if job is not None:
                pending.remove(job)
        elif what < 0.8 and pending:
            leave(queue, pending.pop(rng.randrange(len(pending))))
        else:
            value = rng.choice(tuple(rooms))
            rooms[value] = rng.randrange(3)
            queue.parking.set_room(value, rooms[value])
        assert queue.pending == len(pending)
        pending.sort(key=lambda job: (job.priority, job.ctime))
        assert list(queue.oldest()) == pending
        counts = {}
        for job in pending:
            at = counts[job.body] = counts.get(job.body, 0) + 1
            assert job.is_listed == (not job.body or at <= rooms[job.body])


@pytest.mark.parametrize("end", ["its jobs", "its index"])
def test_a_group_that_is_gone_has_no_search(end):
    """Searches are bounded, and those of such groups would take the room of others."""
    world = exclusive()
    for _ in range(1_200):
        add(world, "a", "ann", "META", "kind", "video", copies=1)
    add(world, "a", "bob", "META", "kind", "video", copies=1)
    assert len(get(world, "a")) == 1
    [other] = get(world, "a", "WHERE", "kind", "video")
    assert other.body == b"work-bob"
    queue = world["a"].queues[b"q"]
    assert queue.parking.searches
    if end == "its index":
        queue.filters.dropped()
    else:
        world.ask("a", "DEBUG", "FLUSHALL")
    assert not queue.parking.searches


def capped():
    world = World("a")
    world.ask("a", "QUEUE", "SET", "q", "max-running", 1, "max-running-by", "user")
    world.run(1_000)
    return world


def add_kind(world, kind, user, *words, retry=600):
    words = (*words, "META", "kind", kind, "META", "user", user)
    return world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", retry, *words)


def test_searches_of_clients_that_hung_up_do_not_stop_others():
    """There was room for no further search, and the queue was looked at from its start in each millisecond."""
    world = capped()
    for kind in ("k0", "mine"):
        for _ in range(1_100):
            add_kind(world, kind, "ann")
    for number in range(1, SEARCHES_MAX):
        add_kind(world, f"k{number}", "ann")
    bob = add_kind(world, "mine", "bob")
    assert world.ask("a", "GETJOB", "FROM", "q")
    world.ask("a", "GETJOB", "NOHANG", "WHERE", "kind", "none", "FROM", "q")  # So that there is an index.
    world.run(1_000)
    gone = [world.client("a") for _ in range(SEARCHES_MAX)]
    for number, client in enumerate(gone):
        client.say("GETJOB", "TIMEOUT", 0, "WHERE", "kind", f"k{number}", "FROM", "q")
    for client in gone:
        client.hang_up()
    mine = world.client("a")
    mine.say("GETJOB", "TIMEOUT", 0, "WHERE", "kind", "mine", "FROM", "q")
    world.run(5_000)
    assert [job[1] for job in mine.replies[0]] == [bob]


def test_a_search_without_at_most_once_jobs_does_not_end_that_of_another_client():
    world = World("a")
    world.ask("a", "QUEUE", "SET", "q", "rate", "1/1000s", "rate-by", "user")
    world.run(1_000)
    add_kind(world, "video", "ann")
    for _ in range(2_500):
        add_kind(world, "video", "ann", retry=0)
    bob = add_kind(world, "video", "bob", retry=0)
    assert world.ask("a", "GETJOB", "FROM", "q")
    add_kind(world, "video", "ann", "PRIORITY", 1)
    world.ask("a", "GETJOB", "NOHANG", "WHERE", "kind", "none", "FROM", "q")
    world.run(1_000)
    broker = world["a"]
    picky = partial(lifecycle.fetch_matching, broker, broker.queues[b"q"], Filter({b"kind": b"video"}), is_picky=True)
    broker.schedule.call_at(broker.now_ms + 1, picky)
    first = world.client("a")
    first.say("GETJOB", "TIMEOUT", 0, "WHERE", "kind", "video", "FROM", "q")
    world.run(5_000)
    assert [reply[0][1] for reply in first.replies] == [bob]


@pytest.mark.plain
def test_a_slot_that_is_free_again_makes_no_search_look_at_all_jobs_anew(monkeypatch):
    world = capped()
    for _ in range(4_000):
        add_kind(world, "video", "ann")
    where = ("WHERE", "kind", "video", "FROM", "q")
    job_id = world.ask("a", "GETJOB", *where)[0][1]
    waiting = [world.client("a") for _ in range(6)]
    for client in waiting:
        client.say("GETJOB", "TIMEOUT", 0, *where)
    world.run(2_000)
    looks = [0]
    real = Parking.has_room

    def counted(self, job):
        looks[0] += 1
        return real(self, job)

    monkeypatch.setattr(Parking, "has_room", counted)
    for _ in range(5):
        world.ask("a", "ACKJOB", job_id)
        world.run(500)
        [client] = [each for each in waiting if each.replies]
        waiting.remove(client)
        job_id = client.replies[0][0][1]
    assert looks[0] < 1_000


@pytest.mark.plain
@pytest.mark.parametrize("seed", range(20))
def test_a_search_misses_no_job_with_room(seed, monkeypatch):
    monkeypatch.setattr(parking, "LOOKED_PER_TURN", 7)
    monkeypatch.setattr(parking, "NOTED_FROM", 3)
    rng = Random(seed)
    queue = make_queue(room=0)
    retries = (0, 1_000)
    jobs = [make(number, rng.choice((b"a", b"b", b"c", b"")), retry_ms=rng.choice(retries)) for number in range(60)]
    push(queue, *jobs)
    group = group_of(*jobs)
    now_ms = 0
    for step in range(80):
        act = rng.random()
        if act < 0.4:
            queue.parking.set_room(rng.choice((b"a", b"b", b"c")), rng.choice((0, 0, 1, 2)))
        elif act < 0.5:
            new = make(1_000 + step, rng.choice((b"a", b"b", b"")), priority=rng.randrange(200))
            push(queue, new)
            group.add(new)
            jobs.append(new)
        is_picky = rng.random() < 0.3
        found = None
        for _ in range(20):
            now_ms += 1
            found = queue.parking.search(group, now_ms, is_picky=is_picky)
            if found is not None or not queue.parking.is_cut(group):
                break
        if found is None and not queue.parking.is_cut(group):
            assert not [job for job in jobs if queue.parking.has_room(job) and (job.terms.retry_ms or not is_picky)]
        if found is not None and rng.random() < 0.8:
            jobs.remove(found)
            group.remove(found)
            leave(queue, found)
