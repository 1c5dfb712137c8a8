"""Voter lists: the nodes that grant claims, and the epoch of that list.

The voters are a list of their own, because gossip is no agreement: MEET, FORGET, failure and LEAVING never change it. A
list has an epoch, which grows with each list. It names each voter by its node id and the id of its *memory*. A voter
makes a memory id with its file of grants. A voter that has lost this file has another one, so every node can tell that
it does not remember what it granted. Spec CL4, CL6.

All lists that come from one first list have its *origin*. So lists of two clusters that meet are told apart.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.node import ID_BYTES

MEMORY_BYTES: Final = 16
ORIGIN_BYTES: Final = 8
VOTERS_MAX: Final = 1_000
EPOCH_MAX: Final = 1 << 60
LEASE_MAX_MS: Final = 9_223_372_036_854_000
# `claim-lease-max` of a first list.
DEFAULT_LEASE_MAX_MS: Final = 3_600_000

# A list as it travels and is kept: epoch, claim-lease-max in ms, is it a first list, [[node id, memory id], …], origin.
PackedList = tuple[int, int, bool, list[tuple[bytes, bytes]], bytes]


class VoterList:
    """The voters of one epoch.

    epoch          1 for the first list of a cluster
    lease_max_ms   no lease of a claim is longer
    is_first       the list was set by an operator, so there is no list before it to copy grants from
    voters         node id -> memory id, in the order of the node ids
    origin         of the first list of the cluster
    """

    __slots__ = ("epoch", "is_first", "lease_max_ms", "origin", "voters")

    def __init__(
        self, epoch: int, lease_max_ms: int, voters: dict[bytes, bytes], *, is_first: bool, origin: bytes = bytes(8)
    ) -> None:
        self.epoch = epoch
        self.lease_max_ms = lease_max_ms
        self.is_first = is_first
        self.origin = origin
        self.voters = {node_id: voters[node_id] for node_id in sorted(voters)}

    @property
    def majority(self) -> int:
        """Return how many voters are more than half."""
        return len(self.voters) // 2 + 1

    def packed(self) -> PackedList:
        """Return the list as it travels."""
        return self.epoch, self.lease_max_ms, self.is_first, list(self.voters.items()), self.origin

    def is_same(self, other: VoterList) -> bool:
        """Return whether both are the same list."""
        return self.packed() == other.packed()


def unpack_list(value: Any) -> VoterList:
    """Return a list that another node sent, or that a file has. ValueError."""
    if type(value) not in (list, tuple) or len(value) < 5:
        raise ValueError("a list of voters that is none")
    epoch, lease_max_ms, is_first, pairs, origin = value[:5]
    if type(origin) is not bytes or len(origin) != ORIGIN_BYTES:
        raise ValueError("a list of voters without an origin")
    if type(epoch) is not int or type(lease_max_ms) is not int or type(is_first) is not bool:
        raise ValueError("a list of voters without epoch or lease")
    if not 0 < epoch <= EPOCH_MAX or not 0 < lease_max_ms <= LEASE_MAX_MS:
        raise ValueError("an epoch or lease out of range")
    if type(pairs) not in (list, tuple) or not 0 < len(pairs) <= VOTERS_MAX:
        raise ValueError("voters that are none")
    voters: dict[bytes, bytes] = {}
    for pair in pairs:
        if type(pair) not in (list, tuple) or len(pair) < 2:
            raise ValueError("a voter that is none")
        node_id, memory_id = pair[:2]
        if type(node_id) is not bytes or type(memory_id) is not bytes:
            raise ValueError("a voter without ids")
        if len(node_id) != ID_BYTES or len(memory_id) != MEMORY_BYTES:
            raise ValueError("ids of a voter with a wrong length")
        voters[node_id] = memory_id
    return VoterList(epoch, lease_max_ms, voters, is_first=is_first, origin=origin)
