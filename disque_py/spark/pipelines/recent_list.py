"""A capped list of the most recent members of one key, kept exact while events come in any order. Pure.

The list holds the newest members by (time, name), and says whether there are others (`is_cut`).
Everything that is known of a member comes with it: its time only grows, and it is a member or not.
So three rules keep the list equal to the top of the whole set: a member that is no longer one goes; one
whose time lies above the list's end comes in, or moves; one below the end of a cut list is none of
its business. At most LIMIT plus 20 % are kept; cut back to LIMIT when there are more, so that
removals seldom leave too few. When they do, and others exist, the list has to be filled from the
source again: only then.

Spec E7; Flickr's capped sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

SPARE: Final = 0.2


@dataclass(slots=True)
class RecentList:
    """The newest members, newest first.

    members   (time in ms, member)
    is_cut    there are members that are not in the list
    """

    members: list[tuple[int, str]] = field(default_factory=list)
    is_cut: bool = False


def most(limit: int) -> int:
    """How long a list may get before it is cut back to `limit`."""
    return limit + max(1, int(limit * SPARE))


def changed(recent: RecentList, changes: Mapping[str, int | None], limit: int) -> RecentList | None:
    """The list after some members changed: their time, or None for one that is no member.

    None means that too few are left while others exist: fill it from the source (`filled`).
    """
    floor = recent.members[-1] if recent.is_cut and recent.members else None
    kept = [entry for entry in recent.members if entry[1] not in changes]
    here = {member for _, member in recent.members}
    came = [
        (at, member)
        for member, at in changes.items()
        if at is not None and (floor is None or (at, member) >= floor or member in here)
    ]
    # A list that is cut and empty knows nothing of what lies below.
    if recent.is_cut and not recent.members:
        return None
    outside = recent.is_cut or len(came) < sum(at is not None for at in changes.values())
    members = sorted([*kept, *came], reverse=True)
    if floor is not None and members and members[-1] < floor:
        # A member of the list went back behind its end: others may lie between.
        return None
    if len(members) < limit and outside:
        return None
    return RecentList(members[:limit], True) if len(members) > most(limit) else RecentList(members, outside)


def filled(members: Iterable[tuple[int, str]], limit: int) -> RecentList:
    """The list made anew of all members."""
    whole = sorted(members, reverse=True)
    return RecentList(whole[:limit], True) if len(whole) > most(limit) else RecentList(whole, False)
