"""cluster/voters.py: the voters as the nodes of a cluster describe them."""

from __future__ import annotations

import pytest

from disque_py.cli.address import Target
from disque_py.cli.cluster import voters
from disque_py.cli.cluster.view import ClusterView, NodeView, TableRow
from disque_py.cli.cluster.voters import VotersView, first_voters, set_voters
from disque_py.client import Address, ReplyError, UnreachableError
from disque_py.client.results import Voters

IDS = [letter * 40 for letter in "abcd"]


def told(*ids, epoch=1, state="ready", mute=(), recovered=()):
    return Voters(epoch, 3600, list(ids), state, list(mute), len(ids), list(recovered))


def cluster(*accounts, **fields):
    """Return a cluster of nodes at 10.0.0.1 and following addresses. Each gives its account of the voters."""
    nodes = [
        NodeView(Address(f"10.0.0.{number}", 7711), id=node_id, voters=account)
        for number, (node_id, account) in enumerate(zip(IDS, accounts, strict=False), 1)
    ]
    for name, value in fields.items():
        setattr(nodes[0], name, value)
    return ClusterView(nodes)


def test_the_newest_list_counts():
    """Spec CL4: some nodes may not know the newest list yet."""
    view = VotersView(cluster(told(*IDS[:3]), told(*IDS[1:], epoch=2), None, None))
    assert view.newest is not None
    assert view.newest.epoch == 2
    assert view.problems() == []
    assert view.summary() == "Voters:   ready, epoch 2, 3 of 3 reachable"


def test_every_node_has_a_role():
    found = cluster(*[told(*IDS[:3], mute=[IDS[1]])] * 4)
    assert [VotersView(found).role_of(node) for node in found.nodes] == ["voter", "mute", "voter", "no"]
    assert VotersView(cluster(None)).role_of(found.nodes[0]) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": "f" * 40}, f"The voter {IDS[0]} is unknown"),
        ({"error": "Connection refused"}, "does not answer"),
        ({"is_leaving": True}, "is leaving. To replace it: CLUSTER VOTERS ADD another node"),
    ],
)
def test_a_voter_that_cannot_be_counted_on_is_a_problem(fields, words):
    problems = VotersView(cluster(*[told(*IDS[:3])] * 3, **fields)).problems()
    assert len(problems) == 1
    assert words in problems[0]


def test_a_failed_or_mute_voter_is_a_problem():
    """Spec CL6."""
    found = cluster(*[told(*IDS[:3], mute=[IDS[1]])] * 3)
    found.nodes[0].table = [TableRow(IDS[2], found.nodes[2].address, frozenset({"fail"}), is_linked=False)]
    problems = VotersView(found).problems()
    assert [problem.split(") ")[1] for problem in problems] == [
        "is mute: it lost its votes, or is copying those of others",
        "is fail for other nodes",
    ]


def test_recovered_voters_are_a_hint_and_where_too_many_are_a_problem():
    """Spec CL6: recovered voters take no part in the choice of the next list."""
    view = VotersView(cluster(*[told(*IDS[:3], recovered=IDS[:1])] * 3))
    assert "1 of 3 voters lost their votes" in view.hints()[0]
    assert view.problems() == []
    assert view.summary() == "Voters:   ready, epoch 1, 3 of 3 reachable, 1 recovered"
    stuck = VotersView(cluster(*[told(*IDS[:3], recovered=IDS[:2])] * 3))
    assert stuck.hints() == []
    assert "RESET FORCE" in stuck.problems()[0]


def test_two_first_lists_are_a_conflict():
    """Spec CL4: this includes nodes that have not seen each other's list yet."""
    view = VotersView(cluster(told(*IDS[:3]), told(*IDS[1:])))
    assert view.state == "conflict"
    assert "RESET FORCE" in view.problems()[0]
    assert VotersView(cluster(told(*IDS[:3], state="conflict"))).state == "conflict"


def test_an_even_number_and_a_single_voter_are_hints():
    """In a cluster of two nodes a second voter would not help, so a single voter is no hint there."""
    assert (
        "2 voters, an even number: one voter fewer tolerates as many" in VotersView(cluster(told(*IDS[:2]))).hints()[0]
    )
    assert "one voter" in VotersView(cluster(*[told(IDS[0])] * 3)).hints()[0]
    assert VotersView(cluster(*[told(IDS[0])] * 2)).hints() == []
    assert VotersView(cluster(*[told(*IDS[:3])] * 3)).hints() == []


