"""Columns: runs of items of jobs, packed by position (bus version 3).

The items of a run mostly differ in the job's id alone: a thousand acknowledged jobs have the same holders. So a run of
some kinds is packed as groups. A group has the ids of consecutive items in one byte string, and the other positions
once:

    items of [id, more …]   → [ids, more …]
    snapshots of jobs       → [ids, times, header, queue, holders, bodies]

Of the 40 characters of an id, 16 name its node and its TTL. If all ids of a group share these, the group has them once,
and 24 characters per id are left. They would fit into 18 bytes, but base64 takes more time than the message does. Ids
of other lengths have no packed form: `pack` returns None, and the caller sends the plain one. Snapshots with fields of
a later version are sent as they are, among the groups.

The times are the first sixteen bytes of each snapshot's header: creation time, and milliseconds of life left. The
group's header is the rest, which most jobs share, without the zero bytes at its end.

A run of one or two jobs stays plain, because packing would cost more time than it saves bytes.

`pack` and `unpack` are inverse, so the handlers of messages know nothing of this. The kind of a packed run is that of
the plain one plus PACKED. Spec N9.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import Any, Final

from cluster_bus.messages import (
    DELJOB,
    GOTACK,
    GOTJOB,
    LEASED,
    QUEUED,
    REFUSED,
    REPLJOB,
    SETACK,
    WILLQUEUE,
    YOURJOBS,
)

# The first version of the bus with packed runs.
COLUMNS_VERSION: Final = 3
# Added to a kind; the result is still one byte of msgpack.
PACKED: Final = 64
# Kinds whose items are [id, more …], or the id alone.
OF_IDS: Final = frozenset((GOTJOB, REFUSED, QUEUED, WILLQUEUE, LEASED, SETACK, GOTACK, DELJOB))
KINDS: Final = OF_IDS | {REPLJOB, YOURJOBS}
# Shorter runs stay plain.
ITEMS_MIN: Final = 3
# A node sends at most 512 items per run, and at most 200 jobs per hand-over. An id of 24 bytes becomes one of 73.
GROUP_IDS_MAX: Final = 1 << 12
FRAME_IDS_MAX: Final = 1 << 16

_ID_BYTES: Final = 40
_HEAD: Final = 11  # "D-", eight digits of the node, "-".
_TAIL: Final = 5  # Behind 24 characters: "-" and four digits of the TTL.
_CHARS: Final = 24
_CHARS_AT: Final = 1 + _HEAD + _TAIL
_ALL_SHARE: Final = 0
_EACH_HAS: Final = 1
_TIMES_BYTES: Final = 16
_HEADER_BYTES: Final = 26
_VERSIONED_BYTES: Final = 30
_SNAPSHOT_FIELDS: Final = 5
_COPY_FIELDS: Final = 2

# Pieces that are cut at a time (`_Cutter`).
_CUT_AT_A_TIME: Final = (256, 64, 16, 4, 1)


class ColumnsError(ValueError):
    """A packed run that no node of this version sends."""


class _Cutter:
    """Cuts bytes into pieces of equal size, many with one call, because a run has hundreds of items.

    piece   the pieces' layout, as in the module `struct`
    """

    __slots__ = ("_steps",)

    def __init__(self, piece: str) -> None:
        structs = [Struct(piece * count) for count in _CUT_AT_A_TIME]
        self._steps = tuple([(struct.size, struct.unpack_from) for struct in structs])

    def cut(self, data: bytes) -> list[bytes]:
        """Return the pieces of some bytes, whose number must be a multiple of a piece's."""
        pieces: list[bytes] = []
        at = 0
        left = len(data)
        for size, unpack_from in self._steps:
            while left >= size:
                pieces += unpack_from(data, at)
                at += size
                left -= size
        return pieces


_IDS: Final = _Cutter(f"{_ID_BYTES}s")
_MIDDLES: Final = _Cutter(f"{_CHARS}s")
_MIDDLES_OF_IDS: Final = _Cutter(f"{_HEAD}x{_CHARS}s{_TAIL}x")
_TIMES: Final = _Cutter(f"{_TIMES_BYTES}s")
_TIMES_OF_HEADERS: Final = _Cutter(f"{_TIMES_BYTES}s{_HEADER_BYTES}x")
_NUMBERS: Final = _Cutter(f"{_TIMES_BYTES}x{_HEADER_BYTES}s")


