"""persistence/disk_errors.py: the requests that are refused after errors of the disk."""

from __future__ import annotations

from persistence.disk_errors import FINE, NO_ACKS, NO_ADDS, NO_WRITES


def test_each_level_includes_the_lower_ones():
    """Comparisons of levels rely on their order."""
    assert FINE < NO_ADDS < NO_ACKS < NO_WRITES
    assert not FINE
