"""Columns: runs of items of jobs, packed by position (bus version 3).

The items of a run mostly differ in the job's id alone: a thousand acknowledged jobs have the same holders. So a run of
some kinds is packed as groups. A group has the ids of consecutive items in one byte string, and the other positions
once:

    items of [id, more …]   → [ids, more …]
    snapshots of jobs       → [ids, header, queue, holders, creation times, milliseconds left, bodies]

An id of 40 characters is six bytes for its node and its TTL, which most ids of a group share, and eighteen for its
random characters. Ids that are written otherwise, such as with upper-case digits, travel as they are: `pack` returns
None, and the caller sends the run in its plain form. Snapshots with later fields travel as they are, too, among the
groups.

Creation times are the first one and then differences. So are the milliseconds left, or one number if they are equal.
The header is the rest of the snapshot's header, without the zero bytes at its end.

`pack` and `unpack` are inverse, so the handlers of messages know nothing of this. The kind of a packed run is that of
the plain one plus PACKED. Spec N9.
"""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64, hexlify, unhexlify
from collections.abc import Sequence
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
# A node sends at most 512 items per run, and at most 200 jobs per hand-over. An id of 18 bytes becomes one of 73.
GROUP_IDS_MAX: Final = 1 << 12
FRAME_IDS_MAX: Final = 1 << 16

_ID_BYTES: Final = 40
_HEAD: Final = 11  # "D-", eight digits of the node, "-".
_TAIL: Final = 35  # … and behind 24 characters "-" and four digits of the TTL.
_CHARS: Final = 24
_CHAR_BYTES: Final = 18
_END_BYTES: Final = 6
_ALL_SHARE: Final = 0
_EACH_HAS: Final = 1
# Ids of few nodes and few TTLs are under way; another cluster's ids may come from clients.
_ENDS_MAX: Final = 10_000
_TIMES: Final = Struct("<QQ")
_HEADER_BYTES: Final = 26
_VERSIONED_BYTES: Final = 30
_SNAPSHOT_FIELDS: Final = 5

# (head, tail) of an id in one string -> its six bytes, b"" for ends that can't be packed; and back.
_packed_ends: Final[dict[bytes, bytes]] = {}
_plain_ends: Final[dict[bytes, tuple[bytes, bytes]]] = {}


class ColumnsError(ValueError):
    """A packed run that no node of this version sends."""


# -- ids ----------------------------------------------------------------------------------------------


def pack_ids(ids: Sequence[bytes]) -> bytes | None:
    """Return ids as one byte string; None if one of them can't be packed."""
    first = ids[0]
    head, tail = first[:_HEAD], first[_TAIL:]
    is_shared = True
    for job_id in ids:
        if len(job_id) != _ID_BYTES:
            return None
        if is_shared and (job_id[:_HEAD] != head or job_id[_TAIL:] != tail):
            is_shared = False
    joined = b"".join([job_id[_HEAD:_TAIL] for job_id in ids])
    try:
        packed = a2b_base64(joined)
    except Error:
        return None
    if b2a_base64(packed, newline=False) != joined:
        return None
    if is_shared:
        end = _pack_end(head + tail)
        return b"\0" + end + packed if end else None
    ends = [_pack_end(job_id[:_HEAD] + job_id[_TAIL:]) for job_id in ids]
    return b"\1" + b"".join(ends) + packed if all(ends) else None


def _pack_end(ends: bytes) -> bytes:
    found = _packed_ends.get(ends)
    if found is None:
        if len(_packed_ends) > _ENDS_MAX:
            _packed_ends.clear()
        try:
            found = unhexlify(ends[2:10] + ends[12:])
        except Error:
            found = b""
        if found and b"".join(_unpack_end(found)) != ends:
            found = b""
        _packed_ends[ends] = found
    return found


def _unpack_end(end: bytes) -> tuple[bytes, bytes]:
    found = _plain_ends.get(end)
    if found is None:
        if len(_plain_ends) > _ENDS_MAX:
            _plain_ends.clear()
        digits = hexlify(end)
        found = _plain_ends[end] = (b"D-" + digits[:8] + b"-", b"-" + digits[8:])
    return found


