"""A capped list of the most recent members of one key. It stays exact although events come in any order. Pure.

The list has the newest members by (time, name), and `is_cut` says whether there are others. A change has the whole
state of a member: its time, which only grows, and whether it is still a member. So three rules keep the list equal to
the newest part of the whole set:

* A removed member leaves the list.
* A member with a time above the list's end enters the list, or moves in it.
* A member below the end of a cut list is ignored.

The list has at most LIMIT plus 20 % members, and is cut back to LIMIT when it gets more. So removals rarely leave too
few. If they do and other members exist, the list must be filled from the source again.

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
    is_cut    True: there are further members that are not in the list
    """

    members: list[tuple[int, str]] = field(default_factory=list)
    is_cut: bool = False


def most(limit: int) -> int:
    """Return the length at which a list is still not cut back to `limit`."""
    return limit + max(1, int(limit * SPARE))


def changed(recent: RecentList, changes: Mapping[str, int | None], limit: int) -> RecentList | None:
    """Return the list after some members changed: their new time, or None for a removed member.

    Return None when too few are left and others exist. Then fill the list from the source (`filled`).
    """
    floor = recent.members[-1] if recent.is_cut and recent.members else None
    kept = [entry for entry in recent.members if entry[1] not in changes]
    here = {member for _, member in recent.members}
    came = [
        (at, member)
        for member, at in changes.items()
        if at is not None and (floor is None or (at, member) >= floor or member in here)
    ]
    # An empty cut list has no end, so there is no way to tell which members are above it.
    if recent.is_cut and not recent.members:
        return None
    outside = recent.is_cut or len(came) < sum(at is not None for at in changes.values())
    members = sorted([*kept, *came], reverse=True)
    if floor is not None and members and members[-1] < floor:
        # A member moved below the list's end. Members that are not in the list may be above it now.
        return None
    if len(members) < limit and outside:
        return None
    return RecentList(members[:limit], True) if len(members) > most(limit) else RecentList(members, outside)


def filled(members: Iterable[tuple[int, str]], limit: int) -> RecentList:
    """Return a new list made from all members."""
    whole = sorted(members, reverse=True)
    return RecentList(whole[:limit], True) if len(whole) > most(limit) else RecentList(whole, False)
