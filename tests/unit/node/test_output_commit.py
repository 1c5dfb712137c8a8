"""node/output_commit.py: replies and messages that wait for their records, and those that need none."""

from __future__ import annotations

import errno

import hiredis
import pytest

from brokers import add_node
from cluster_bus.codec import Decoder
from cluster_bus.handshake import Hello
from cluster_bus.messages import FIRST_JOB_KIND, GOTJOB, HINT, PING, REPLJOB, SETACK, YOURJOBS
from copies import snapshot
from disque_py.core import handover, lifecycle
from journaled import JournaledNode
from persistence.disk import WRITING


def start(policy="always", *, has_windows=True, **settings):
    node = JournaledNode(appendfsync=policy, **settings)
    node.folder.has_windows = has_windows
    node.settle()
    return node


def sent(node):
    """(kind, items) of all job messages since the last look."""
    frames, node.frames = node.frames, []
    return [
        (kind, items)
        for _, data in frames
        for runs in Decoder().feed(data)
        for kind, *items in runs
        if kind >= FIRST_JOB_KIND
    ]


def test_a_reply_waits_for_its_record_and_nothing_else_does():
    """Spec P1."""
    node = start()
    assert node.ask("ADDJOB", "q", "x", 0) == []
    assert node.ask("PING", client=1) == [b"PONG"]
    node.settle()
    assert len(node.taken()) == 1


def test_with_a_quick_disk_the_reply_leaves_in_the_same_turn():
    node = start()
    node.disk.is_quick = True
    assert len(node.ask("ADDJOB", "q", "x", 0)) == 1
    assert node.driver.journal.synced == node.driver.journal.position
    other = node.other()
    node.frames.clear()
    node.say(other, REPLJOB, (snapshot(node.broker, other, node.broker.me), 0))
    assert [kind for kind, _ in sent(node)] == [GOTJOB]


def test_an_input_that_comes_while_the_turn_waits_for_the_disk_gets_a_turn():
    """For example, the end of other work in the same lane: the turn that waits has been settled and recorded."""
    node = start()
    node.disk.is_quick = True
    queue = node.broker.queue(b"q")
    node.ask("GETJOB", "FROM", "q", client=1)
    node.ask("PAUSE", "q", "in")

    def ended(_: object) -> None:
        node.driver.begin()
        node.broker.wake(queue)

    node.disk.start(WRITING, lambda folder: None, ended)
    assert not node.driver.has_more
    node.ask("PAUSE", "q", "none")
    assert node.driver.has_more
    node.settle()
    assert not node.driver.has_more


def test_a_quick_disk_that_fails_keeps_the_reply_back():
    node = start()
    node.disk.is_quick = True
    node.folder.fail("write", errno.EIO)
    node.folder.fail("write_synced", errno.EIO)
    assert node.ask("ADDJOB", "q", "x", 0) == []
    assert node.broker.journal.disk_level > 0
    node.folder.heal()
    node.settle(5_000)
    assert len(node.taken()) == 1


def test_later_replies_on_the_same_connection_wait_behind_it():
    """Spec P3."""
    node = start()
    node.ask("ADDJOB", "q", "x", 0)
    assert node.ask("PING") == []
    node.settle()
    assert node.taken()[1] == b"PONG"


def test_a_command_that_changed_nothing_does_not_wait():
    node = start()
    assert node.ask("QLEN", "q") == [0]
    assert node.ask("GETJOB", "NOHANG", "FROM", "q") == [None]


def test_replies_of_several_turns_come_in_order_each_with_its_record():
    node = start()
    node.ask("ADDJOB", "q", "x", 0)
    node.ask("ADDJOB", "q", "y", 0)
    node.work()
    assert len(node.taken()) == 1
    node.settle()
    assert len(node.taken()) == 1


def test_a_client_that_waited_for_a_job_gets_it_with_its_record():
    node = start()
    node.ask("GETJOB", "FROM", "q", client=1)
    node.ask("ADDJOB", "q", "x", 0, "RETRY", 0)
    assert node.taken(1) == []
    node.settle()
    assert len(node.taken(1)) == 1


def test_a_copy_is_confirmed_when_it_is_recorded():
    """Spec P2."""
    node = start()
    other = node.other()
    node.frames.clear()
    node.say(other, REPLJOB, (snapshot(node.broker, other, node.broker.me), 0))
    assert sent(node) == []
    node.settle()
    assert [kind for kind, _ in sent(node)] == [GOTJOB]


