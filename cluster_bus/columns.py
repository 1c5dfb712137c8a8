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
_TAIL: Final = 35  # … and behind 24 characters "-" and four digits of the TTL.
_CHARS: Final = 24
_CHARS_AT: Final = 1 + _HEAD + _ID_BYTES - _TAIL
_ALL_SHARE: Final = 0
_EACH_HAS: Final = 1
_TIMES_BYTES: Final = 16
_HEADER_BYTES: Final = 26
_VERSIONED_BYTES: Final = 30
_SNAPSHOT_FIELDS: Final = 5
_COPY_FIELDS: Final = 2


class ColumnsError(ValueError):
    """A packed run that no node of this version sends."""


# -- ids ----------------------------------------------------------------------------------------------


def pack_ids(ids: Sequence[bytes]) -> bytes | None:
    """Return ids as one byte string; None if one of them has not 40 bytes."""
    chars: list[bytes] = []
    for job_id in ids:
        if len(job_id) != _ID_BYTES:
            return None
        chars.append(job_id[_HEAD:_TAIL])
    first = ids[0]
    head, tail = first[:_HEAD], first[_TAIL:]
    joined = b"".join(ids)
    if head + (tail + head).join(chars) + tail == joined:
        return b"".join((b"\0", head, tail, *chars))
    return b"\1" + joined


def unpack_ids(data: Any) -> list[bytes]:
    """Return the ids of a byte string. ColumnsError."""
    if type(data) is not bytes or not data:
        raise ColumnsError("ids that are no bytes")
    size = len(data)
    if data[0] == _EACH_HAS:
        if size % _ID_BYTES != 1 or not 1 < size <= 1 + _ID_BYTES * GROUP_IDS_MAX:
            raise ColumnsError("ids that are cut, or too many")
        return [data[at : at + _ID_BYTES] for at in range(1, size, _ID_BYTES)]
    if data[0] != _ALL_SHARE:
        raise ColumnsError("ids in no known form")
    if (size - _CHARS_AT) % _CHARS or not _CHARS_AT < size <= _CHARS_AT + _CHARS * GROUP_IDS_MAX:
        raise ColumnsError("ids that are cut, or too many")
    head, tail = data[1 : 1 + _HEAD], data[1 + _HEAD : _CHARS_AT]
    return [head + data[at : at + _CHARS] + tail for at in range(_CHARS_AT, size, _CHARS)]


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
    groups: list[Any] = []
    ids: list[bytes] = []
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
            ids = []
            groups.append((ids, more))
        ids.append(job_id)
    packed: list[Any] = []
    for ids, more in groups:
        joined = pack_ids(ids)
        if joined is None:
            return None
        packed.append((joined, *more))
    return packed


def _pack_copies(items: Sequence[Any]) -> list[Any] | None:
    """Return REPLJOBs as [flags, snapshots]; consecutive ones with the same flags are one.

    Copies that replace lost ones have more fields, and are sent in the plain form.
    """
    parts: list[tuple[int, list[Any]]] = []
    snapshots: list[Any] = []
    last: Any = None
    for item in items:
        if len(item) != _COPY_FIELDS:
            return None
        if item[1] != last:
            last = item[1]
            snapshots = []
            parts.append((last, snapshots))
        snapshots.append(item[0])
    return [(flags, pack_snapshots(snapshots)) for flags, snapshots in parts]


def unpack(kind: int, groups: list[Any]) -> list[Any]:
    """Return the items of a run of kind `kind` from its groups. ColumnsError."""
    items: list[Any] = []
    if kind == REPLJOB:
        for flags, snapshots, *_ in groups:
            items += [[snapshot, flags] for snapshot in unpack_snapshots(snapshots)]
        return items
    if kind == YOURJOBS:
        return [[item[0], item[1], unpack_snapshots(item[2]), *item[3:]] for item in groups]
    for group in groups:
        ids = unpack_ids(group[0])
        if len(group) == 1:
            items += ids
        else:
            more = group[1:]
            items += [[job_id, *more] for job_id in ids]
        if len(items) > FRAME_IDS_MAX:
            raise ColumnsError("too many ids")
    return items


# -- snapshots ----------------------------------------------------------------------------------------


def pack_snapshots(snapshots: Sequence[Any]) -> list[Any]:
    """Return snapshots as groups, with those among them that are None or have later fields as they are."""
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
        at = 0
        for number in range(count):
            header: bytes = times[at : at + _TIMES_BYTES] + rest
            snapshots.append([ids[number], header, queue, bodies[number], holders])
            at += _TIMES_BYTES
        if len(snapshots) > FRAME_IDS_MAX:
            raise ColumnsError("too many jobs")
    return snapshots
