"""The voters of a cluster, as its nodes describe them, and whether they can vote.

`create` and `start` make the first list of voters. Later the operator changes it with CLUSTER VOTERS, because only the
operator knows which nodes should grant claims. `remove-node` takes the node off the list, because a list that names
unknown nodes loses its majority. Spec CL4, CL6, CL7.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from disque_py.cli.address import Target
from disque_py.cli.cluster.view import ClusterView, NodeView, patient
from disque_py.cli.connection import ConnectError
from disque_py.client import DisqueError, ReplyError, UnreachableError, commands
from disque_py.client.results import Voters

# With three voters, one may fail.
FIRST_VOTERS: Final = 3
CONFLICT: Final = "conflict"
CHANGING: Final = "changing"
# In a complete mesh some links may have been made only a moment ago.
INIT_TRIES: Final = 10
INIT_PAUSE_S: Final = 0.3
# A change of the list takes a few seconds, and another change may be under way.
CHANGE_TIMEOUT_S: Final = 15.0
CHANGE_PAUSE_S: Final = 0.2
# The longest time in which a node answers a change of the list.
CHANGE_MS: Final = 10_000
READY: Final = "ready"
# Errors that go away by themselves. The first is that of a list which was decided and is not in effect yet.
PASSING_ERRORS: Final = ("NOQUORUM the voters are changing", "BUSY", "UNREACHABLE")


class VotersView:
    """The newest list of voters that a node of the cluster knows, and its state.

    newest   that list, as one node reports it; None if there is none
    """

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._told = [node.voters for node in cluster.nodes if node.voters is not None]
        lists = [told for told in self._told if told.epoch]
        self.newest: Voters | None = max(lists, key=lambda told: (told.epoch, told.reachable_count), default=None)

    def role_of(self, node: NodeView) -> str | None:
        """Return `voter`, `mute` or `no`; None if the cluster has no voters or the node's id is unknown."""
        if self.newest is None or not node.id:
            return None
        if node.id not in self.newest.voters:
            return "no"
        return "mute" if node.id in self.newest.mute else "voter"

    @staticmethod
    def as_json(told: Voters | None) -> dict[str, Any] | None:
        """Return a node's view of the voters for `status --json`; None if the server does not support voters."""
        if told is None:
            return None
        return {
            "epoch": told.epoch,
            "claim-lease-max": told.lease_max,
            "voters": told.voters,
            "state": told.state,
            "mute": told.mute,
            "reachable": told.reachable_count,
            "recovered": told.recovered,
        }

    @property
    def state(self) -> str:
        """The state of the voters: none, ready, changing or conflict."""
        if any(told.state == CONFLICT for told in self._told) or self._has_two_lists():
            return CONFLICT
        return self.newest.state if self.newest is not None else "none"

    def _has_two_lists(self) -> bool:
        """Return whether two nodes report different lists with the same epoch."""
        lists = {(told.epoch, frozenset(told.voters)) for told in self._told if told.epoch}
        return len(lists) > len({epoch for epoch, _ in lists})

    def summary(self) -> str:
        """Return a line for people; empty if no node supports voters."""
        if not self._told:
            return ""
        newest = self.newest
        if newest is None:
            return "Voters:   none; the cluster grants no claims and locks (CLUSTER VOTERS INIT)"
        mute = f", {len(newest.mute)} mute" if newest.mute else ""
        mute += f", {len(newest.recovered)} recovered" if newest.recovered else ""
        reach = f"{newest.reachable_count} of {len(newest.voters)} reachable"
        return f"Voters:   {self.state}, epoch {newest.epoch}, {reach}{mute}"

    def problems(self) -> list[str]:
        """Return the reasons why claims may fail now, or after one more failure."""
        if self.state == CONFLICT:
            return [
                "Nodes have different first lists of voters, and refuse claims:"
                " CLUSTER VOTERS RESET FORCE makes a new list"
            ]
        newest = self.newest
        if newest is None:
            return []
        found = []
        known = {node.id: node for node in self._cluster.nodes if node.id}
        for node_id in newest.voters:
            node = known.get(node_id)
            if node is None:
                found.append(f"The voter {node_id} is unknown. To replace it: {_replacing(node_id)}")
                continue
            if node.error:
                found.append(f"The voter {node.name} {_failure(node)}")
            elif flags := self._cluster.flags_of(node):
                found.append(f"The voter {node.name} is {','.join(flags)} for other nodes")
            if node.is_leaving:
                found.append(f"The voter {node.name} is leaving. To replace it: {_replacing(node_id)}")
            if node_id in newest.mute:
                found.append(f"The voter {node.name} is mute: it lost its votes, or is copying those of others")
        if _is_stuck(newest):
            found.append(
                f"{len(newest.recovered)} of {len(newest.voters)} voters lost their votes. They grant claims again, but"
                " the others are too few to change the list: use CLUSTER VOTERS RESET FORCE"
            )
        return found

    def hints(self) -> list[str]:
        """Return advice about a list that works, but not as well as it could."""
        newest = self.newest
        if newest is None:
            return []
        found = []
        count = len(newest.voters)
        if count == 1 and len(self._cluster.nodes) >= FIRST_VOTERS:
            found.append("there is one voter: if it fails, no claim is granted. Three voters tolerate one failure")
        elif count % 2 == 0:
            found.append(f"there are {count} voters, an even number: one voter fewer tolerates as many failures")
        if newest.recovered and not _is_stuck(newest):
            found.append(
                f"{len(newest.recovered)} of {count} voters lost their votes. They grant claims again, but take no"
                " part in the next change of the list. Any change makes them full voters, for example CLUSTER VOTERS"
                " LEASEMAX with the same seconds"
            )
        if newest.state == CHANGING:
            found.append("the voters are changing: the next list takes effect when most of them have copied all grants")
        return found


