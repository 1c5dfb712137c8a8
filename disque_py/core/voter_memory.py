"""A voter's memory: the facts about claims that a node keeps in a separate file. Spec CL4, CL6, CL7.

The file is a sequence of items. Of each kind, the last item counts; of grants, the last one per key. `VoterMemory`
applies items of the file, and makes the items for changes. Each memory has an id. A node that finds no file, or a file
with a repaired end, makes a new id. Lists of voters contain the ids of memories, so every node can tell that such a
voter has forgotten its grants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from disque_py.core.grants import FENCE_LIMIT, ITEM_FIELDS, Grants, is_grant_item
from disque_py.core.voter_list import MEMORY_BYTES, PackedList, VoterList, unpack_list

# Kinds of items. Their numbers are in files, so they never change their meaning.
MEMORY: Final = 0  # memory id
LISTS: Final = 1  # list or None, the list before it or None, remembers, has copied, may grant, is in conflict
PAST: Final = 2  # [[epoch, whether the memory of that epoch is good], …]
GRANT: Final = 3  # a GrantItem
FORGOTTEN: Final = 4  # key
FLOOR: Final = 5  # fence
BALLOT: Final = 6  # epoch, promised number, promised node, accepted number, accepted node, accepted list or None

Item = tuple[int, Any]
KINDS: Final = (MEMORY, LISTS, PAST, BALLOT, FLOOR, GRANT, FORGOTTEN)
# The number of past epochs whose grants this node can send to other voters.
PASTS_MAX: Final = 16
# A ballot: number, node id. The higher one wins.
Ballot = tuple[int, bytes]
NO_BALLOT: Final[Ballot] = (0, b"")


class VoterMemory:
    """The memory of one node.

    memory_id   the id of this memory; b"" before it was made
    list        the newest list of voters that this node knows; None: there are no voters
    previous    the list before it, whose grants the voters of `list` copy
    remembers   whether this node is in `list` and has forgotten nothing of this epoch
    has_copied  whether it has the grants of the epoch before, or there was none
    is_conflict whether it has seen two lists of the same epoch or of different origins
    may_grant   whether it has lost its memory and since then read all fences from voters that remember
    past        past epoch in which this node was a voter -> whether it remembered and had copied
    promised    the highest ballot for the next list that it has promised
    accepted, accepted_list   the ballot and the next list that it has accepted
    grants      the grants of this node
    """

    def __init__(self) -> None:
        self.memory_id = b""
        self.list: VoterList | None = None
        self.previous: VoterList | None = None
        self.remembers = False
        self.has_copied = False
        self.may_grant = False
        self.is_conflict = False
        self.past: dict[int, bool] = {}
        self.promised = NO_BALLOT
        self.accepted = NO_BALLOT
        self.accepted_list: VoterList | None = None
        self.grants = Grants()

    def is_good(self, epoch: int) -> bool:
        """Return whether this node remembers all its grants in this epoch and before."""
        if self.list is not None and epoch == self.list.epoch:
            return self.remembers and self.has_copied
        return self.past.get(epoch, False)

    def item(self, kind: int, key: bytes, now_ms: int) -> Item | None:
        """Return the item to write after a change of this kind; None if there is nothing to write."""
        if kind == MEMORY:
            return MEMORY, self.memory_id
        if kind == LISTS:
            return LISTS, (
                _packed(self.list), _packed(self.previous), self.remembers, self.has_copied, self.may_grant,
                self.is_conflict,
            )  # fmt: skip
        if kind == PAST:
            return PAST, list(self.past.items())
        if kind == FLOOR:
            return FLOOR, self.grants.floor
        if kind == BALLOT:
            epoch = self.list.epoch if self.list is not None else 0
            return BALLOT, (epoch, *self.promised, *self.accepted, _packed(self.accepted_list))
        if key in self.grants.records:
            return GRANT, self.grants.item(key, now_ms)
        return FORGOTTEN, key

    def items(self, now_ms: int) -> Iterator[Item]:
        """Yield the items of the whole memory."""
        kinds = (MEMORY, LISTS, PAST, BALLOT, FLOOR) if self.memory_id else (LISTS, PAST, BALLOT, FLOOR)
        for kind in kinds:
            item = self.item(kind, b"", now_ms)
            if item is not None:
                yield item
        for key in list(self.grants.records):
            yield GRANT, self.grants.item(key, now_ms)

    def apply(self, item: Item, now_ms: int) -> None:
        """Apply an item of a file. The caller has checked it (`is_item`)."""
        kind, value = item
        if kind == MEMORY:
            self.memory_id = value
        elif kind == LISTS:
            epoch = self.list.epoch if self.list is not None else 0
            self.list = unpack_list(value[0]) if value[0] is not None else None
            self.previous = unpack_list(value[1]) if value[1] is not None else None
            self.remembers, self.has_copied, self.may_grant, self.is_conflict = value[2:6]
            if self.list is None or self.list.epoch != epoch:
                self.promised = self.accepted = NO_BALLOT
                self.accepted_list = None
        elif kind == PAST:
            self.past = dict(value)
        elif kind == GRANT:
            self.grants.put(tuple(value[:ITEM_FIELDS]), now_ms)
        elif kind == FORGOTTEN:
            self.grants.forget(value)
        elif kind == FLOOR:
            self.grants.floor = max(self.grants.floor, value)
        elif kind == BALLOT and self.list is not None and self.list.epoch == value[0]:
            self.promised = (value[1], value[2])
            self.accepted = (value[3], value[4])
            self.accepted_list = unpack_list(value[5]) if value[5] is not None else None


def _packed(voter_list: VoterList | None) -> PackedList | None:
    return voter_list.packed() if voter_list is not None else None


def is_item(item: Any) -> bool:
    """Return whether this is a valid item for `apply`. Unknown kinds come from newer versions, and are valid."""
    if type(item) not in (list, tuple) or len(item) < 2 or type(item[0]) is not int:
        return False
    try:
        return _is_value(item[0], item[1])
    except (ValueError, TypeError, IndexError):
        return False


def _is_value(kind: int, value: Any) -> bool:
    if kind == MEMORY:
        return type(value) is bytes and len(value) == MEMORY_BYTES
    if kind == LISTS:
        for packed in value[:2]:
            if packed is not None:
                unpack_list(packed)
        return len(value) >= 6 and all(type(flag) is bool for flag in value[2:6])
    if kind == PAST:
        return all(type(epoch) is int and type(is_good) is bool for epoch, is_good in value)
    if kind == GRANT:
        return is_grant_item(value)
    if kind == FORGOTTEN:
        return type(value) is bytes
    if kind == FLOOR:
        return type(value) is int and 0 <= value <= FENCE_LIMIT
    if kind == BALLOT:
        if value[5] is not None:
            unpack_list(value[5])
        return type(value[0]) is int and is_ballot(value[1:3]) and is_ballot(value[3:5])
    return True


def is_ballot(value: Any) -> bool:
    """Return whether this is a ballot: a number and a node id."""
    number, node_id = value
    return type(number) is int and type(node_id) is bytes and 0 <= number <= FENCE_LIMIT