# -- ids ----------------------------------------------------------------------------------------------


def pack_ids(ids: Sequence[bytes]) -> bytes | None:
    """Return ids as one byte string; None if one of them has not 40 bytes."""
    if len(ids[0]) != _ID_BYTES or _differ(list(map(len, ids))):
        return None
    joined = b"".join(ids)
    head, tail = joined[:_HEAD], joined[-_TAIL:]
    middles = _MIDDLES_OF_IDS.cut(joined)
    if _with_ends(head, middles, tail) == joined:
        return b"".join((b"\0", head, tail, *middles))
    return b"\1" + joined


def unpack_ids(data: Any) -> list[bytes]:
    """Return the ids of a byte string. ColumnsError."""
    if type(data) is not bytes or not data:
        raise ColumnsError("ids that are no bytes")
    size = len(data)
    if data[0] == _EACH_HAS:
        if size % _ID_BYTES != 1 or not 1 < size <= 1 + _ID_BYTES * GROUP_IDS_MAX:
            raise ColumnsError("ids that are cut, or too many")
        return _IDS.cut(data[1:])
    if data[0] != _ALL_SHARE:
        raise ColumnsError("ids in no known form")
    if (size - _CHARS_AT) % _CHARS or not _CHARS_AT < size <= _CHARS_AT + _CHARS * GROUP_IDS_MAX:
        raise ColumnsError("ids that are cut, or too many")
    head, tail = data[1 : 1 + _HEAD], data[1 + _HEAD : _CHARS_AT]
    return _IDS.cut(_with_ends(head, _MIDDLES.cut(data[_CHARS_AT:]), tail))


def _with_ends(head: bytes, middles: list[bytes], tail: bytes) -> bytes:
    """Return the ids that have these characters in the middle, joined."""
    return head + (tail + head).join(middles) + tail


def _differ(values: Sequence[Any]) -> bool:
    """Whether one of the values, of which there are some, differs from the first."""
    return values.count(values[0]) != len(values)


# -- runs ---------------------------------------------------------------------------------------------


def pack(kind: int, items: Sequence[Any]) -> list[Any] | None:
    """Return the items of a run of one of KINDS as groups; None if they are sent in the plain form."""
    if kind == YOURJOBS:
        if len(items) == 1 and len(items[0][2]) < ITEMS_MIN:
            return None
        return [(item[0], item[1], pack_snapshots(item[2]), *item[3:]) for item in items]
    if len(items) < ITEMS_MIN:
        return None
    if kind == REPLJOB:
        return _pack_copies(items)
    packed: list[Any] = []
    for ids, more in _groups_of(items):
        joined = pack_ids(ids)
        if joined is None:
            return None
        packed.append((joined, *more))
    return packed


def _groups_of(items: Sequence[Any]) -> list[tuple[Sequence[bytes], Any]]:
    """Return the ids of consecutive items that agree in all else, and all else."""
    if not _differ(list(map(type, items))) and not _differ(list(map(len, items))):
        if type(items[0]) is bytes:
            return [(items, ())]
        ids, *others = zip(*items, strict=True)
        if not any(map(_differ, others)):
            return [(ids, items[0][1:])]
    groups: list[tuple[Sequence[bytes], Any]] = []
    group: list[bytes] = []
    last: Any = None
    for item in items:
        if type(item) is bytes:
            job_id: bytes = item
            more: Any = ()
        else:
            job_id = item[0]
            more = item[1:]
        if more != last:
            last = more
            group = []
            groups.append((group, more))
        group.append(job_id)
    return groups


def _pack_copies(items: Sequence[Any]) -> list[Any] | None:
    """Return REPLJOBs as [flags, snapshots]; consecutive ones with the same flags are one.

    Copies that replace lost ones have more fields, and are sent in the plain form.
    """
    if len(items[0]) != _COPY_FIELDS or _differ(list(map(len, items))):
        return None
    snapshots, all_flags = zip(*items, strict=True)
    if not _differ(all_flags):
        return [(all_flags[0], pack_snapshots(snapshots))]
    parts: list[tuple[int, list[Any]]] = []
    for snapshot, flags in items:
        if not parts or parts[-1][0] != flags:
            parts.append((flags, []))
        parts[-1][1].append(snapshot)
    return [(flags, pack_snapshots(snapshots)) for flags, snapshots in parts]


