"""disque_py/simulator/world/sectors.py: the possible contents of a file after a power cut."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from disque_py.simulator.world.sectors import SECTOR_BYTES, SimFile, any_sectors, fit, put


def endings(make: SimFile) -> set[bytes]:
    """Return the contents that a file may settle to, over many chances."""
    found = set()
    for seed in range(400):
        file = make.copy()
        file.settle(Random(seed))
        found.add(bytes(file.durable))
    return found


def test_synced_writes_are_durable():
    file = SimFile()
    file.write(0, b"x")
    file.write(3, b"y")
    file.sync()
    assert endings(file) == {b"x\0\0y"}


def test_an_appended_record_may_be_there_in_part_or_as_zeros():
    file = SimFile(b"old ")
    file.write(4, b"new")
    assert endings(file) == {
        b"old ", b"old n", b"old ne", b"old new", b"old \0", b"old \0\0", b"old \0\0\0",
    }  # fmt: skip


def test_a_sector_inside_the_file_is_old_or_new_as_a_whole():
    file = SimFile(b"a" * SECTOR_BYTES * 2)
    file.write(0, b"b" * SECTOR_BYTES * 2)
    assert {frozenset(ending[:SECTOR_BYTES]) for ending in endings(file)} == {frozenset(b"a"), frozenset(b"b")}
    assert {frozenset(ending[SECTOR_BYTES:]) for ending in endings(file)} == {frozenset(b"a"), frozenset(b"b")}


def test_a_write_that_is_torn_inside_the_file_is_torn_between_sectors():
    old, new = b"a" * SECTOR_BYTES * 3, b"b" * SECTOR_BYTES * 2
    file = SimFile(old)
    file.write(100, new)
    edges = (100, SECTOR_BYTES, SECTOR_BYTES * 2, 100 + len(new))
    for ending in endings(file):
        assert all(len(set(ending[start:end])) == 1 for start, end in pairwise(edges))


def test_later_sectors_may_be_there_without_earlier_ones():
    file = SimFile(b"a" * SECTOR_BYTES * 2)
    file.write(0, b"b" * SECTOR_BYTES * 2)
    assert b"a" * SECTOR_BYTES + b"b" * SECTOR_BYTES in endings(file)


def test_a_sector_may_have_any_content_it_had_since():
    file = SimFile(b"a")
    file.write(0, b"b")
    file.write(0, b"c")
    assert endings(file) == {b"a", b"b", b"c"}


def test_a_cut_takes_back_what_was_written_behind_it():
    file = SimFile(b"abc")
    file.write(3, b"def")
    file.resize(2)
    assert file.pending == []
    file.sync()
    assert (bytes(file.content), bytes(file.durable)) == (b"ab", b"ab")


def test_writes_are_divided_between_sectors():
    """Each sector has its whole piece of a write or none of it. All pieces together are the writes."""
    data = bytes(range(256)) * 6
    pieces = list(any_sectors([(100, data)], Everything()))
    assert [offset for offset, _ in pieces] == [100, 512, 1024, 1536]
    assert b"".join(piece for _, piece in pieces) == data


class Everything(Random):
    """A generator that draws the highest number."""

    def randint(self, a: int, b: int) -> int:
        return b


def test_holes_are_zeros():
    content = bytearray(b"a")
    put(content, 3, b"b")
    put(content, 9, b"")
    assert content == b"a\0\0b"
    fit(content, 5)
    assert content == b"a\0\0b\0"
    fit(content, 1)
    assert content == b"a"


def test_a_sync_of_a_part_leaves_what_is_behind_it_to_chance():
    file = SimFile(bytes(8))
    file.write(0, b"x")
    file.write(4, b"y")
    file.sync_part(0, 4)
    assert endings(file) == {b"x" + bytes(7), b"x\0\0\0y\0\0\0"}


def test_of_a_write_that_is_synced_in_part_the_rest_is_left_to_chance():
    file = SimFile(bytes(3 * SECTOR_BYTES))
    file.write(0, b"abc" * SECTOR_BYTES)
    file.sync_part(SECTOR_BYTES, 2 * SECTOR_BYTES)
    whole = b"abc" * SECTOR_BYTES
    found = endings(file)
    assert {ending[SECTOR_BYTES : 2 * SECTOR_BYTES] for ending in found} == {whole[SECTOR_BYTES : 2 * SECTOR_BYTES]}
    assert {ending[:SECTOR_BYTES] for ending in found} == {whole[:SECTOR_BYTES], bytes(SECTOR_BYTES)}
    assert {ending[2 * SECTOR_BYTES :] for ending in found} == {whole[2 * SECTOR_BYTES :], bytes(SECTOR_BYTES)}
