"""Time zones: the rules of the system's database, or of the tzdata package where the system has none."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable


def time_zone(name: str) -> Callable[[int], int] | None:
    """Return a function from Unix time in seconds to seconds east of UTC; None if there is no zone of this name."""
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None  # A name like ../x is a ValueError, and that of a directory an OSError.

    def offset_at(unix_s: int) -> int:
        offset = datetime.fromtimestamp(unix_s, zone).utcoffset()
        return int(offset.total_seconds()) if offset is not None else 0

    return offset_at
