"""server/time_zones.py: offsets by the rules of the system or of tzdata."""

from __future__ import annotations

import pytest

from disque_py.server.time_zones import time_zone

WINTER, SUMMER = 1_768_000_000, 1_783_000_000  # January and July 2026.


def test_a_time_zone_gives_its_offset():
    """Spec SD2."""
    berlin = time_zone("Europe/Berlin")
    assert [berlin(WINTER), berlin(SUMMER)] == [3_600, 7_200]
    assert time_zone("UTC")(SUMMER) == 0


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd", "/etc/passwd", "Europe", "\x00"])
def test_an_invalid_name_is_not_a_time_zone(name):
    """Neither a path nor a directory of the database counts as a zone."""
    assert time_zone(name) is None
