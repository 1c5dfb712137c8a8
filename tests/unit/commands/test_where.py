"""commands/where.py: the pairs behind WHERE."""

from __future__ import annotations

import pytest

from disque_py.commands.where import read_pair
from disque_py.core.errors import CommandError


def test_a_pair_is_read_byte_for_byte():
    """Spec W1."""
    pairs = {}
    read_pair(pairs, [b"QLEN", b"q", b"WHERE", b"Name", b"\x00\xff"], 2)
    assert pairs == {b"Name": b"\x00\xff"}


def test_an_empty_value_is_a_value_and_a_missing_one_is_an_error():
    pairs = {}
    read_pair(pairs, [b"WHERE", b"n", b""], 0)
    assert pairs == {b"n": b""}
    with pytest.raises(CommandError, match="WHERE needs a name and a value"):
        read_pair(pairs, [b"WHERE", b"m"], 0)
