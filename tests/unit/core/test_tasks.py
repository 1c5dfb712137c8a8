"""core/tasks.py: bounds, hostile nodes, and nodes that can't go on."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client
from cluster_bus.messages import SYNC, SYNCED, TASK, TASK_STATE
from copies import advance, deliver, hold_queued, say, sent, sent_of
from disque_py.core import acks, task_jobs, task_state, tasks
from disque_py.core.job import GONE, QUEUED
from disque_py.core.task_state import BEGIN, END, GO, GOES_ON, MOVE, OFFER_MAX, OVER, PURGE, REDRIVE, UNABLE
from disque_py.node import dispatch
from disque_py.node.dispatch import MalformedMessageError


def start(count=1):
    broker = make_broker()
    return broker, make_client(broker), [add_node(broker, number) for number in range(2, 2 + count)]


def state_of(broker, task_id):
    reply = ask_parsed(broker, make_client(broker), "QTASK", "SHOW", task_id)
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def begin_item(number=1, command=PURGE, status=b"pending", to=b"", is_ordered=0):
    return (number, BEGIN, command, b"q", [], status, to, is_ordered)


def test_a_lone_node_purges_in_slices():
    """Spec MV9."""
    broker = make_broker()
    client = make_client(broker)
    jobs = [hold_queued(broker, number=number) for number in range(1, 3_001)]
    assert ask(broker, client, "QPURGE", "q") == b""
    turns = 0
    while dispatch.tick(broker) or not client.out:
        turns += 1
    assert turns > 3_000 // task_jobs.ACTED_PER_PART
    assert all(job.state == GONE for job in jobs)
    assert b"jobs\r\n:3000\r\n" in b"".join(client.out)


def test_a_share_offers_jobs_and_changes_the_granted_ones():
    """Spec MV6."""
    broker, _, [leader] = start()
    jobs = [hold_queued(broker, number=number) for number in range(1, 6)]
    say(broker, leader, TASK, begin_item(command=MOVE, to=b"new", is_ordered=1))
    advance(broker, 5)
    [(_, item)] = sent_of(broker, TASK_STATE)
    places = [number for job in jobs for number in (job.priority, job.ctime)]
    assert item == (1, 0, places, 0, 0, GOES_ON)
    say(broker, leader, TASK, [1, GO, 1, 2])
    advance(broker, 5)
    assert [job.queue for job in jobs] == [b"new"] * 2 + [b"q"] * 3
    say(broker, leader, TASK, [1, GO, 1, 2])  # Repeated: nothing happens.
    [(_, number)] = sent_of(broker, SYNC)
    say(broker, leader, SYNCED, number)
    advance(broker, 5)
    [(_, item)] = sent_of(broker, TASK_STATE)
    assert item == (1, 1, places[4:], 2, 0, GOES_ON)


def test_jobs_that_changed_since_they_were_chosen_are_not_offered():
    """Near its LIMIT a leader grants one job at a time: each of them would cost a round. Spec MV6."""
    broker, _, [leader] = start()
    jobs = [hold_queued(broker, number=number) for number in range(1, 2 * OFFER_MAX + 2)]
    say(broker, leader, TASK, begin_item(command=MOVE, to=b"new", is_ordered=1))
    advance(broker, 50)
    for job in jobs[1:-1]:
        acks.acknowledge(broker, job, is_news=True)
    sent(broker)
    say(broker, leader, TASK, [1, GO, 1, 1])
    advance(broker, 50)
    [(_, number)] = sent_of(broker, SYNC)
    say(broker, leader, SYNCED, number)
    advance(broker, 50)
    [(_, item)] = sent_of(broker, TASK_STATE)
    assert item == (1, 1, [jobs[-1].priority, jobs[-1].ctime], 1, 0, GOES_ON)


def test_a_share_waits_for_slow_nodes_for_a_second_only():
    """Spec MV9."""
    broker, _, [leader, _] = start(2)
    hold_queued(broker)
    say(broker, leader, TASK, begin_item())
    advance(broker, 5)
    say(broker, leader, TASK, [1, GO, 1, 1])
    advance(broker, 500)
    assert OVER not in [item[5] for _, item in sent_of(broker, TASK_STATE)]
    advance(broker, 1_100)
    assert [item[5] for _, item in sent_of(broker, TASK_STATE)][-1] == OVER
    assert not broker.tasks.syncs


def test_a_share_ends_with_the_link_or_the_process_of_its_leader():
    """Spec MV7."""
    for end in (dispatch.link_lost, dispatch.incoming_lost, dispatch.new_run, dispatch.forgotten):
        broker, _, [leader] = start()
        hold_queued(broker)
        say(broker, leader, TASK, begin_item())
        advance(broker, 5)
        end(broker, leader)
        assert not broker.tasks.shares
        assert not broker.tasks.busy


def test_a_node_keeps_few_shares_for_another_one():
    """Spec MV8."""
    broker, _, [leader] = start()
    say(broker, leader, TASK, *[begin_item(number) for number in range(1, 100)])
    assert len(broker.tasks.shares) == tasks.RUNNING_MAX
    assert {item[5] for _, item in sent_of(broker, TASK_STATE)} == {UNABLE}


def test_a_command_of_a_later_version_is_refused():
    """Spec MV7."""
    broker, _, [leader] = start()
    say(broker, leader, TASK, begin_item(command=99), begin_item(2, status=b"odd"))
    assert [item[5] for _, item in sent_of(broker, TASK_STATE)] == [UNABLE, UNABLE]


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (TASK, ["1", GO, 1, 1]),
        (TASK, [-1, END]),
        (TASK, [1, BEGIN, PURGE, "q", [], b"pending", b"", 0]),
        (TASK, [1, BEGIN, PURGE, b"q", [b"odd"], b"pending", b"", 0]),
        (TASK, [1, BEGIN, PURGE, b"q", [b"n", b"v"] * 9, b"pending", b"", 0]),
        (TASK, [1, BEGIN, PURGE, b"q"]),
        (TASK_STATE, [1, 0, [1], 0, 0, 0]),
        (TASK_STATE, [1, 0, [1, "x"], 0, 0, 0]),
        (TASK_STATE, [1, 0, [1] * 2_000, 0, 0, 0]),
        (TASK_STATE, [1, 0, None, -1, 0, 0]),
        (SYNC, "x"),
    ],
)
def test_malformed_messages_close_the_link(kind, item):
    """Spec MV7."""
    broker, _, [node] = start()
    with pytest.raises(MalformedMessageError):
        say(broker, node, kind, item)


def test_a_grant_that_is_not_a_number_closes_the_link():
    """Spec MV7."""
    broker, _, [leader] = start()
    hold_queued(broker)
    say(broker, leader, TASK, begin_item())
    advance(broker, 5)
    with pytest.raises(MalformedMessageError):
        say(broker, leader, TASK, [1, GO, 1, OFFER_MAX + 1])


def test_the_state_of_a_task_that_is_not_known_is_answered_with_its_end():
    """Spec MV7."""
    broker, _, [node] = start()
    say(broker, node, TASK_STATE, [7, 0, [], 0, 0, GOES_ON])
    assert sent_of(broker, TASK) == [((node,), (7, END))]


@pytest.mark.parametrize("outcome", [GOES_ON, OVER, UNABLE])
def test_a_share_is_told_that_its_task_is_over_although_the_first_message_was_lost(outcome):
    """Without the answer, the share would stay and repeat its state, until its leader could begin no task here. MV7."""
    broker, client, [node] = start()
    task_id = ask(broker, client, "QPURGE", "q", "ASYNC")[1:-2]
    ask(broker, client, "QTASK", "CANCEL", task_id)
    sent(broker)
    say(broker, node, TASK_STATE, [1, 0, None, 0, 0, outcome])
    assert sent_of(broker, TASK) == [((node,), (1, END))]


def test_a_silent_node_is_given_up():
    """Spec MV7."""
    broker, client, [node] = start()
    task_id = ask(broker, client, "QPURGE", "q", "ASYNC")[1:-2]
    advance(broker, tasks.SILENCE_MS - 1_500)
    assert state_of(broker, task_id)["state"] == b"running"
    advance(broker, 3_000)
    shown = state_of(broker, task_id)
    assert (shown["state"], shown["nodes-missing"]) == (b"done", [node.name])


def test_a_node_leads_few_tasks_at_a_time():
    """Spec MV8."""
    broker, client, _ = start()
    for _ in range(tasks.RUNNING_MAX):
        ask(broker, client, "QPURGE", "q", "ASYNC")
    assert error_of(broker, client, "QPURGE", "q") == tasks.FULL


def test_finished_tasks_are_forgotten():
    """Spec MV8."""
    broker = make_broker()
    client = make_client(broker)
    task_id = ask(broker, client, "QPURGE", "q", "ASYNC")[1:-2]
    advance(broker, 100)
    assert state_of(broker, task_id)["state"] == b"done"
    advance(broker, tasks.KEPT_MS)
    assert ask(broker, client, "QTASK", "LIST") == b"*0\r\n"


def test_a_disk_that_refuses_writes_aborts_a_task():
    """Spec MV7."""
    broker = make_broker()
    client = make_client(broker)
    job = hold_queued(broker)
    task_id = ask(broker, client, "QPURGE", "q", "ASYNC")[1:-2]
    broker.journal.disk_level = 1
    advance(broker, 100)
    assert state_of(broker, task_id)["state"] == b"aborted"
    assert job.state == QUEUED


def test_a_full_memory_moves_no_jobs():
    """Spec MV5."""
    broker = make_broker()
    client = make_client(broker)
    hold_queued(broker)
    task_id = ask(broker, client, "QMOVE", "q", "new", "ASYNC")[1:-2]
    broker.settings.maxmemory = 100
    broker.apply_maxmemory()
    advance(broker, 100)
    shown = state_of(broker, task_id)
    assert (shown["jobs"], shown["failed"]) == (0, 1)


def test_an_ordered_share_finds_all_jobs_in_several_walks(monkeypatch):
    """Spec MV9: it keeps few places at a time."""
    monkeypatch.setattr(task_jobs, "CHOSEN_MAX", 7)
    broker = make_broker()
    client = make_client(broker)
    jobs = [hold_queued(broker, number=number) for number in range(1, 31)]
    task_id = ask(broker, client, "QMOVE", "q", "new", "LIMIT", 25, "ASYNC")[1:-2]
    advance(broker, 500)
    assert state_of(broker, task_id)["jobs"] == 25
    assert [job.queue for job in jobs] == [b"new"] * 25 + [b"q"] * 5


test_an_ordered_share_finds_all_jobs_in_several_walks = pytest.mark.plain(
    test_an_ordered_share_finds_all_jobs_in_several_walks
)


def test_a_job_added_after_the_beginning_stays():
    """Spec MV5: in the same millisecond, too."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "before", 0, "REPLICATE", 1)
    ask(broker, client, "QPURGE", "q", "ASYNC")
    ask(broker, client, "ADDJOB", "q", "after", 0, "REPLICATE", 1)
    advance(broker, 100)
    assert broker.queues[b"q"].length == 1


def test_a_job_that_is_delivered_before_its_turn_has_failed():
    """Spec MV5."""
    broker = make_broker()
    client = make_client(broker)
    hold_queued(broker)
    task_id = ask(broker, client, "QREDRIVE", "q", "ASYNC")[1:-2]
    other = ask(broker, client, "QPURGE", "q", "ASYNC")[1:-2]
    advance(broker, 1)
    hold_queued(broker, number=2)
    deliver(broker)
    advance(broker, 100)
    assert (state_of(broker, task_id)["jobs"], state_of(broker, other)["jobs"]) in ((0, 0), (0, 1))
    assert REDRIVE in task_state.COMMAND_NAMES


def test_a_client_that_hangs_up_does_not_end_its_task():
    """Spec MV8."""
    broker = make_broker()
    client = make_client(broker)
    job = hold_queued(broker)
    assert ask(broker, client, "QPURGE", "q") == b""
    dispatch.disconnect(broker, client)
    advance(broker, 100)
    assert job.state == GONE
    assert not broker.waits.stalled
    sent(broker)
