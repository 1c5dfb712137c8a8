"""cluster_bus/columns.py: values that the items of a run share are sent once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bus import columns
from cluster_bus.codec import Decoder, FrameError, encode_run, encode_runs, frame
from cluster_bus.columns import COLUMNS_VERSION, PACKED, pack, pack_ids, unpack, unpack_ids
from cluster_bus.messages import DELJOB, GOTJOB, LEASED, NAMES, REPLJOB, SETACK, YOURJOBS
from persistence.layouts import HEADER, VERSION

SET = b"a" * 20 + b"b" * 20


def job_id(number: int, node: str = "dcb833cf", ttl: str = "05a1") -> bytes:
    return f"D-{node}-{number:020d}Ab+/-{ttl}".encode()


def snapshot(number: int, left_ms: int = 86_400_000, version: int = 1, queue: bytes = b"q") -> tuple[bytes, ...]:
    header = HEADER.pack(1_700_000_000_000_000_000 + 3_000_000 * number, left_ms, 300_000, 0, 1, 0, 0, 0)
    return (job_id(number), header + (VERSION.pack(version) if version > 1 else b""), queue, b"body %d" % number, SET)


def listed(value: object) -> object:
    return [listed(one) for one in value] if isinstance(value, list | tuple) else value


def travel(kind: int, items: list[object]) -> list[object]:
    """Return the items as the other end of a link decodes them, with lists for tuples."""
    runs = encode_runs(kind, items, COLUMNS_VERSION)
    frames = b"".join(frame(COLUMNS_VERSION, [one]) for one in runs)
    return listed([item for [run] in Decoder().feed(frames) for item in run[1:]])


def test_the_bytes_of_a_frame_with_a_packed_run_are_fixed():
    """Nodes of other versions depend on these bytes. docs/bus.md explains them. Spec N9."""
    ids = [b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQ" + last + b"-05a1" for last in (b"I", b"J", b"K")]
    joined = b"\0D-dcb833cf--05a1" + b"".join(b"8YL1NT17e9+wsA/09NqxscQ" + last for last in (b"I", b"J", b"K"))
    head = bytes.fromhex("00000064 03 8c747fa4")
    assert frame(3, encode_runs(GOTJOB, ids, 3)) == head + bytes.fromhex("91 92 61 91 c459") + joined


def test_ids_of_one_node_and_ttl_take_24_bytes_each():
    """Spec N9."""
    ids = [job_id(number) for number in range(100)]
    packed = pack_ids(ids)
    assert len(packed) == 1 + 16 + 24 * 100
    assert unpack_ids(packed) == ids


def test_ids_of_several_nodes_travel_whole():
    """Spec N9."""
    ids = [job_id(1), job_id(2, node="00000000"), job_id(3, ttl="0000")]
    packed = pack_ids(ids)
    assert len(packed) == 1 + 40 * 3
    assert unpack_ids(packed) == ids


def test_ids_are_whatever_clients_write():
    ids = [b"D-DCB833CF" + job_id(1)[10:], job_id(1)[:20] + b"!" + job_id(1)[21:], bytes(40)]
    assert unpack_ids(pack_ids(ids)) == ids


@pytest.mark.parametrize("odd", [job_id(1)[:-1], job_id(1) + b"1", b""])
def test_an_id_of_another_length_travels_in_the_plain_form(odd):
    ids = [job_id(1), odd, job_id(2)]
    assert pack_ids(ids) is None
    assert travel(GOTJOB, ids) == ids


def test_a_short_run_stays_plain():
    """Packing it would cost more time than it saves bytes."""
    assert encode_run(GOTJOB, [job_id(1), job_id(2)], COLUMNS_VERSION) == encode_run(GOTJOB, [job_id(1), job_id(2)])


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        (GOTJOB, [job_id(1), job_id(2), (job_id(3), 1), job_id(4)]),
        (SETACK, [(job_id(1), SET, 2), (job_id(2), SET, 2), (job_id(3), b"", 0), (job_id(4), SET, 2, 1)]),
        (DELJOB, [(job_id(1), None), (job_id(2), SET)]),
        (REPLJOB, [(snapshot(1), 0), (snapshot(2, version=7), 0), (snapshot(3), 1), ((*snapshot(4), 5), 0)]),
        (YOURJOBS, [(1, 0, [snapshot(1), None, snapshot(2, 500), snapshot(3, 400)]), (2, 1, [])]),
        (
            YOURJOBS,
            [
                (
                    1,
                    0,
                    [
                        (b"D-DCB833CF" + job_id(1)[10:], *snapshot(1)[1:]),
                        snapshot(2, queue=b"p"),
                        (*snapshot(3), 0, [1]),
                    ],
                )
            ],
        ),
    ],
)
def test_a_packed_run_comes_back_as_it_was(kind, items):
    """Spec N9."""
    assert travel(kind, items) == listed(items)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2), st.binary(max_size=3)), max_size=30))
def test_items_come_back_in_order_if_they_share_something_or_nothing(items):
    told = [(job_id(number, node=f"{at:08x}"), at, more) for number, at, more in items]
    assert travel(LEASED, told) == listed(told)


def test_a_hundred_acks_of_the_same_holders_take_little_more_than_their_ids():
    """Spec N9."""
    items = [(job_id(number), SET, 2) for number in range(100)]
    assert len(encode_run(SETACK, items, COLUMNS_VERSION)) < 100 * 24 + 80
    assert len(encode_run(SETACK, items)) > 100 * 80


def test_a_node_of_an_older_version_gets_the_plain_form():
    items = [(job_id(number), SET, 2) for number in range(9)]
    assert encode_run(SETACK, items, COLUMNS_VERSION - 1) == encode_run(SETACK, items)


def test_positions_behind_the_known_ones_are_kept_or_ignored():
    """A newer node may send more positions."""
    jobs = [snapshot(1), snapshot(2), snapshot(3)]
    [group] = pack(YOURJOBS, [(1, 0, jobs)])
    [packed] = group[2]
    assert listed(unpack(YOURJOBS, [[1, 0, [[*listed(packed), "news"]], "news"]])) == [[1, 0, listed(jobs), "news"]]


GROUP = listed(pack(YOURJOBS, [(1, 0, [snapshot(1), snapshot(2), snapshot(3)])]))[0][2][0]


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        (GOTJOB, [[b""]]),
        (GOTJOB, [[7]]),
        (GOTJOB, [7]),
        (GOTJOB, [{"ids": b"x"}]),
        (GOTJOB, [[b"\0" + b"x" * 16]]),
        (GOTJOB, [[b"\0" + b"x" * 41]]),
        (GOTJOB, [[b"\1"]]),
        (GOTJOB, [[b"\1" + b"x" * 41]]),
        (GOTJOB, [[b"\2" + b"x" * 40]]),
        (GOTJOB, [[b"\0" + b"x" * (16 + 24 * (columns.GROUP_IDS_MAX + 1))]]),
        (GOTJOB, [[b"\1" + b"x" * (40 * (columns.GROUP_IDS_MAX + 1))]]),
        (YOURJOBS, [[1, 0]]),
        (YOURJOBS, [[1, 0, [7]]]),
        (YOURJOBS, [{"number": 1}]),
        (YOURJOBS, [[1, 0, [{"ids": b"x"}]]]),
        (YOURJOBS, [[1, 0, [GROUP[:5]]]]),
        (YOURJOBS, [[1, 0, [[GROUP[0], GROUP[1] + b"x", *GROUP[2:]]]]]),
        (YOURJOBS, [[1, 0, [[*GROUP[:2], b"x" * 31, *GROUP[3:]]]]]),
        (YOURJOBS, [[1, 0, [[*GROUP[:5], [b"x"]]]]]),
        (YOURJOBS, [[1, 0, [[*GROUP[:5], b"xyz"]]]]),
        (REPLJOB, [[0]]),
    ],
)
def test_a_packed_run_that_no_node_sends_closes_the_link(kind, groups):
    with pytest.raises(FrameError, match="bad shape"):
        Decoder().feed(frame(COLUMNS_VERSION, [encode_run(kind + PACKED, groups)]))


def test_too_many_ids_in_a_run_close_the_link():
    """An id takes 24 bytes in a frame and more than a hundred in memory."""
    group = [b"\0" + b"x" * (16 + 24 * columns.GROUP_IDS_MAX)]
    with pytest.raises(ValueError, match="too many ids"):
        unpack(GOTJOB, [group] * (columns.FRAME_IDS_MAX // columns.GROUP_IDS_MAX + 1))


def test_packed_kinds_take_one_byte_and_are_no_plain_ones():
    assert not {kind + PACKED for kind in columns.KINDS} & set(NAMES)
    assert max(columns.KINDS) + PACKED < 128
