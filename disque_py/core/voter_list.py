"""Voter lists: the nodes that grant claims, with an epoch.

The list of voters is separate from the table of nodes, because gossip does not make nodes agree. MEET, FORGET, failure
and LEAVING never change the list. Each new list has a higher epoch. A list names each voter by its node id and the id
of its *memory*. A voter makes a memory id when it makes its file of grants. If it loses the file, it makes another id.
So every node can tell that this voter does not remember its grants. Spec CL4, CL6.

All lists that descend from one first list have the same *origin*. So nodes can tell the lists of two clusters apart if
the clusters meet.
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

# A list in messages and files: epoch, claim-lease-max in ms, whether it is a first list, [[node id, memory id], …],
# origin.
PackedList = tuple[int, int, bool, list[tuple[bytes, bytes]], bytes]


class VoterList:
    """The voters of one epoch.

    epoch          1 for the first list of a cluster
    lease_max_ms   the longest lease of a claim
    is_first       whether an operator set the list, so that there is no earlier list to copy grants from
    voters         node id -> memory id, in the order of the node ids
    origin         the origin of the cluster's first list
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
        """The number of voters that make a majority."""
        return len(self.voters) // 2 + 1

    def packed(self) -> PackedList:
        """Return the list as it is in messages and files."""
        return self.epoch, self.lease_max_ms, self.is_first, list(self.voters.items()), self.origin

    def is_same(self, other: VoterList) -> bool:
        """Return whether both are the same list."""
        return self.packed() == other.packed()


def unpack_list(value: Any) -> VoterList:
    """Return a list from a message or a file. ValueError if it is malformed."""
    if type(value) not in (list, tuple) or len(value) < 5:
        raise ValueError("a malformed list of voters")
    epoch, lease_max_ms, is_first, pairs, origin = value[:5]
    if type(origin) is not bytes or len(origin) != ORIGIN_BYTES:
        raise ValueError("a list of voters without an origin")
    if type(epoch) is not int or type(lease_max_ms) is not int or type(is_first) is not bool:
        raise ValueError("a list of voters without epoch or lease")
    if not 0 < epoch <= EPOCH_MAX or not 0 < lease_max_ms <= LEASE_MAX_MS:
        raise ValueError("an epoch or lease out of range")
    if type(pairs) not in (list, tuple) or not 0 < len(pairs) <= VOTERS_MAX:
        raise ValueError("malformed voters")
    voters: dict[bytes, bytes] = {}
    for pair in pairs:
        if type(pair) not in (list, tuple) or len(pair) < 2:
            raise ValueError("a malformed voter")
        node_id, memory_id = pair[:2]
        if type(node_id) is not bytes or type(memory_id) is not bytes:
            raise ValueError("a voter without ids")
        if len(node_id) != ID_BYTES or len(memory_id) != MEMORY_BYTES:
            raise ValueError("ids of a voter with a wrong length")
        voters[node_id] = memory_id
    return VoterList(epoch, lease_max_ms, voters, is_first=is_first, origin=origin)