def test_the_first_voters_are_an_odd_number_of_the_first_nodes():
    """Spec CL7. A cluster that has voters keeps them."""
    none = told(epoch=0, state="none")
    for count, expected in ((1, 1), (2, 1), (3, 3), (4, 3)):
        found = cluster(*[none] * count)
        targets = [Target(node.address) for node in found.nodes]
        assert first_voters(found, targets) == IDS[:expected]
    assert first_voters(cluster(none, told(IDS[0])), [Target(Address("10.0.0.1", 7711))]) == []


def test_the_first_list_is_asked_for_until_all_links_are_up(scripted, bulk_reply, monkeypatch):
    """UNREACHABLE is retried. A server without CLUSTER VOTERS answers with an error, which is raised immediately."""
    monkeypatch.setattr(voters, "INIT_PAUSE_S", 0.0)
    answers = [b"-UNREACHABLE Node b is not linked\r\n", b"+OK\r\n"]
    hello = b"*2\r\n:1\r\n" + bulk_reply(IDS[0])
    node = scripted({"HELLO": hello, "CLUSTER VOTERS": lambda words: answers.pop(0)})
    target = Target(Address("127.0.0.1", node.port))
    set_voters(target, IDS[:1])
    assert answers == []
    answers += [b"-UNREACHABLE Node b is not linked\r\n"] * voters.INIT_TRIES
    with pytest.raises(UnreachableError):
        set_voters(target, IDS[:1])
    answers += [b"-ERR Wrong CLUSTER subcommand or number of arguments\r\n"]
    with pytest.raises(ReplyError):
        set_voters(target, IDS[:1])


def test_a_voter_is_removed_when_another_change_is_over(scripted, bulk_reply, monkeypatch):
    """BUSY is retried. A list that was decided counts when it is in effect."""
    monkeypatch.setattr(voters, "CHANGE_PAUSE_S", 0.0)
    listed, states = list(IDS[:3]), ["ready", "ready", "changing", "changing", "ready"]
    busy = [b"-BUSY a change of voters is under way\r\n"]

    def shown(words):
        reply = b"*2\r\n" + bulk_reply("voters") + b"*%d\r\n" % len(listed) + b"".join(map(bulk_reply, listed))
        return b"*6" + reply[2:] + bulk_reply("state") + bulk_reply(states.pop(0)) + bulk_reply("epoch") + b":1\r\n"

    def remove(words):
        return busy.pop() if busy else listed.remove(words[3].decode()) or b"+OK\r\n"

    hello = b"*2\r\n:1\r\n" + bulk_reply(IDS[1])
    node = scripted({"HELLO": hello, "CLUSTER VOTERS": shown, "CLUSTER VOTERS REMOVE": remove})
    found = cluster(told(*IDS[:3]), told(*IDS[:3]), error="Connection refused")
    found.nodes[1].address = Address("127.0.0.1", node.port)
    assert voters.remove_voter(found, found.nodes[0], Target()) == 2
    assert (busy, listed, states) == ([], IDS[1:3], [])


def test_a_removal_waits_until_the_other_nodes_know_it(scripted, bulk_reply, monkeypatch):
    """They ask the voters that they know."""
    monkeypatch.setattr(voters, "CHANGE_PAUSE_S", 0.0)

    def shown(*listed):
        parts = (b"*6\r\n", bulk_reply("epoch"), b":1\r\n", bulk_reply("state"), bulk_reply("ready"))
        return b"".join((*parts, bulk_reply("voters"), b"*%d\r\n" % len(listed), *map(bulk_reply, listed)))

    hello = b"*2\r\n:1\r\n" + bulk_reply(IDS[1])
    late = [shown(*IDS[:2]), shown(*IDS[:2]), shown(IDS[1])]
    first = scripted({"HELLO": hello, "CLUSTER VOTERS": shown(IDS[1])})
    second = scripted({"HELLO": hello, "CLUSTER VOTERS": lambda words: late.pop(0)})
    found = cluster(told(*IDS[:2]), told(*IDS[:2]), told(*IDS[:2]), error="Connection refused")
    for view, node in zip(found.nodes[1:], (first, second), strict=True):
        view.address = Address("127.0.0.1", node.port)
    assert voters.remove_voter(found, found.nodes[0], Target()) == 1
    assert late == []


def test_an_older_server_reports_no_voters():
    view = VotersView(cluster(None, None))
    assert (view.summary(), view.problems(), view.hints(), view.state) == ("", [], [], "none")
    assert VotersView.as_json(None) is None
    assert "no claims and locks" in VotersView(cluster(told(epoch=0, state="none"))).summary()
