"""persistence/records.py: the bytes of a segment file, and the treatment of wrong bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import journal_files
from persistence import layouts, records
from persistence.records import (
    HEAD_BYTES,
    HEADER_ALIGN,
    IS_ALWAYS,
    KIND_NAMES,
    FormatError,
    NewerFormatError,
    Part,
    block_size,
    decode_block,
    decode_header,
    encode_block,
    encode_header,
    file_name,
    header_size,
    looks_like_block,
    parse_file_name,
)

NODE = bytes(range(20))


def test_the_numbers_of_record_kinds_are_fixed():
    """Disks have these numbers. A new kind gets a new number, and no number is used again."""
    older = {1: "job", 2: "state", 3: "gone", 4: "pause", 5: "dropped", 6: "token", 7: "key"}
    assert older | {10: "result", 11: "batch"} == KIND_NAMES
    assert (records.JOB, records.STATE, records.GONE, records.PAUSE, records.DROPPED) == (1, 2, 3, 4, 5)


def test_the_bytes_of_a_header_are_fixed():
    """Magic, version, reserved, length and checksum of the description; then the description."""
    data = encode_header(7, 1, 1000, [Part(5, 0, 0, 600), Part(7, 0, 600, 1000)], NODE, 1_700_000_000_000)
    described = "960701cd03e892" + "94050000cd0258" + "940700cd0258cd03e8" + "c414" + NODE.hex() + "cf0000018bcfe56800"
    size = len(described) // 2
    assert data[:16].hex() == "44495351554550" + "4a" + "0200" + "0000" + size.to_bytes(4, "little").hex()
    assert data[16:20] == records._crc(bytes.fromhex(described)).to_bytes(4, "little")
    assert data[20 : 20 + size].hex() == described
    assert data[20 + size :] == bytes(HEADER_ALIGN - 20 - size)


def test_the_bytes_of_a_block_are_fixed():
    """Payload length, checksum, position, position on disk, wall clock, flags; then runs."""
    data = encode_block([[3, (b"id", 1)]], 4096, 2048, 1_700_000_000_000, IS_ALWAYS)
    assert data[:4] == (9).to_bytes(4, "little")
    assert data[8:36].hex() == "001000000000000000080000000000000068e5cf8b01000001000000"
    assert data[36:].hex() == "91920392c402696401"
    assert data[4:8] == records._crc(data[8:]).to_bytes(4, "little")


@pytest.mark.parametrize("version", [1, 2])
def test_an_independent_writer_agrees_with_the_stored_files(version):
    """tests/support/journal_files.py implements the format a second time. It has written the stored files."""
    assert (journal_files.JOURNALS / f"v{version}.seg").read_bytes() == journal_files.segment(version)


def test_todays_writer_agrees_with_the_stored_file():
    stored = journal_files.segment(2)
    header = decode_header("x", stored)
    data = encode_header(1, 0, 0, [], NODE, journal_files.WALL_MS)
    position = 0
    while (block := decode_block(stored, header.size + position, position)) is not None:
        data += encode_block(block.runs, block.position, block.synced, block.wall_ms, block.flags)
        position += block.size
    assert data == stored


def test_the_packing_of_numbers_of_a_job_has_not_changed():
    assert layouts.BASE_STATE.format == "<Bq"
    assert layouts.STATE_FIELDS_V2.format == "<BqIHH"
    assert layouts.STATE_FIELDS_V1.format == "<BqI"


def test_a_header_survives_writing_and_reading():
    before = (Part(1, 0, 0, 10), Part(2, 3, 10, 99))
    data = encode_header(3, 2, 99, before, NODE, 17)
    header = decode_header("x", data)
    assert header[:6] == (3, 2, 99, before, NODE, 17)
    assert (header.version, header.size, header_size(data)) == (2, len(data), len(data))


def test_a_header_with_many_files_takes_more_room():
    before = [Part(number, 0, number << 30, (number + 1) << 30) for number in range(500)]
    data = encode_header(500, 0, 500 << 30, before, NODE, 17)
    assert len(data) > HEADER_ALIGN
    assert len(data) % HEADER_ALIGN == 0
    assert header_size(data[:HEADER_ALIGN]) == len(data)
    assert decode_header("x", data).before == tuple(before)


def test_a_newer_format_is_refused():
    data = bytearray(encode_header(1, 0, 0, [], NODE, 17))
    data[8] = 3
    with pytest.raises(NewerFormatError, match=r"0000000001\.seg: written in format 3, this version reads up to 2"):
        decode_header("0000000001.seg", bytes(data))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "too short"),
        (b"DISQUEPJ\2", "too short"),
        (b"REDIS0009" + bytes(600), "not a journal file"),
        (b"DISQUEPJ\0\0" + bytes(600), "damaged"),
        (encode_header(1, 0, 0, [], NODE, 17)[:30], "damaged"),
    ],
)
def test_a_malformed_header_is_named(data, text):
    with pytest.raises(FormatError, match=text):
        decode_header("x", data)


def test_no_flipped_bit_of_a_header_goes_unnoticed():
    """The padding and two reserved bytes are exceptions, because readers ignore them."""
    data = encode_header(1, 0, 0, [Part(0, 0, 0, 9)], NODE, 17)
    for at in range(len(data.rstrip(b"\0")) - 1):
        if at in (10, 11):
            continue
        wrong = bytearray(data)
        wrong[at] ^= 4
        with pytest.raises(FormatError):
            decode_header("x", bytes(wrong))


def test_an_invalid_description_is_damage():
    with pytest.raises(FormatError, match="damaged"):
        decode_header("x", journal_files.header(2, [1, 2]))


def test_fields_that_a_later_version_adds_are_skipped():
    """Such fields may be in a header, and in the entries of a header for files."""
    header = decode_header("x", journal_files.header(2, [2, 0, 9, [[1, 0, 0, 9, "new"]], NODE, 17, {"more": 1}]))
    assert header.before == (Part(1, 0, 0, 9),)


RUNS = st.lists(st.tuples(st.integers(1, 5), st.binary(max_size=40)).map(list), max_size=4)


@given(RUNS, st.integers(0, 1 << 40), st.binary(max_size=30))
def test_a_block_survives_writing_and_reading(runs, position, before):
    data = encode_block(runs, position, position // 2, 17, 1)
    block = decode_block(before + data + b"tail", len(before), position)
    assert block is not None
    assert block == (position, position // 2, 17, 1, runs, len(data))
    assert block_size(data, 0, position) == len(data)


@given(RUNS, st.data())
def test_a_block_that_lacks_a_byte_or_has_a_wrong_bit_is_not_read(runs, data):
    block = encode_block(runs, 512, 0, 17, 0)
    cut = data.draw(st.integers(0, len(block) - 1))
    assert decode_block(block[:cut], 0, 512) is None
    wrong = bytearray(block)
    wrong[cut] ^= 1 << data.draw(st.integers(0, 7))
    assert decode_block(bytes(wrong), 0, 512) is None


def test_a_block_of_another_position_is_not_read():
    """A block from an old file or from another journal does not continue this journal."""
    data = encode_block([], 512, 0, 17, 0)
    assert decode_block(data, 0, 513) is None
    assert block_size(data, 0, 513) == 0
    assert looks_like_block(data, 0, 512)
    assert not looks_like_block(data, 0, 513)


def test_malformed_content_with_a_right_checksum_is_a_format_error():
    payload = b"\xc1"
    data = bytearray(encode_block([], 0, 0, 17, 0)[:HEAD_BYTES] + payload)
    data[4:8] = records._crc(data[8:]).to_bytes(4, "little")
    with pytest.raises(FormatError, match="right checksum and wrong content"):
        decode_block(bytes(data), 0, 0)


@pytest.mark.parametrize("key", [(1, 0), (12, 0), (12, 3), (9_999_999_999, 10)])
def test_a_file_name_says_which_file_it_is(key):
    assert parse_file_name(file_name(*key)) == key


@pytest.mark.parametrize(
    "name", ["reserve", "clean", "x.seg", "1.seg.tmp", "1-.seg", "1-x.seg", ".seg", "1", "1-2-3.seg"]
)
def test_other_files_do_not_belong_to_the_journal(name):
    assert parse_file_name(name) is None
