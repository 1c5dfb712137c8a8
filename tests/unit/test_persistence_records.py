"""persistence/records.py: what a journal is told, and that each kind is one number for ever."""

from __future__ import annotations

from persistence import records


def test_kinds_are_these_numbers():
    """They are on disks; a new kind gets a new number, and none is used again."""
    kinds = {name: value for name, value in vars(records).items() if name.isupper()}
    assert kinds == {"JOB": 1, "ACK": 2, "GONE": 3, "HANDING": 4, "PAUSE": 5}
