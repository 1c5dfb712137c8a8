"""storage/framed_file.py: frames, a torn end, damage."""

from __future__ import annotations

import msgpack
import pytest

from disque_py.storage.framed_file import DamagedFileError, frame
from disque_py.storage.queue_settings_file import QUEUE_SETTINGS

A = b"a" * 20
HEAD = QUEUE_SETTINGS.head
parse = QUEUE_SETTINGS.parse
FIRST = (b"q", b"lease", b"30", 1, A)
SECOND = (b"q", b"colour", b"red", 2, A)
DATA = HEAD + frame([FIRST]) + frame([SECOND])


def test_a_file_gives_back_its_settings_with_fields_of_newer_versions():
    """Spec QS2."""
    assert parse(DATA).items == [FIRST, SECOND]
    assert parse(b"").items == []


@pytest.mark.parametrize("cut", range(1, len(frame([SECOND]))))
def test_a_torn_end_is_left_out_at_any_byte(cut):
    """Spec QS3: a process may be killed at any point."""
    contents = parse(DATA[:-cut])
    assert (contents.items, contents.good_bytes) == ([FIRST], len(HEAD) + len(frame([FIRST])))


@pytest.mark.parametrize("cut", range(1, len(HEAD)))
def test_a_head_that_was_being_written_is_an_empty_file(cut):
    assert parse(HEAD[:cut]).good_bytes == 0


def test_zeros_at_the_end_are_torn():
    """A disk may give a file its length before its bytes."""
    assert parse(DATA + bytes(100)).items == [FIRST, SECOND]


LONG = frame([(b"q", b"colour", bytes(range(256)) * 40, 3, A)])


@pytest.mark.parametrize("lost", [4, 8, 30, 100, 4096])
def test_a_last_frame_whose_first_page_is_missing_is_torn(lost):
    """A power cut may keep the later pages of a write, and the length of the file."""
    contents = parse(DATA + bytes(lost) + LONG[lost:])
    assert (contents.items, contents.good_bytes) == ([FIRST, SECOND], len(DATA))


def test_a_wrong_length_in_front_of_whole_frames_is_no_torn_end():
    """The settings behind it have been relied on."""
    broken = HEAD + b"\x7f" + frame([FIRST])[1:] + frame([SECOND])
    with pytest.raises(DamagedFileError, match="the checksum at byte 24 does not match"):
        parse(broken)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"nodes.conf", "does not begin as a file of queue settings"),
        (HEAD.replace(b"1", b"2"), "newer version"),
        (DATA.replace(b"lease", b"leash"), "the checksum at byte 24 does not match"),
        (HEAD + bytes(8) + frame([FIRST]), "the checksum at byte 24 does not match"),
    ],
)
def test_damage_is_an_error_and_no_part_is_used(data, reason):
    with pytest.raises(DamagedFileError, match=reason):
        parse(data)


@pytest.mark.parametrize("payload", [7, [7], [[b"q", b"lease"]], {b"q": 1}])
def test_a_frame_of_something_else_is_damage(payload):
    import struct
    import zlib

    packed = msgpack.packb(payload)
    data = HEAD + struct.pack(">II", len(packed), zlib.crc32(packed)) + packed + frame([FIRST])
    with pytest.raises(DamagedFileError, match="something else than queue settings"):
        parse(data)
