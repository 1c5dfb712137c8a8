"""Amounts of memory as people write them: `64mb`, `1gb`, `1000`.

Units (spec D2) ignore case. No unit or `b` means bytes. `k` `m` `g` are powers of 1000, `kb` `mb` `gb` powers of 1024.
An unknown unit is an error: `10zb` must not become ten bytes (spec Q5).
"""

from __future__ import annotations

import re
from typing import Final

UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1 << 10,
    "m": 1000**2,
    "mb": 1 << 20,
    "g": 1000**3,
    "gb": 1 << 30,
}

BYTES_MAX: Final = (1 << 63) - 1  # Programs that read INFO and CONFIG GET use signed 64-bit integers.

_AMOUNT: Final = re.compile(r"([0-9]+)([a-z]*)")


def parse_memory(text: str) -> int:
    """Return the bytes that `text` means. ValueError with the reason."""
    match = _AMOUNT.fullmatch(text.lower())
    if match is None:
        raise ValueError("an amount of memory is a number and a unit, such as 64mb")
    digits, unit = match.groups()
    if unit not in UNITS:
        raise ValueError(f"unknown memory unit '{unit}': use b, k, kb, m, mb, g or gb")
    if len(digits) > 19 or int(digits) * UNITS[unit] > BYTES_MAX:
        raise ValueError("the amount of memory is too large")
    return int(digits) * UNITS[unit]


def memory_text(value_bytes: int) -> str:
    """Return the amount with the largest unit of gb, mb and kb that is exact, else in plain bytes."""
    for unit in ("gb", "mb", "kb"):
        if value_bytes and value_bytes % UNITS[unit] == 0:
            return f"{value_bytes // UNITS[unit]}{unit}"
    return str(value_bytes)
