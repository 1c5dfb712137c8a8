"""Numbers of bytes for people, as in INFO's `used_memory_human`. Programs that show INFO use the same format."""

from __future__ import annotations


def human_bytes(count: int) -> str:
    """Return a number of bytes with a unit: `512B`, `870.15K`."""
    if count < 1024:
        return f"{count}B"
    value = float(count)
    for unit in "KMGTP":
        value /= 1024
        if value < 1024 or unit == "P":
            break
    return f"{value:.2f}{unit}"
