"""Amounts of memory."""

from __future__ import annotations

import pytest

from disque_py.config.memory_units import memory_text, parse_memory


@pytest.mark.parametrize(
    ("text", "value_bytes"),
    [
        ("0", 0),
        ("17", 17),
        ("17b", 17),
        ("1k", 1000),
        ("1KB", 1024),
        ("2m", 2_000_000),
        ("2mb", 2 << 20),
        ("3G", 3_000_000_000),
        ("3Gb", 3 << 30),
    ],
)
def test_units_of_1000_and_of_1024_in_any_case(text, value_bytes):
    """Spec D2."""
    assert parse_memory(text) == value_bytes


@pytest.mark.parametrize("text", ["", "gb", "10zb", "-1", "1.5gb", "1 gb", "٣", "9999999999gb", "9" * 5000])
def test_a_malformed_amount_is_refused_instead_of_guessed(text):
    with pytest.raises(ValueError, match="memory"):
        parse_memory(text)


@pytest.mark.parametrize("text", ["0", "1000", "1kb", "1025", "64mb", "1536mb", "2gb"])
def test_amounts_are_written_with_the_largest_exact_unit(text):
    assert memory_text(parse_memory(text)) == text
