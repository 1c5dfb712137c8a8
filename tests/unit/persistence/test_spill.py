"""persistence/spill.py: files with the bodies that were moved out of memory."""

from __future__ import annotations

import errno
from random import Random

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.spill import FILE_BYTES, HEAD, Place, SpillStore, file_name, read_all

KEYS = [b"%040d" % number for number in range(100)]


def make(file_bytes=1_000):
    disk = InlineDisk(SimFolder(Random(1)))
    return SpillStore(disk, file_bytes), disk


def write(store, disk, *bodies):
    """Write these bodies. Return their places, or the error."""
    said = []
    store.write([(KEYS[index], body) for index, body in enumerate(bodies)], said.append)
    disk.run()
    return said[0]


def read(store, disk, places):
    said = []
    store.read([(KEYS[index], place) for index, place in enumerate(places)], said.append)
    disk.run()
    return said[0]


def test_a_written_body_is_read_back():
    store, disk = make()
    places = write(store, disk, b"one", b"", b"three" * 20)
    assert places == [Place(1, 0, 3), Place(1, 51, 0), Place(1, 99, 100)]
    assert read(store, disk, places) == [b"one", b"", b"three" * 20]
    assert (store.size, store.live) == (247, 247)


def test_golden_bytes_of_a_head():
    """A head has the crc32 of key and body, the length of the body, and the key. The body follows."""
    store, disk = make()
    write(store, disk, b"body")
    content = disk.folder.read(file_name(1), 0, 100)
    assert content == bytes.fromhex("06c7975e04000000") + b"0" * 40 + b"body"


def test_files_of_an_earlier_process_are_removed():
    store, disk = make()
    disk.folder.create(file_name(7), b"old")
    disk.folder.create("other", b"")
    said = []
    store.open(said.append)
    disk.run()
    assert (said, disk.folder.names()) == ([None], ["other"])


def test_a_batch_that_does_not_fit_begins_a_new_file():
    store, disk = make()
    write(store, disk, b"x" * 850)
    assert write(store, disk, b"y" * 10)[0].file == 1
    assert write(store, disk, b"z" * 100)[0] == Place(2, 0, 100)
    assert write(store, disk, b"z" * 5_000)[0] == Place(3, 0, 5_000)


def test_a_file_without_bodies_that_gets_no_more_is_removed():
    store, disk = make()
    first, second = write(store, disk, b"x" * 400, b"y" * 500)
    store.release(first.file, first.size)
    store.release(second.file, second.size)
    disk.run()
    assert disk.folder.names() == [file_name(1)]
    store.close_file()
    disk.run()
    assert (disk.folder.names(), store.files, store.size, store.live) == ([], {}, 0, 0)


def test_a_full_disk_is_reported_and_the_file_is_left():
    store, disk = make()
    kept = write(store, disk, b"x" * 100)
    disk.folder.fail("write", errno.ENOSPC, is_partial=True)
    assert write(store, disk, b"y" * 100).errno == errno.ENOSPC
    assert write(store, disk, b"z" * 100)[0].file == 2
    assert read(store, disk, kept) == [b"x" * 100]
    assert store.live == 2 * (100 + HEAD.size)


def test_a_file_that_cannot_be_made_costs_nothing():
    store, disk = make()
    disk.folder.fail("create", errno.EACCES)
    assert write(store, disk, b"x").errno == errno.EACCES
    assert (store.files, store.size, store.live) == ({}, 0, 0)


def test_adjacent_bodies_are_read_in_one_step():
    store, disk = make(FILE_BYTES)
    places = write(store, disk, *[b"%d" % number * 100 for number in range(9)])
    disk.folder.trace = []
    assert read(store, disk, places) == [b"%d" % number * 100 for number in range(9)]
    assert len(disk.folder.trace) == 1


def test_one_damaged_place_loses_one_body():
    """If a read of many bodies fails, each body is read again separately."""
    store, disk = make(FILE_BYTES)
    places = write(store, disk, b"one", b"two", b"three")
    disk.folder.fail("read", errno.EIO, times=2)
    one, two, three = read(store, disk, places)
    assert (one.errno, two, three) == (errno.EIO, b"two", b"three")


def test_a_body_that_differs_from_the_written_one_is_an_error():
    store, disk = make()
    places = write(store, disk, b"one", b"two")
    disk.folder.write(file_name(1), places[0].offset + HEAD.size, [b"0"])
    one, two = read(store, disk, places)
    assert (one.errno, two) == (errno.EIO, b"two")
    assert read_all(disk.folder, [(KEYS[5], places[1])])[0].errno == errno.EIO


def test_a_missing_file_is_an_error():
    store, disk = make()
    places = write(store, disk, b"one")
    disk.folder.remove(file_name(1))
    assert read(store, disk, places)[0].errno == errno.ENOENT


def test_the_file_with_the_most_dead_bytes_is_copied_when_there_are_many():
    store, disk = make()
    files = [write(store, disk, b"a" * 200, b"b" * 600) for _ in range(9)]
    assert store.sparse() == 0
    for _, second in files[:8]:
        store.release(second.file, second.size)
    assert store.sparse() == 1
    store.release(files[4][0].file, files[4][0].size)
    assert 5 not in store.files
    assert store.sparse() in range(1, 9)


def test_a_scan_goes_through_a_file_in_parts():
    store, disk = make(FILE_BYTES)
    bodies = [bytes([number]) * 300_000 for number in range(5)] + [b"L" * 2_000_000, b"end"]
    places = write(store, disk, *bodies)
    found, offset = [], 0
    for _ in range(20):
        said = []
        store.scan(1, offset, said.append)
        disk.run()
        part, offset = said[0]
        found += part
        if not offset:
            break
    assert found == [(KEYS[index], place, bodies[index]) for index, place in enumerate(places)]


def test_clear_drops_everything_except_writes_in_flight_which_their_writer_releases():
    store, disk = make()
    write(store, disk, b"x" * 100)
    said = []
    store.write([(KEYS[0], b"late")], said.append)
    store.clear()
    disk.run()
    (place,) = said[0]
    store.release(place.file, place.size)
    disk.run()
    assert (store.files, store.size, store.live, disk.folder.names()) == ({}, 0, 0, [])