def unpack(kind: int, groups: list[Any]) -> list[Any]:
    """Return the items of a run of kind `kind` from its groups. ColumnsError."""
    items: list[Any] = []
    if kind == REPLJOB:
        for flags, snapshots, *_ in groups:
            items += zip(unpack_snapshots(snapshots), repeat(flags), strict=False)
        return items
    if kind == YOURJOBS:
        return [[item[0], item[1], unpack_snapshots(item[2]), *item[3:]] for item in groups]
    for group in groups:
        ids = unpack_ids(group[0])
        if len(group) == 1:
            items += ids
        else:
            items += zip(ids, *map(repeat, group[1:]), strict=False)
        if len(items) > FRAME_IDS_MAX:
            raise ColumnsError("too many ids")
    return items


# -- snapshots ----------------------------------------------------------------------------------------


def pack_snapshots(snapshots: Sequence[Any]) -> list[Any]:
    """Return snapshots as groups, with those among them that are None or have later fields as they are."""
    alike = _one_group(snapshots)
    if alike is not None:
        return alike
    packed: list[Any] = []
    group: list[Any] = []
    times: list[bytes] = []
    queue = holders = numbers = b""
    for snapshot in snapshots:
        if snapshot is None or len(snapshot) != _SNAPSHOT_FIELDS:
            if group:
                packed += _group(group, times, numbers)
                group, times = [], []
            packed.append(snapshot)
            continue
        header: bytes = snapshot[1]
        rest = header[_TIMES_BYTES:]
        if not group or rest != numbers or snapshot[2] != queue or snapshot[4] != holders:
            if group:
                packed += _group(group, times, numbers)
                group, times = [], []
            numbers, queue, holders = rest, snapshot[2], snapshot[4]
        group.append(snapshot)
        times.append(header[:_TIMES_BYTES])
    if group:
        packed += _group(group, times, numbers)
    return packed


def _one_group(snapshots: Sequence[Any]) -> list[Any] | None:
    """Return snapshots without later fields as one group; None if they need several."""
    if not snapshots or None in snapshots:
        return None
    lengths = list(map(len, snapshots))
    if lengths[0] != _SNAPSHOT_FIELDS or _differ(lengths):
        return None
    ids, headers, queues, bodies, holders = zip(*snapshots, strict=True)
    if len(headers[0]) != _TIMES_BYTES + _HEADER_BYTES or _differ(list(map(len, headers))):
        return None
    numbers = _NUMBERS.cut(b"".join(headers))
    if _differ(numbers) or _differ(queues) or _differ(holders):
        return None
    joined = pack_ids(ids)
    if joined is None:
        return None
    times = b"".join(_TIMES_OF_HEADERS.cut(b"".join(headers)))
    return [(joined, times, numbers[0].rstrip(b"\0"), queues[0], holders[0], bodies)]


def _group(snapshots: list[Any], times: list[bytes], numbers: bytes) -> list[Any]:
    """Return snapshots with the same queue, holders and numbers as one group, or as they are."""
    first = snapshots[0]
    ids = pack_ids([snapshot[0] for snapshot in snapshots])
    if ids is None:
        return snapshots
    bodies = [snapshot[3] for snapshot in snapshots]
    return [(ids, b"".join(times), numbers.rstrip(b"\0"), first[2], first[4], bodies)]


def unpack_snapshots(packed: list[Any]) -> list[Any]:
    """Return the snapshots of groups. ColumnsError."""
    snapshots: list[Any] = []
    for group in packed:
        if group is None or len(group[0]) == _ID_BYTES:
            snapshots.append(group)
            continue
        ids = unpack_ids(group[0])
        times, numbers, queue, holders, bodies = group[1], group[2], group[3], group[4], group[5]
        if type(times) is not bytes or type(numbers) is not bytes or len(numbers) > _VERSIONED_BYTES:
            raise ColumnsError("a header that is none")
        count = len(ids)
        if len(times) != _TIMES_BYTES * count or type(bodies) is not list or len(bodies) != count:
            raise ColumnsError("columns of different lengths")
        rest: bytes = numbers.ljust(_HEADER_BYTES if len(numbers) <= _HEADER_BYTES else _VERSIONED_BYTES, b"\0")
        headers = [each + rest for each in _TIMES.cut(times)]
        snapshots += zip(ids, headers, repeat(queue), bodies, repeat(holders), strict=False)
        if len(snapshots) > FRAME_IDS_MAX:
            raise ColumnsError("too many jobs")
    return snapshots