def test_messages_that_wait_can_be_looked_at():
    node = start()
    other = node.other()
    node.say(other, REPLJOB, (snapshot(node.broker, other, node.broker.me), 0))
    commit = node.driver.output_commit
    assert [kind for _, kind, _ in commit.waiting_runs()] == [GOTJOB]
    node.settle()
    assert list(commit.waiting_runs()) == []


def test_a_copy_is_asked_for_while_our_own_record_is_written():
    """A question promises nothing."""
    node = start()
    node.other()
    node.frames.clear()
    node.ask("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 5, "ASYNC")
    assert REPLJOB in [kind for kind, _ in sent(node)]


def test_messages_that_wait_keep_their_order():
    node = start()
    other = node.other()
    for number in (1, 2):
        node.say(other, REPLJOB, (snapshot(node.broker, other, node.broker.me, number=number), 0))
    node.frames.clear()
    node.settle()
    assert [len(items) for kind, items in sent(node) if kind == GOTJOB] == [1, 1]


def test_a_request_from_before_the_disk_failed_is_answered_when_it_is_recorded():
    """Also with everysec: such a request must not get an error because of the disk."""
    for policy in ("always", "everysec", "no"):
        node = start(policy, has_windows=False)
        node.folder.fail("write", errno.EIO)
        node.ask("ADDJOB", "q", "x", 0)
        node.settle(100)
        assert (node.taken(), node.broker.journal.disk_level > 0) == ([], True)
        node.settle(3_000)
        assert len(node.taken()) == 1


def test_in_the_turn_in_which_the_disk_fails_replies_wait_too():
    """The command came before the node learned of the failure, within one turn."""
    node = start()
    node.ask("ADDJOB", "q", "x", 0, client=1)
    node.folder.fail("write", errno.EIO)
    node.driver.begin()
    node.put("ADDJOB", "q", "y", 0)
    node.disk.run_one()
    node.end_turn()
    assert (node.taken(), node.broker.journal.disk_level > 0) == ([], True)
    node.settle(3_000)
    assert len(node.taken()) == 1


def test_an_addjob_whose_copies_are_confirmed_while_the_disk_fails_is_answered_when_it_is_recorded():
    node = start()
    other = node.other()
    node.ask("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 5)
    (job,) = node.broker.copies.waiting_repl
    node.folder.fail("write create", errno.EIO, times=2)
    node.ask("ADDJOB", "q", "y", 0, "REPLICATE", 1, client=1)
    node.settle(10)
    assert node.broker.journal.disk_level > 0
    node.say(other, GOTJOB, job.id)
    assert node.taken() == []
    node.settle(5_000)
    assert node.taken() == [job.id]


def test_commands_that_need_no_disk_are_answered_at_once_while_it_fails():
    """Spec P5."""
    node = start("everysec", has_windows=False)
    node.ask("ADDJOB", "q", "x", 0, "RETRY", 5)
    node.settle()
    (job_id,) = node.taken()
    node.folder.fail("write create", errno.EIO, times=-1)
    node.ask("ADDJOB", "q", "y", 0, client=1)
    node.settle(10)
    (((_, got, _),),) = node.ask("GETJOB", "FROM", "q")
    assert got == job_id
    assert node.ask("ACKJOB", job_id) == [1]
    assert isinstance(node.ask("ADDJOB", "q", "z", 0)[0], hiredis.ReplyError)


def test_behind_a_reply_that_waits_they_wait_for_their_own_record_too():
    """Spec P5. The first reply leaves when its segment is written. The ack is in the next segment."""
    node = start("everysec", has_windows=False)
    node.ask("ADDJOB", "q", "x", 0, "RETRY", 5)
    node.settle()
    (job_id,) = node.taken()
    node.folder.fail("write create", errno.EIO, times=2)
    node.ask("ADDJOB", "q", "y" * 1_500, 0)
    node.settle(10)
    assert node.broker.journal.disk_level > 0
    assert node.ask("ACKJOB", job_id) == []
    position = node.driver.journal.position
    together = []
    while node.driver.journal.written < position:
        if not node.work():
            node.pass_ms(1)
            node.tick()
        together.append((len(node.clients[0].got), node.driver.journal.written < position))
    assert (1, True) in together
    assert (2, True) not in together
    assert len(node.taken()) == 2


def test_a_copy_that_is_on_no_disk_is_not_confirmed():
    """With everysec other messages are sent in trouble. But no node may rely on such a copy."""
    node = start("everysec", has_windows=False)
    other = node.other()
    node.folder.fail("write create", errno.EIO, times=-1)
    copy = snapshot(node.broker, other, node.broker.me)
    node.say(other, REPLJOB, (copy, 0))
    node.settle(10)
    node.say(other, REPLJOB, (copy, 0))
    node.ask("ACKJOB", copy[0])
    node.settle(2)
    kinds = [kind for kind, _ in sent(node)]
    assert GOTJOB not in kinds
    assert SETACK in kinds


def test_acks_that_waited_for_others_of_their_millisecond_still_wait_for_their_record():
    """Spec N11, P2."""
    node = start()
    other = node.other()
    copies = [snapshot(node.broker, other, node.broker.me, number=number) for number in (1, 2)]
    node.say(other, REPLJOB, *[(copy, 0) for copy in copies])
    node.settle(10)
    node.driver.begin()
    node.broker.send(node.broker.sets.only(other), HINT, (b"q", 0))
    node.end_turn()
    node.frames.clear()
    node.ask("ACKJOB", copies[0][0])
    assert node.driver.is_gathering
    node.pass_ms(1)
    node.tick()
    assert (sent(node), node.driver.is_gathering) == ([], False)
    node.settle(1)
    assert [kind for kind, _ in sent(node)] == [SETACK]


def test_heartbeats_do_not_wait():
    """Otherwise other nodes would take this one for dead when its disk is stuck."""
    node = start()
    node.other()
    node.ask("ADDJOB", "q", "x", 0, "REPLICATE", 1)
    node.frames.clear()
    node.pass_ms(10_000)
    node.tick()
    assert PING in [kind for _, data in node.frames for runs in Decoder().feed(data) for kind, *_ in runs]


@pytest.mark.parametrize("waits", [True, False])
def test_messages_for_a_process_are_not_sent_to_the_next_one(waits):
    """Hand-over numbers are valid for one process. The next one might take a job that was already delivered."""
    node = start()
    other = node.other()
    node.answer("ADDJOB", "q", "x", 0, "RETRY", 0)
    membership, broker = node.broker.membership, node.broker
    next_one = Hello(other.id, b"another.", "", 7711, 17711, "0.1.0")
    node.driver.begin()
    job = lifecycle.fetch(broker, broker.queue(b"q"))
    handover.hand_over(broker, other, [job])
    if waits:
        node.end_turn()
        node.driver.begin()
    membership.link_down(other)
    membership.link_up(other, next_one, other.host, "127.0.0.1")
    node.end_turn()
    node.settle()
    assert YOURJOBS not in [kind for kind, _ in sent(node)]
    assert broker.stats.once_lost_in_handover == 1


def test_messages_of_several_turns_are_not_sent_to_the_next_process_and_reach_the_others():
    """All of them wait for the disk when the process that they were meant for is replaced."""
    node = start()
    other, third = node.other(), add_node(node.broker, 3)
    node.answer("ADDJOB", "q", "x", 0, "RETRY", 0)
    node.answer("ADDJOB", "q", "y", 0, "RETRY", 0)
    membership, broker = node.broker.membership, node.broker
    for _ in range(2):
        node.driver.begin()
        handover.hand_over(broker, other, [lifecycle.fetch(broker, broker.queue(b"q"))])
        broker.send((other, third), SETACK, (b"some id", b"", 0))
        node.end_turn()
    node.frames.clear()
    node.driver.begin()
    membership.link_down(other)
    membership.link_up(other, Hello(other.id, b"another.", "", 7711, 17711, "0.1.0"), other.host, "127.0.0.1")
    node.end_turn()
    node.settle()
    runs = [(to, run) for to, data in node.frames for runs in Decoder().feed(data) for run in runs]
    assert [run for to, run in runs if run[0] in (YOURJOBS, SETACK) and to is other] == []
    assert sum(len(run) - 1 for to, run in runs if run[0] == SETACK and to is third) == 2


def test_no_client_waits_for_a_journal_that_was_switched_off():
    node = start()
    node.ask("ADDJOB", "q", "x", 0)
    node.ask("CONFIG", "SET", "appendonly", "no", client=1)
    node.settle()
    assert (len(node.taken()), node.journal_service.journal) == (1, None)
