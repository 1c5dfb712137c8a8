"""All memory that clients and other nodes make a node use is inside `maxmemory`, or has a bound of its own.

docs/operations.md, "Limits on memory", has the table of these bounds.
"""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client
from cluster_bus.messages import INTEREST, ISKEY, KEYIS, PAUSE, REPLJOB, SETTLED, TOOK, YOURJOBS
from copies import advance, hold, hold_queued, make_id, say, sent_of, snapshot
from disque_py.commands.clients import NAME_BYTES_MAX
from disque_py.config.kinds import OutputLimit, OutputLimits
from disque_py.core import interest, keying, memory, pausing, taking
from disque_py.core.command_entry import WORDS_MAX
from disque_py.core.errors import OOM
from disque_py.core.handover import exchange
from disque_py.core.keys import key_chars
from disque_py.core.memory import LINES_SPARE, QUEUES_SPARE
from disque_py.core.queue import LINE_BYTES
from disque_py.core.replication import NO_ANSWER
from disque_py.core.timers import UNUSED_MS
from disque_py.node import dispatch
from disque_py.node.dispatch import MalformedMessageError

LIMIT = 4_000_000


def names(count, start=0):
    return [b"q%d" % number for number in range(start, start + count)]


def make_full(**settings):
    """A node that is above 100 % of its memory, with nothing to evict."""
    broker = make_broker(maxmemory=LIMIT, **settings)
    hold(broker, body=b"x" * LIMIT, ttl_s=10_000)
    assert memory.is_full(broker)
    return broker, make_client(broker)


def reply_of(broker, client):
    """All replies that lie ready for the client."""
    data, client.out = b"".join(client.out), []
    return data


# -- queues and lines ----------------------------------------------------------------------------------------


def test_a_getjob_that_waits_is_refused_when_there_is_no_memory_for_its_queues():
    broker = make_broker(maxmemory=LIMIT)
    replies = [
        ask(broker, make_client(broker), "GETJOB", "FROM", *names(1_000, start)) for start in range(0, 20_000, 1_000)
    ]
    assert replies[0] == b""
    assert replies[-1] == b"-%b\r\n" % OOM.encode()
    assert broker.used_memory < LIMIT


@pytest.mark.parametrize("is_linked", [False, True])
def test_getjob_nohang_makes_no_queues_for_which_memory_has_no_room(is_linked):
    broker = make_broker(maxmemory=LIMIT)
    client = make_client(broker)
    if is_linked:
        add_node(broker)
    for start in range(0, 20_000, 1_000):
        assert ask(broker, client, "GETJOB", "NOHANG", "FROM", *names(1_000, start)) == b"*-1\r\n"
    assert len(broker.queues) == QUEUES_SPARE or is_linked
    assert broker.used_memory < LIMIT


def test_getjob_that_finds_a_job_makes_no_queue_for_the_names_beside_it():
    broker = make_broker()
    hold_queued(broker)
    assert len(ask_parsed(broker, make_client(broker), "GETJOB", "FROM", "q", "another")) == 1
    assert list(broker.queues) == [b"q"]


def test_consumers_of_some_queues_go_on_waiting_however_full_memory_is():
    """Consumers empty it."""
    broker, client = make_full()
    assert ask(broker, client, "GETJOB", "FROM", *names(LINES_SPARE)) == b""
    hold_queued(broker, number=7, queue=b"q3")
    dispatch.settle(broker)
    assert reply_of(broker, client).startswith(b"*1\r\n")


def test_lines_that_a_client_waits_in_take_memory_until_it_waits_no_longer():
    broker = make_broker()
    client = make_client(broker)
    for name in names(100):
        broker.queue(name)
    used = broker.used_memory
    ask(broker, client, "GETJOB", "TIMEOUT", 50, "FROM", *names(100), *names(100))
    assert broker.used_memory == used + 100 * LINE_BYTES
    advance(broker, 100)
    assert (client.queues, broker.used_memory) == ((), used)


def test_a_client_may_wait_in_few_lines_only_when_memory_is_full():
    broker, client = make_full()
    for name in names(LINES_SPARE + 1):
        broker.queue(name)
    assert error_of(broker, client, "GETJOB", "FROM", *names(LINES_SPARE + 1)) == OOM
    assert ask(broker, client, "GETJOB", "FROM", *names(LINES_SPARE)) == b""


def test_queues_that_very_many_were_asked_for_in_vain_are_dropped_soon():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "GETJOB", "TIMEOUT", 1, "FROM", *names(QUEUES_SPARE + 500))
    advance(broker, 100)
    hold_queued(broker, queue=b"q0")
    ask(broker, client, "GETJOB", "FROM", "q0")
    advance(broker, UNUSED_MS + 2_000)
    assert b"q0" in broker.queues
    assert len(broker.queues) <= QUEUES_SPARE


