"""core/settings_sync.py: queue settings on disk and on other nodes."""

from __future__ import annotations

import errno

import pytest

from brokers import add_node, ask, error_of, host_of, make_broker, make_client, pass_time
from cluster_bus.messages import ASKSETTINGS, SETTING, SETTINGS_DIGEST, SETTINGS_HAVE
from copies import advance, sent_of
from disque_py.core import queue_settings, settings_sync
from disque_py.node import dispatch
from world import Talker, World

LEASE = (b"q", b"lease", b"30", 1, b"\x02" * 20)


def lease(world, name, queue=b"q"):
    return world[name].queue_settings.of(queue).lease_ms


def behind(world, name, queue=b"q"):
    return settings_sync.behind(world[name], queue)


def joined(names, **options):
    world = World(names, **options)
    world.join()
    world.run(100)
    return world


def set_lease(world, name, seconds, queue="q"):
    return world.ask(name, "QUEUE", "SET", queue, "lease", seconds)


def test_a_setting_is_on_all_nodes_before_the_reply():
    """Spec QS3."""
    world = joined("abc")
    assert set_lease(world, "a", 30) == b"OK"
    assert [lease(world, name) for name in "abc"] == [30_000] * 3
    assert [parsed(world, name) for name in "abc"] == [30_000] * 3
    world.run(100)
    assert [behind(world, name) for name in "abc"] == [0, 0, 0]


def parsed(world, name):
    """The lease as a start would read it from the file."""
    return world.machines[name].settings_disk.table().of(b"q").lease_ms


def test_operators_at_different_nodes_both_succeed():
    world = joined("ab")
    for name, field in (("a", "lease"), ("b", "ttl")):
        talker = world.connect(world.machines[name], Talker(world))
        talker.say("QUEUE", "SET", "q", field, 30)
    world.run(100)
    for name in "ab":
        found = world[name].queue_settings.of(b"q")
        assert (found.lease_ms, found.ttl_ms) == (30_000, 30_000)


def test_the_reply_comes_after_a_second_if_a_linked_node_is_silent():
    """Spec QS3."""
    world = joined("abc")
    world.pause("c")
    talker = world.connect(world.machines["a"], Talker(world))
    talker.say("QUEUE", "SET", "q", "lease", 30)
    world.run(900)
    assert talker.replies == []
    world.run(300)
    assert talker.replies == [b"OK"]
    assert behind(world, "a") == 1
    world.resume("c")
    world.run(500)
    assert behind(world, "a") == 0


def test_a_node_that_was_away_gets_the_settings_when_it_is_linked():
    """Spec QS4."""
    world = joined("abc")
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(10)
    set_lease(world, "a", 30)
    assert (lease(world, "c"), behind(world, "a")) == (0, 1)
    world.ask("c", "QUEUE", "SET", "q", "ttl", 60)
    world.heal()
    world.run(5_000)
    digests = {world[name].queue_settings.digest for name in "abc"}
    assert len(digests) == 1
    assert (lease(world, "c"), world["a"].queue_settings.of(b"q").ttl_ms) == (30_000, 60_000)
    assert [behind(world, name) for name in "abc"] == [0, 0, 0]


def test_a_change_of_a_node_that_dies_reaches_nodes_that_it_was_not_linked_with():
    """Spec QS4: the others compare their settings after its death (seed 13032)."""
    world = joined("abc")
    world.cut("a", "c")
    world.run(10)
    set_lease(world, "a", 30)
    world.machines["a"].die()
    world.run(3_000)
    assert [lease(world, name) for name in "bc"] == [30_000, 30_000]


def test_after_a_loss_one_differing_node_after_the_other_is_asked():
    """Changes may be under way, and one answer is usually enough."""
    broker = make_broker()
    nodes = [add_node(broker, number) for number in (2, 3, 4)]
    for node in nodes:
        dispatch.receive(broker, node, [[SETTINGS_DIGEST, (7, settings_sync.DIGEST_OF_LOSS)]])
    dispatch.receive(broker, nodes[2], [[SETTINGS_DIGEST, (0, settings_sync.DIGEST_OF_NEWS)]])  # As ours.
    asked = []
    for _ in range(45):
        advance(broker, 100)
        asked.append([receivers for receivers, _ in sent_of(broker, ASKSETTINGS)])
    assert asked[8] == []
    assert [nodes for each in asked for nodes in each] == [(nodes[0],), (nodes[1],)]
    assert asked.index([(nodes[1],)]) - asked.index([(nodes[0],)]) >= 10


def test_a_node_that_joins_gets_the_settings():
    world = World("ab")
    set_lease(world, "a", 30)
    world.join()
    world.run(100)
    assert lease(world, "b") == 30_000
    assert behind(world, "a") == 0


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_killed_node_has_what_it_answered(names):
    """Spec QS3: also without a journal."""
    world = joined(names)
    set_lease(world, "a", 30)
    for name in names:
        world.crash(name)
    world.restart("a")
    world.run(100)
    assert lease(world, "a") == 30_000


