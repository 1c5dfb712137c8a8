"""cluster_bus/codec.py: frames have golden bytes, and decoders trust no input."""

from __future__ import annotations

import time
import zlib

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bus.codec import (
    FRAME_BYTES_MAX,
    PROTOCOL_MAX,
    RUN_ITEMS_MAX,
    RUNS_BYTES_MAX,
    UNCHECKED_BYTES_MAX,
    Decoder,
    FrameError,
    common_version,
    encode_run,
    encode_runs,
    frame,
    frames,
    without_large,
)
from cluster_bus.messages import GOTJOB, QUEUED
from disque_py.server.process import rss_bytes

GOTJOBS = encode_run(GOTJOB, [b"j1", b"j2"])
QUEUEDS = encode_run(QUEUED, [(b"j3", 0, 1, 0, 0)])
FRAME = frame(1, [GOTJOBS, QUEUEDS])
RUNS = [[GOTJOB, b"j1", b"j2"], [QUEUED, [b"j3", 0, 1, 0, 0]]]


def framed(payload: bytes, version: int = 1, length: int | None = None, crc: int | None = None) -> bytes:
    length = 5 + len(payload) if length is None else length
    crc = zlib.crc32(payload) if crc is None else crc
    return length.to_bytes(4, "big") + bytes((version,)) + crc.to_bytes(4, "big") + payload


def test_the_bytes_of_a_frame_are_fixed():
    """Nodes of other versions depend on these bytes. docs/bus.md explains them."""
    length, version, crc = "0000001b", "01", "942f7e11"
    gotjobs, queueds = "93 21 c4026a31 c4026a32", "92 25 95 c4026a33 00 01 00 00"
    assert bytes.fromhex(length + version + crc + "92" + gotjobs + queueds) == FRAME


def test_a_frame_fed_whole_comes_back_as_its_runs():
    assert Decoder().feed(FRAME) == [RUNS]


def test_a_frame_fed_byte_by_byte_comes_back_with_its_last_byte():
    decoder = Decoder()
    assert [decoder.feed(FRAME[at : at + 1]) for at in range(len(FRAME))] == [[]] * (len(FRAME) - 1) + [[RUNS]]
    assert decoder.buffered_bytes == 0


def test_a_tail_behind_a_frame_waits_for_the_rest():
    decoder = Decoder()
    assert decoder.feed(FRAME * 2 + FRAME[:7]) == [RUNS, RUNS]
    assert decoder.buffered_bytes == 7
    assert decoder.feed(FRAME[7:]) == [RUNS]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.binary(max_size=200), max_size=20), max_size=10),
    st.lists(st.integers(min_value=1, max_value=3000), max_size=20),
)
def test_however_the_bytes_are_cut_the_frames_are_the_same(batches: list[list[bytes]], cuts: list[int]):
    data = b"".join(frame(1, [encode_run(GOTJOB, batch)]) for batch in batches)
    decoder, found = Decoder(), []
    for size in [*cuts, len(data)]:
        found += decoder.feed(data[:size])
        data = data[size:]
    assert found == [[[GOTJOB, *batch]] for batch in batches]


@settings(max_examples=200, deadline=None)
@given(st.integers(min_value=0, max_value=len(FRAME) - 1), st.integers(min_value=1, max_value=255))
def test_a_frame_with_one_byte_changed_is_refused_or_incomplete_but_never_believed(at: int, change: int):
    damaged = bytearray(FRAME)
    damaged[at] ^= change
    try:
        assert Decoder(1000, (1, 1)).feed(bytes(damaged)) == []
    except FrameError:
        pass


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_any_payload_is_decoded_or_a_frame_error(payload: bytes):
    try:
        for runs in Decoder().feed(framed(payload)):
            assert all(type(run[0]) is int for run in runs)
    except FrameError:
        pass


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "bad length"),
        (framed(b"\x90", length=4), "bad length"),
        (framed(b"\x90", length=FRAME_BYTES_MAX + 6), "bad length"),
        (framed(b"\x90", version=PROTOCOL_MAX + 1), "bad version"),
        (framed(b"\x90", version=0)[:5], "bad version"),
        (framed(b"\x90", crc=1), "bad crc"),
        (framed(b"\xc1"), "bad msgpack"),
        (framed(b"\x90\x90"), "bad msgpack"),
        (framed(b"\x92\x90"), "bad msgpack"),
        (framed(b"\x91" * 5000), "bad msgpack"),
        (framed(b"\xdd\xff\xff\xff\xff\x90"), "bad msgpack"),
        (framed(b"\x91\x92\x21\xa1\xff"), "bad msgpack"),
        (framed(msgpack.packb([[33, msgpack.Timestamp(1)]])), "bad msgpack"),
        (framed(msgpack.packb([[33, msgpack.ExtType(5, b"")]])), "bad msgpack"),
        (framed(msgpack.packb([[33, {1: 2}]])), "bad msgpack"),
        (framed(msgpack.packb({"a": 1})), "bad shape"),
        (framed(msgpack.packb([33])), "bad shape"),
        (framed(msgpack.packb([[]])), "bad shape"),
        (framed(msgpack.packb([[b"x"]])), "bad shape"),
        (framed(msgpack.packb([[True]])), "bad shape"),
        (framed(msgpack.packb([[-1]])), "bad shape"),
    ],
)
def test_bytes_that_no_node_would_send_are_refused_with_the_reason(data: bytes, reason: str):
    with pytest.raises(FrameError) as caught:
        Decoder().feed(data)
    assert caught.value.reason == reason