def test_pausing_a_queue_that_does_not_exist_needs_memory_and_ending_the_pause_does_not():
    broker, client = make_full()
    for name in names(QUEUES_SPARE):
        assert ask(broker, client, "PAUSE", name, "in") == b"+in\r\n"
    assert error_of(broker, client, "PAUSE", "another", "in") == OOM
    assert ask(broker, client, "PAUSE", "another", "none") == b"+none\r\n"
    assert ask(broker, client, "PAUSE", "q0", "none") == b"+none\r\n"


# -- names that other nodes tell -----------------------------------------------------------------------------


@pytest.mark.plain
def test_names_of_pauses_are_bounded_in_bytes_and_ended_ones_make_room(monkeypatch):
    monkeypatch.setattr(pausing, "VERSIONED_BYTES_MAX", 1_000)
    broker = make_broker()
    b, client = add_node(broker), make_client(broker)
    say(broker, b, PAUSE, (b"e" * 400, 0, 1, b.id), (b"a" * 500, 1, 1, b.id))
    say(broker, b, PAUSE, (b"c" * 500, 1, 1, b.id), (b"d" * 500, 1, 1, b.id))
    assert [name[:1] for name in broker.pauses.versions] == [b"a", b"c"]
    assert broker.pauses.name_bytes == 1_000
    assert broker.stats.reject_reasons == {"pause of too many queues": 1}
    assert error_of(broker, client, "PAUSE", "another", "in", "BCAST").startswith("ERR too many queues were paused")
    assert ask(broker, client, "PAUSE", b"a" * 500, "none", "BCAST") == b"+none\r\n"
    assert ask(broker, client, "PAUSE", "another", "in", "BCAST") == b"+in\r\n"


def test_the_version_of_a_pause_names_a_node_and_is_not_longer():
    broker = make_broker()
    b = add_node(broker)
    with pytest.raises(MalformedMessageError):
        say(broker, b, PAUSE, (b"q", 1, 1, b"x" * 21))


@pytest.mark.plain
def test_names_of_interest_are_bounded_in_bytes_per_link(monkeypatch):
    monkeypatch.setattr(interest, "NAME_BYTES_PER_LINK_MAX", 1_000)
    broker = make_broker()
    b = add_node(broker)
    long = [bytes([65 + number]) * 400 for number in range(4)]
    say(broker, b, INTEREST, *((name, 1) for name in long))
    assert list(broker.consumers.interest) == long[:2]
    say(broker, b, INTEREST, (long[0], -1), (long[3], 1))
    assert (list(broker.consumers.interest), exchange(b).interest_bytes) == ([long[1], long[3]], 800)
    dispatch.incoming_lost(broker, b)
    assert (broker.consumers.interest, exchange(b).interest_bytes) == ({}, 0)


# -- hand-overs ----------------------------------------------------------------------------------------------


@pytest.mark.plain
def test_a_node_that_settles_nothing_is_not_answered_for_ever_and_is_again_when_it_settles(monkeypatch):
    """No answer is forgotten before it is settled; the giver asks again for what is not answered."""
    monkeypatch.setattr(taking, "ANSWERS_MAX", 10)
    broker = make_broker()
    b = add_node(broker)
    for number in range(1, 21):
        say(broker, b, YOURJOBS, (number, 0, [snapshot(broker, b, number=number)]))
    assert sorted(exchange(b).answers) == list(range(1, 11))
    assert (len(sent_of(broker, TOOK)), broker.job_count) == (10, 10)
    say(broker, b, YOURJOBS, (11, 10, [snapshot(broker, b, number=11)]))
    assert (list(exchange(b).answers), broker.job_count) == ([11], 11)
    say(broker, b, SETTLED, 11)
    assert exchange(b).answers == {}


# -- long lists ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ACKTOKEN", "NACKTOKEN"])
def test_very_many_unknown_tokens_are_looked_for_in_parts(command):
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, command, *names(10_000)) == b""
    turns = 0
    while not client.out:
        turns += 1
        dispatch.tick(broker)
    assert (turns, client.out) == (40, [b":0\r\n"])


def test_a_command_without_a_list_takes_no_more_words_than_are_read_in_one_step():
    broker = make_broker()
    client = make_client(broker)
    many = ["ASYNC"] * WORDS_MAX
    assert error_of(broker, client, "ADDJOB", "q", "body", 0, *many).startswith("ERR too many arguments for 'addjob'")
    assert error_of(broker, client, "JSCAN", *many).startswith("ERR too many arguments")
    assert error_of(broker, client, "PING", *many).startswith("ERR too many arguments")
    assert error_of(broker, client, "SHOW", *many).startswith("ERR too many arguments")


