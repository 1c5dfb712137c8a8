"""Charts: a short history as a line, which the server draws as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 120
HEIGHT: Final = 28


def points(values: Sequence[float], width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the points of a polyline from left to right, with 0 at the bottom and the largest value at the top."""
    if not values:
        return ""
    top = max(1, *values)
    step = width / max(len(values) - 1, 1)
    inner = height - 2
    return " ".join(f"{at * step:.1f},{1 + inner - inner * value / top:.1f}" for at, value in enumerate(values))


def words(values: Sequence[float], unit: str = "") -> str:
    """Return the chart as text, for people who can't see it."""
    if not values:
        return "no history yet"
    return f"from {values[0]:g} to {values[-1]:g}{unit}, at most {max(values):g}{unit}"