def test_a_frame_may_be_as_long_as_the_limit_and_no_longer():
    data = frame(1, [encode_run(GOTJOB, [b"x" * 100])])
    assert Decoder(len(data) - 9).feed(data)
    with pytest.raises(FrameError, match="bad length"):
        Decoder(len(data) - 10).feed(data)


def test_a_large_frame_in_small_pieces_costs_linear_time():
    body = bytes(16 << 20)
    data = frame(1, [encode_run(GOTJOB, [body])])
    decoder, started = Decoder(), time.process_time()
    found = [runs for at in range(0, len(data), 4096) for runs in decoder.feed(data[at : at + 4096])]
    assert found == [[[GOTJOB, body]]]
    assert time.process_time() - started < 2  # Copying the buffer with each of 4096 pieces takes 30 times that.


def test_a_run_is_packed_once_for_several_frames():
    assert Decoder().feed(frame(1, [GOTJOBS]) + frame(1, [QUEUEDS, GOTJOBS])) == [[RUNS[0]], [RUNS[1], RUNS[0]]]


@pytest.mark.parametrize("count", [0, 15, 16, RUN_ITEMS_MAX])
def test_a_frame_holds_any_number_of_runs(count: int):
    assert Decoder().feed(frame(1, [b"\x91\x21"] * count)) == [[[GOTJOB]] * count]


def test_a_run_of_many_bytes_is_split_in_order():
    items = [bytes([at]) * 100 for at in range(20)]
    packed = encode_runs(GOTJOB, items, bytes_max=500)
    assert all(len(run) <= 500 for run in packed)
    assert [item for run in packed for item in msgpack.unpackb(run)[1:]] == items


def test_packing_a_large_run_keeps_no_memory_of_its_size():
    body = bytes(64 << 20)
    encode_run(GOTJOB, [b"j1", b"j2"])
    before = rss_bytes()
    for _ in range(3):
        assert len(encode_run(GOTJOB, [body])) > len(body)
    assert rss_bytes() - before < len(body) // 2
    assert encode_run(GOTJOB, [b"j1", b"j2"]) == GOTJOBS


def test_a_run_that_cannot_be_packed_leaves_nothing_behind():
    with pytest.raises(TypeError):
        encode_run(GOTJOB, [b"j1", object()])
    assert encode_run(GOTJOB, [b"j1", b"j2"]) == GOTJOBS


def test_a_single_item_above_the_limit_is_a_run_of_its_own():
    assert encode_runs(GOTJOB, [b"x" * 1000], bytes_max=500) == [encode_run(GOTJOB, [b"x" * 1000])]


def test_a_run_of_many_items_is_split_to_sizes_that_decoders_accept():
    packed = encode_runs(GOTJOB, [0] * (RUN_ITEMS_MAX + 1))
    assert [len(runs[0]) - 1 for runs in Decoder().feed(b"".join(frame(1, [run]) for run in packed))] == [
        RUN_ITEMS_MAX // 2,
        RUN_ITEMS_MAX // 2 + 1,
    ]


def test_runs_are_distributed_over_frames_below_a_limit():
    runs = [encode_run(GOTJOB, [bytes(60)])] * 5
    assert [len(Decoder().feed(each)[0]) for each in frames(1, runs, bytes_max=150)] == [2, 2, 1]
    assert frames(1, []) == []


def test_frames_too_large_for_a_receiver_can_be_left_out():
    small, large = frame(1, [encode_run(GOTJOB, [bytes(80)])]), frame(1, [encode_run(GOTJOB, [bytes(200)])])
    assert without_large(small + large + small, 100) == small * 2
    assert without_large(large, 100) == b""
    assert without_large(large, len(large) - 9) == large


def test_two_nodes_agree_on_the_highest_version_that_both_speak():
    assert common_version((1, 7)) == PROTOCOL_MAX
    assert common_version((1, 1)) == 1
    assert common_version((PROTOCOL_MAX + 1, 7)) == 0
    assert common_version((0, 0)) == 0


def test_a_long_frame_has_a_single_run():
    """A frame is handled in one go, so it must be short. Only the body of a job may make it long."""
    run = encode_run(GOTJOB, [bytes(RUNS_BYTES_MAX // 2)])
    with pytest.raises(FrameError, match="bad shape"):
        Decoder().feed(frame(1, [run, run, run]))
    assert Decoder().feed(frame(1, [encode_run(GOTJOB, [bytes(3 * RUNS_BYTES_MAX)])]))


def test_a_long_frame_that_would_become_gigabytes_of_empty_lists_is_refused_before_it_does():
    """Otherwise a stranger could stop a node for seconds with one frame, or exhaust its memory."""
    thousands = b"\xdc" + (4000).to_bytes(2, "big") + b"\x90" * 4000
    payload = b"\x91\x92\x01\xdc" + (2000).to_bytes(2, "big") + thousands * 2000
    assert len(payload) > UNCHECKED_BYTES_MAX
    begun = time.process_time()
    with pytest.raises(FrameError, match="too many values"):
        Decoder().feed(framed(payload))
    assert time.process_time() - begun < 0.5