def test_the_name_of_a_client_is_not_very_long():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "CLIENT", "SETNAME", "x" * NAME_BYTES_MAX) == b"+OK\r\n"
    assert error_of(broker, client, "CLIENT", "SETNAME", "x" * (NAME_BYTES_MAX + 1)).startswith("ERR Client names")
    assert error_of(broker, client, "HELLO", 3, "SETNAME", "x" * 2_000).startswith("ERR Client names")


# -- ADDJOB … KEY --------------------------------------------------------------------------------------------


def test_a_repeated_key_is_answered_with_its_job_although_memory_is_full():
    broker = make_broker(maxmemory=LIMIT)
    client = make_client(broker)
    first = ask(broker, client, "ADDJOB", "q", "body", 0, "META", "a", "KEY", "KEY", "k")
    hold(broker, body=b"x" * LIMIT, ttl_s=10_000)
    assert ask(broker, client, "ADDJOB", "q", "body", 0, "ASYNC", "KEY", "k") == first
    assert error_of(broker, client, "ADDJOB", "q", "body", 0, "KEY", "another") == OOM
    assert error_of(broker, client, "ADDJOB", "q", "body", 0, "META", "KEY", "k") == OOM


@pytest.mark.parametrize("is_known", [True, False])
def test_a_full_node_asks_others_for_a_key_and_keeps_no_body_meanwhile(is_known):
    broker, client = make_full()
    b = add_node(broker)
    used = broker.used_memory
    assert ask(broker, client, "ADDJOB", "q", "b" * 5_000, 0, "KEY", "k", "REPLICATE", 1) == b""
    dispatch.settle(broker)
    assert used < broker.used_memory < used + 1_000
    ((_, (number, chars)),) = sent_of(broker, ISKEY)
    assert chars == key_chars(b"q", b"k")
    job_id = broker.ids.keyed(chars, broker.ids.next(1_000, True)) if is_known else b""
    say(broker, b, KEYIS, (number, chars, job_id))
    dispatch.settle(broker)
    assert reply_of(broker, client) == (b"+%b\r\n" % job_id if is_known else b"-%b\r\n" % OOM.encode())
    assert (broker.used_memory, broker.producers.caller_count) == (used, 0)


@pytest.mark.plain
def test_a_full_node_asks_for_some_keys_at_a_time(monkeypatch):
    monkeypatch.setattr(keying, "CALLERS_SPARE", 3)
    broker, _ = make_full()
    add_node(broker)
    replies = [ask(broker, make_client(broker), "ADDJOB", "q", "b", 0, "KEY", name) for name in names(4)]
    assert replies == [b"", b"", b"", b"-%b\r\n" % OOM.encode()]


def test_a_job_whose_key_is_asked_for_takes_memory():
    broker = make_broker()
    add_node(broker)
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "b" * 5_000, 0, "KEY", "k")
    assert broker.used_memory > 5_000
    dispatch.disconnect(broker, client)
    dispatch.settle(broker)
    assert (broker.used_memory, broker.producers.caller_count) == (0, 0)


# -- long names, large replies -------------------------------------------------------------------------------


def test_a_long_queue_name_takes_memory_in_each_job_that_has_it():
    """Delayed jobs, and copies, have no queue that would share its name with them."""
    broker = make_broker()
    client = make_client(broker)
    job_id = ask_parsed(broker, client, "ADDJOB", "q" * 10_000, "body", 0, "DELAY", 100)
    assert 10_000 < broker.used_memory < 11_000
    say(broker, add_node(broker), REPLJOB, (snapshot(broker, number=9, queue=b"c" * 10_000), NO_ANSWER))
    assert 20_000 < broker.used_memory < 22_000
    ask(broker, client, "DELJOB", job_id, make_id(9))
    assert broker.used_memory == 0


def test_a_reply_that_would_be_cut_off_is_refused_before_it_is_made():
    broker = make_broker()
    client = make_client(broker)
    broker.settings.client_output_buffer_limit = OutputLimits(OutputLimit(10_000, 0, 0), OutputLimit(0, 0, 0))
    for number in range(5):
        hold_queued(broker, number=number, body=b"x" * 4_000)
    assert error_of(broker, client, "JSCAN", "BUSYLOOP", "REPLY", "all").startswith("ERR the reply is larger")
    assert len(ask_parsed(broker, client, "JSCAN", "BUSYLOOP")[1]) == 5
