"""persistence/event_records.py: headers and blocks of an event log are read back, and other bytes are refused."""

from __future__ import annotations

import pytest

from persistence.event_records import (
    HEAD_BYTES,
    block_bytes,
    decode_events,
    decode_header,
    encode_block,
    encode_header,
    file_name,
    head_at,
    look_at,
    next_at,
    parse_file_name,
)
from persistence.records import FormatError, NewerFormatError

HEADER = encode_header("00112233aabbccdd", 17, b"n" * 20, 1_700_000_000_000)
BLOCK = encode_block([(1, b"id"), (2, b"id")], 17, 5, 1_700_000_000_001)


def test_the_bytes_of_a_header_are_golden():
    assert HEADER.hex() == (
        "44495351554545560200000032000000"
        + HEADER[16:20].hex()
        + "94b03030313132323333616162626363646411c4146e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6ecf0000018bcfe56800"
    )
    assert decode_header("x", HEADER) == ("00112233aabbccdd", 17, b"n" * 20, 1_700_000_000_000, len(HEADER))


def test_the_bytes_of_a_block_are_golden():
    assert BLOCK.hex() == (
        "0d000000" + BLOCK[4:8].hex() + "1100000000000000" + "0500000000000000" + "0168e5cf8b010000" + "02000000"
        "92" "9201c4026964" "9202c4026964"
    )  # fmt: skip


def test_a_block_is_found_where_it_belongs():
    assert look_at(b"xx" + BLOCK, 2, 17) == (len(BLOCK), 2, 1_700_000_000_001, 5)
    assert head_at(BLOCK, 0) == (len(BLOCK), 17, 2, 1_700_000_000_001)
    assert block_bytes(BLOCK, 0) == len(BLOCK)
    assert decode_events(BLOCK[HEAD_BYTES:]) == [[1, b"id"], [2, b"id"]]
    assert look_at(BLOCK, 0, 18) is None


def test_a_changed_or_cut_block_is_not_read():
    for at in range(len(BLOCK)):
        changed = bytearray(BLOCK)
        changed[at] ^= 1
        assert look_at(bytes(changed), 0, 17) is None
        assert look_at(BLOCK[:at], 0, 17) is None
    assert block_bytes(BLOCK[:10], 0) == 0
    assert head_at(BLOCK[:10], 0) is None


@pytest.mark.parametrize("data", [b"", HEADER[:20], b"X" + HEADER[1:], HEADER[:-1], HEADER[:30] + b"?" + HEADER[31:]])
def test_a_malformed_header_is_refused(data):
    with pytest.raises(FormatError, match="x:"):
        decode_header("x", data)


def test_a_later_format_is_left_alone():
    with pytest.raises(NewerFormatError, match="format 3"):
        decode_header("x", HEADER[:8] + b"\3" + HEADER[9:])


def test_the_first_format_is_read():
    """The first format has no gaps between blocks. Everything else is the same."""
    assert decode_header("x", HEADER[:8] + b"\1" + HEADER[9:]) == decode_header("x", HEADER)


def test_where_there_is_no_length_the_next_block_begins_with_the_next_page():
    assert next_at(BLOCK, 0, 100) == 0
    assert next_at(bytes(10_000), 5, 0) == 4096
    assert next_at(bytes(10_000), 5, 4092) == 4096 * 2 - 4092


@pytest.mark.parametrize("payload", [b"\x81", b"\x01", b"\xc1"])
def test_wrong_content_with_a_right_checksum_is_an_error(payload):
    with pytest.raises(FormatError):
        decode_events(payload)


@pytest.mark.parametrize(("name", "seq"), [(file_name(17), 17), ("open", None), ("x.events", None), ("1.seg", None)])
def test_file_names_of_segments_are_parsed(name, seq):
    assert parse_file_name(name) == seq