def unpack_ids(data: Any) -> list[bytes]:
    """Return the ids of a byte string. ColumnsError."""
    if type(data) is not bytes or len(data) <= _END_BYTES + 1:
        raise ColumnsError("ids that are no bytes")
    if data[0] == _ALL_SHARE:
        count, odd = divmod(len(data) - 1 - _END_BYTES, _CHAR_BYTES)
        chars_at = 1 + _END_BYTES
    elif data[0] == _EACH_HAS:
        count, odd = divmod(len(data) - 1, _CHAR_BYTES + _END_BYTES)
        chars_at = 1 + _END_BYTES * count
    else:
        raise ColumnsError("ids in no known form")
    if odd or not 0 < count <= GROUP_IDS_MAX:
        raise ColumnsError("ids that are cut, or too many")
    chars = b2a_base64(data[chars_at:], newline=False)
    if data[0] == _ALL_SHARE:
        head, tail = _unpack_end(data[1 : 1 + _END_BYTES])
        return [head + chars[at : at + _CHARS] + tail for at in range(0, len(chars), _CHARS)]
    ids = []
    for number in range(count):
        head, tail = _unpack_end(data[1 + _END_BYTES * number : 1 + _END_BYTES * (number + 1)])
        ids.append(head + chars[_CHARS * number : _CHARS * (number + 1)] + tail)
    return ids


# -- runs ---------------------------------------------------------------------------------------------


def pack(kind: int, items: Sequence[Any]) -> list[Any] | None:
    """Return the items of a run of one of KINDS as groups; None if they travel in the plain form."""
    if kind == REPLJOB:
        return _pack_copies(items)
    if kind == YOURJOBS:
        return [(item[0], item[1], pack_snapshots(item[2]), *item[3:]) for item in items]
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


def _pack_copies(items: Sequence[Any]) -> list[Any]:
    """Return REPLJOBs as [flags, snapshots]; consecutive ones with the same flags are one."""
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
    queue = holders = numbers = b""
    for snapshot in snapshots:
        if snapshot is None or len(snapshot) != _SNAPSHOT_FIELDS:
            if group:
                packed += _pack_group(group)
                group = []
            packed.append(snapshot)
            continue
        header: bytes = snapshot[1]
        if not group or header[16:] != numbers or snapshot[2] != queue or snapshot[4] != holders:
            if group:
                packed += _pack_group(group)
                group = []
            numbers, queue, holders = header[16:], snapshot[2], snapshot[4]
        group.append(snapshot)
    if group:
        packed += _pack_group(group)
    return packed


def _pack_group(snapshots: list[Any]) -> list[Any]:
    """Return snapshots with the same queue, holders and numbers as one group, or as they are."""
    ids = pack_ids([snapshot[0] for snapshot in snapshots])
    if ids is None:
        return snapshots
    created: list[int] = []
    left: list[int] = []
    last_created = last_left = 0
    for snapshot in snapshots:
        times: tuple[int, int] = _TIMES.unpack_from(snapshot[1])
        created.append(times[0] - last_created)
        left.append(times[1] - last_left)
        last_created, last_left = times
    first = snapshots[0]
    numbers: bytes = first[1]
    spans: Any = left if any(left[1:]) else left[0]
    bodies = [snapshot[3] for snapshot in snapshots]
    return [(ids, numbers[_TIMES.size :].rstrip(b"\0"), first[2], first[4], created, spans, bodies)]


def unpack_snapshots(packed: list[Any]) -> list[Any]:
    """Return the snapshots of groups. ColumnsError."""
    snapshots: list[Any] = []
    for group in packed:
        if group is None or (len(group[0]) == _ID_BYTES and group[0][:2] == b"D-"):
            snapshots.append(group)
            continue
        ids = unpack_ids(group[0])
        numbers, queue, holders, created, spans, bodies = group[1], group[2], group[3], group[4], group[5], group[6]
        if type(numbers) is not bytes or len(numbers) > _VERSIONED_BYTES:
            raise ColumnsError("a header that is none")
        numbers = numbers.ljust(_HEADER_BYTES if len(numbers) <= _HEADER_BYTES else _VERSIONED_BYTES, b"\0")
        count = len(ids)
        if len(created) != count or len(bodies) != count or (type(spans) is list and len(spans) != count):
            raise ColumnsError("columns of different lengths")
        at_ms = left_ms = 0
        if type(spans) is not list:
            spans = [spans, *([0] * (count - 1))]
        for number in range(count):
            at_ms += created[number]
            left_ms += spans[number]
            header = _TIMES.pack(at_ms, left_ms) + numbers
            snapshots.append([ids[number], header, queue, bodies[number], holders])
        if len(snapshots) > FRAME_IDS_MAX:
            raise ColumnsError("too many jobs")
    return snapshots
