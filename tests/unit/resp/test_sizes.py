"""sizes.py: sizes in bytes, formatted for people."""

from __future__ import annotations

import pytest

from disque_py.resp.sizes import human_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (891034, "870.15K"), (1 << 30, "1.00G"), (1 << 62, "4096.00P")],
)
def test_a_number_of_bytes_has_two_digits_and_a_unit(count, text):
    assert human_bytes(count) == text