def _is_stuck(told: Voters) -> bool:
    """Return whether no majority is left that may decide on the next list. Spec CL6."""
    return bool(told.recovered) and 2 * (len(told.voters) - len(told.recovered)) <= len(told.voters)


def _failure(node: NodeView) -> str:
    if node.needs_login:
        return "does not accept the login"
    return "refuses a command" if node.refuses else "does not answer"


def _replacing(node_id: str) -> str:
    return f"CLUSTER VOTERS ADD another node, then CLUSTER VOTERS REMOVE {node_id}"


def first_voters(cluster: ClusterView, targets: Sequence[Target]) -> list[str]:
    """Return ids for the first list of a cluster that has none: an odd number of the first nodes, three at most."""
    told = [node.voters for node in cluster.nodes]
    if any(voters is not None and voters.epoch for voters in told):
        return []
    ids = {node.address: node.id for node in cluster.nodes}
    listed = [ids[target.address] for target in targets if ids.get(target.address)]
    count = min(FIRST_VOTERS, len(listed))
    return listed[: count if count % 2 else count - 1]


def set_voters(target: Target, node_ids: Sequence[str]) -> None:
    """Make the first list of voters. Raises ConnectError; ReplyError if the node refuses, or supports no voters."""
    for tries_left in reversed(range(INIT_TRIES)):
        try:
            with patient(target) as node:
                node.run(commands.cluster_voters_init(*node_ids))
        except UnreachableError:
            if not tries_left:
                raise
            time.sleep(INIT_PAUSE_S)
        else:
            return


class VoterStaysError(Exception):
    """A node can't be removed from the list of voters; the text gives the reason and the next step."""


def remove_voter(cluster: ClusterView, leaver: NodeView, access: Target) -> int:
    """Remove a node from the list of voters. Return the number of voters that are left.

    Wait until the list is in effect, and until the node itself knows it. The other nodes should know it, too, before
    the node goes, because they ask the voters that they know. Raises VoterStaysError.
    """
    others = [node for node in cluster.nodes if node is not leaver and not node.error and node.voters is not None]
    others.sort(key=lambda node: node.voters.epoch if node.voters is not None else 0, reverse=True)
    askers = [access.at(node.address) for node in (*others[:1], *([] if leaver.error else [leaver]))]
    rest = [access.at(node.address) for node in others[1:]]
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    while True:
        try:
            left = [_voters_without(asker, leaver.id, removes=at == 0) for at, asker in enumerate(askers)]
            if all(left):
                while time.monotonic() < deadline and not all(_knows_removal(each, leaver.id) for each in rest):
                    time.sleep(CHANGE_PAUSE_S)
                return left[0]
            reason = "the other voters have not copied all grants yet"
        except (ConnectError, DisqueError) as error:
            reason = str(error)
            if isinstance(error, ReplyError) and not reason.startswith(PASSING_ERRORS):
                break
        if time.monotonic() >= deadline:
            break
        time.sleep(CHANGE_PAUSE_S)
    raise VoterStaysError(
        f"{leaver.name} is a voter and stays in the cluster: {reason}. {_advice(cluster, leaver, reason)}"
    )


def _voters_without(asker: Target, node_id: str, *, removes: bool) -> int:
    """Return the number of voters of a list in effect that does not name the node; 0 while there is none."""
    with patient(asker) as node:
        told = node.run(commands.cluster_voters())
        if removes and node_id in told.voters:
            node.run(commands.execute("CLUSTER", "VOTERS", "REMOVE", node_id, wait_ms=CHANGE_MS))
            told = node.run(commands.cluster_voters())
    return len(told.voters) if told.state == READY and node_id not in told.voters else 0


def _knows_removal(asker: Target, node_id: str) -> bool:
    """Return whether a node does not name the removed one. A node that fails now is not waited for."""
    try:
        return _voters_without(asker, node_id, removes=False) > 0
    except (ConnectError, DisqueError):
        return True


def _advice(cluster: ClusterView, leaver: NodeView, reason: str) -> str:
    """Return the next step after a list of voters that could not be changed."""
    if "last voter" in reason:
        candidate = next((node.id for node in cluster.nodes if node is not leaver and not node.error), "node-id")
        return f"Make another node a voter first: CLUSTER VOTERS ADD {candidate}"
    if reason.startswith("NOQUORUM no majority"):
        return (
            "Start the voters that don't answer (`disque-cluster check` names them). If most voters are gone for good,"
            " see CLUSTER VOTERS RESET FORCE in docs/locks.md"
        )
    return f"Run this again, or send CLUSTER VOTERS REMOVE {leaver.id} to another node first"
