"""server/spill_storage.py: the directory of spilled bodies and its threads."""

from __future__ import annotations

import asyncio
import os

import pytest

from disque_py.config.settings import Settings
from disque_py.server.spill_storage import RESIDENT_SHARE, TRIM_BYTES, SpillStorage, Waste, _trim
from persistence.files import Files, JournalInUseError
from persistence.spill import file_name
from spilled import SpillingNode


class OneTurnLoop:
    """The part of a TurnLoop that a SpillStorage uses."""

    def __init__(self, node):
        self.loop = asyncio.get_running_loop()
        self.driver = node.driver


def run(tmp_path, use):
    """Run `use(place, node)` on a loop, in a temporary directory."""

    async def main():
        os.chdir(tmp_path)
        settings = Settings()
        settings.maxmemory_spill = True
        node = SpillingNode()
        node.driver.spill = None
        place = SpillStorage(settings, OneTurnLoop(node))
        try:
            use(place, node)
            await asyncio.sleep(0.05)
        finally:
            place.close()
        return place

    before = os.getcwd()
    try:
        return asyncio.run(main())
    finally:
        os.chdir(before)


def test_the_spill_directory_is_beside_the_journal_and_empty_after_a_stop(tmp_path):
    os.mkdir(tmp_path / "disque.aof.spill")
    (tmp_path / "disque.aof.spill" / file_name(3)).write_bytes(b"old")
    place = run(tmp_path, lambda place, _: place.open())
    assert place.directory == str(tmp_path / "disque.aof.spill")
    assert os.listdir(place.directory) == ["lock"]


def test_no_spill_directory_is_made_before_spilling_is_switched_on(tmp_path):
    place = run(tmp_path, lambda place, _: None)
    assert not place.is_there
    assert run(tmp_path, lambda place, _: place.switch()).is_there


def test_a_directory_in_use_is_refused(tmp_path):
    other = Files(str(tmp_path / "disque.aof.spill"))
    with pytest.raises(JournalInUseError):
        run(tmp_path, lambda place, _: place.open())
    other.close()


def test_memory_is_given_back_where_the_library_can():
    trim = _trim()
    assert trim is None or trim(0) in (0, 1)


def test_memory_is_given_back_when_enough_more_is_free():
    """The free memory must have grown by TRIM_BYTES since its lowest amount after the last attempt."""
    waste = Waste()
    used = 1 << 30
    resident = int(used * RESIDENT_SHARE)
    assert not waste.is_worth_it(resident + TRIM_BYTES - 1, used)
    assert waste.is_worth_it(resident + TRIM_BYTES, used)
    waste.given_back(resident + TRIM_BYTES, used)
    assert not waste.is_worth_it(resident + TRIM_BYTES, used)
    assert waste.is_worth_it(resident + 2 * TRIM_BYTES, used)
    assert not waste.is_worth_it(resident + TRIM_BYTES // 2, used)
    assert waste.is_worth_it(resident + 3 * TRIM_BYTES // 2, used)