def test_a_start_asks_for_settings_before_it_serves():
    """Spec QS5: the job gets what was set while its node was away."""
    world = joined("ab", replicate_default=1)
    world.crash("b")
    set_lease(world, "a", 30)
    world.restart("b")
    talker = world.connect(world.machines["b"], Talker(world))
    talker.say("ADDJOB", "q", "body", 0)
    assert talker.replies == []
    world.run(1_500)
    assert world["b"].find(talker.replies[0]).retry_ms == 30_000


def test_a_start_without_other_nodes_serves_after_two_seconds():
    """Spec QS5."""
    world = joined("ab", replicate_default=1)
    world.crash("a")
    world.crash("b")
    world.restart("b")
    talker = world.connect(world.machines["b"], Talker(world))
    talker.say("GETJOB", "NOHANG", "FROM", "q")
    talker.say("PING")
    world.run(1_900)
    assert talker.replies == []
    world.run(300)
    assert talker.replies == [None, b"PONG"]


def test_a_lone_node_serves_at_once():
    world = World("a")
    world.crash("a")
    world.restart("a")
    assert world.ask("a", "GETJOB", "NOHANG", "FROM", "q") is None


def test_lengths_of_limited_queues_are_told_once_a_second():
    """Spec QS7."""
    world = joined("ab")
    world.ask("a", "QUEUE", "SET", "q", "maxlen", 3)
    for _ in range(3):
        world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    world.run(1_200)
    assert str(world.ask("b", "ADDJOB", "q", "body", 0, "REPLICATE", 1)).startswith("MAXLEN")
    world.ask("a", "GETJOB", "COUNT", 3, "FROM", "q")
    world.run(1_200)
    assert world.ask("b", "ADDJOB", "q", "body", 0, "REPLICATE", 1).startswith(b"D-")


def test_a_reset_node_forgets_settings_also_on_its_disk():
    world = joined("ab")
    set_lease(world, "a", 30)
    world.ask("b", "CLUSTER", "RESET")
    assert (lease(world, "b"), lease(world, "a")) == (0, 30_000)
    world.crash("b")
    world.restart("b")
    assert lease(world, "b") == 0


def test_a_file_that_was_moved_away_is_written_anew():
    """Spec QS3: the node has all settings, so a restart has them, too."""
    broker = make_broker()
    host, client = host_of(broker), make_client(broker)
    ask(broker, client, "QUEUE", "SET", "a", "lease", 5)
    host.failures["write_queue_settings"] = FileNotFoundError(errno.ENOENT, "No such file or directory")
    host.settings_file = []
    assert error_of(broker, client, "QUEUE", "SET", "b", "lease", 6).startswith("ERR error saving the queue settings")
    host.failures.clear()
    pass_time(broker, settings_sync.RETRY_MS)
    settings_sync.step(broker)
    assert sorted(item[:3] for item in host.settings_file) == [(b"a", b"lease", b"5"), (b"b", b"lease", b"6")]


def test_a_flush_keeps_settings():
    """They belong to the cluster, and outlive queues and jobs."""
    world = joined("a")
    set_lease(world, "a", 30)
    world.ask("a", "DEBUG", "FLUSHALL")
    assert lease(world, "a") == 30_000


def test_a_silent_cluster_without_settings_says_nothing_of_them():
    broker = make_broker()
    node = add_node(broker)
    dispatch.link_up(broker, node)
    assert sent_of(broker, SETTINGS_DIGEST) == []


def test_a_node_with_the_same_settings_is_not_asked():
    broker = make_broker()
    settings_sync.start(broker, [LEASE])
    node = add_node(broker)
    dispatch.receive(broker, node, [[SETTINGS_DIGEST, [broker.queue_settings.digest, 0]]])
    assert sent_of(broker, ASKSETTINGS) == []
    dispatch.receive(broker, node, [[SETTINGS_DIGEST, [1, 0]]])
    assert len(sent_of(broker, ASKSETTINGS)) == 1


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_node_whose_answer_was_lost_with_its_link_is_asked_again(is_noticed):
    """Spec QS4. Our own link to it stands, and the node sends its digest again on its next one.

    A node that we had forgotten does not notice immediately that we closed its link. When we know it again, it may
    still answer on that link (seed 12540).
    """
    broker = make_broker()
    node = add_node(broker)
    for _ in range(2):
        dispatch.receive(broker, node, [[SETTINGS_DIGEST, (7, settings_sync.DIGEST_OF_LINK)]])
        assert sent_of(broker, ASKSETTINGS) == [((node,), (0,))]
        if is_noticed:
            dispatch.incoming_lost(broker, node)


def test_an_equal_digest_of_a_new_link_is_answered():
    """The other end may have lost the link alone. Then it knows our digest no more, and we would not send it again."""
    broker = make_broker()
    node = add_node(broker)
    ask(broker, make_client(broker), "QUEUE", "SET", "q", "lease", 30)
    digest = broker.queue_settings.digest
    sent_of(broker, SETTINGS_DIGEST)
    for occasion, answer in ((settings_sync.DIGEST_OF_LINK, [(digest, settings_sync.DIGEST_OF_NEWS)]), (2, [])):
        dispatch.receive(broker, node, [[SETTINGS_DIGEST, (digest, occasion)]])
        assert [item for _, item in sent_of(broker, SETTINGS_DIGEST)] == answer


