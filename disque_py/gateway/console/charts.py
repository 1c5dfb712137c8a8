"""Charts: a short history as a line, drawn on the server as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 120
HEIGHT: Final = 28


def points(values: Sequence[float], width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the points of a polyline, left to right; the largest value is at the top, 0 at the bottom."""
    if not values:
        return ""
    top = max(1, *values)
    step = width / max(len(values) - 1, 1)
    inner = height - 2
    return " ".join(f"{at * step:.1f},{1 + inner - inner * value / top:.1f}" for at, value in enumerate(values))


def words(values: Sequence[float], unit: str = "") -> str:
    """Return the chart in words, for people who do not see it."""
    if not values:
        return "no history yet"
    return f"from {values[0]:g} to {values[-1]:g}{unit}, at most {max(values):g}{unit}"