def test_settings_are_told_only_when_they_are_on_disk():
    """Spec QS3: no version that a crash may undo is told."""
    broker = make_broker()
    node = add_node(broker)
    host_of(broker).is_slow = True
    ask(broker, make_client(broker), "QUEUE", "SET", "q", "lease", 30)
    dispatch.receive(broker, node, [[ASKSETTINGS, [0]]])
    assert sent_of(broker, SETTING) == []
    host_of(broker).writing.pop()()
    assert [item for _, item in sent_of(broker, SETTING)] == [(b"q", b"lease", b"30", 1, broker.me.id)]


@pytest.mark.parametrize(("value", "at_once"), [(b"30", settings_sync.ITEMS_PER_PART), (b"3" * 60_000, 5)])
def test_all_settings_are_told_a_part_at_a_time(value, at_once):
    """The number of asking nodes does not matter: the length of a part is for all of them together."""
    broker = make_broker()
    nodes = [add_node(broker), add_node(broker, 3)]
    count = at_once + 1
    settings_sync.start(broker, [(b"q%d" % at, b"colour", value, 1, LEASE[4]) for at in range(count)])
    for node in nodes:
        dispatch.receive(broker, node, [[ASKSETTINGS, [0]]])
    assert [to for to, _ in sent_of(broker, SETTING)] == [(nodes[0],)] * at_once
    advance(broker, 15)
    sent = sent_of(broker, SETTING)
    assert len(sent) <= at_once
    assert (nodes[1],) in [to for to, _ in sent]
    advance(broker, 100)
    receivers = [to for to, _ in sent + sent_of(broker, SETTING)]
    assert [receivers.count((node,)) for node in nodes] == [1, count]
    assert broker.queue_settings.exchange.walks == {}


def test_a_doubt_costs_the_same_however_many_queues_have_settings():
    """It cancels earlier confirmations of the node, and no later ones."""
    broker = make_broker()
    node = add_node(broker)
    settings_sync.start(broker, [LEASE])
    state = broker.queue_settings.states[b"q"]
    dispatch.receive(broker, node, [[SETTINGS_HAVE, [b"q", state.digest]]])
    assert settings_sync.behind(broker, b"q") == 0
    dispatch.receive(broker, node, [[SETTINGS_DIGEST, [1, 0]]])
    assert settings_sync.behind(broker, b"q") == 1
    dispatch.receive(broker, node, [[SETTINGS_HAVE, [b"q", state.digest]]])
    assert settings_sync.behind(broker, b"q") == 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ((b"lease", b"40", 3), (b"lease", b"30", 3)),
        ((b"", b"", 3), (b"lease", b"30", 3)),
    ],
)
def test_of_two_settings_of_one_version_the_winner_is_told(ours, theirs):
    """Otherwise the two nodes would differ until their link is made anew. Spec QS1."""
    broker = make_broker()
    node = add_node(broker)
    settings_sync.start(broker, [(b"q", *ours, node.id)])
    dispatch.receive(broker, node, [[SETTING, [b"q", *theirs, node.id]]])
    assert [item for _, item in sent_of(broker, SETTING)] == [(b"q", *ours, node.id)]


@pytest.mark.parametrize(
    "run",
    [
        [SETTING, [b"q", b"lease", b"30", 1]],
        [SETTING, 7],
        [SETTING, [b"q", b"lease", b"3" * 65_537, 1, b"\x02" * 20]],
        [SETTINGS_DIGEST, [b"x", 0]],
        [ASKSETTINGS, [None]],
    ],
)
def test_a_malformed_message_closes_the_link(run):
    """Spec QS8."""
    broker = make_broker()
    node = add_node(broker)
    with pytest.raises(dispatch.MalformedMessageError):
        dispatch.receive(broker, node, [run])
    assert broker.queue_settings.states == {}


def test_a_peer_cannot_fill_the_memory(monkeypatch):
    """Spec QS8: settings beyond the bounds are ignored and counted."""
    broker = make_broker()
    node = add_node(broker)
    broker.queue_settings.bytes = queue_settings.TABLE_BYTES_MAX
    dispatch.receive(broker, node, [[SETTING, list(LEASE)]])
    assert broker.queue_settings.states == {}
    assert broker.stats.messages_ignored == 1


def test_a_node_with_an_older_setting_gets_the_newer_one():
    broker = make_broker()
    node = add_node(broker)
    settings_sync.start(broker, [(b"q", b"lease", b"40", 2, node.id)])
    dispatch.receive(broker, node, [[SETTING, list(LEASE)]])
    assert [item for _, item in sent_of(broker, SETTING)] == [(b"q", b"lease", b"40", 2, node.id)]


def test_a_node_that_heard_of_a_setting_earlier_is_known_to_have_it():
    """Its message came while this node was cut off from the node that made the setting."""
    world = joined("abc")
    world.cut("b", "c")
    world.run(10)
    set_lease(world, "c", 30)
    world.heal()
    world.run(5_000)
    assert [behind(world, name) for name in "abc"] == [0, 0, 0]
