"""Parking: pending jobs of one queue that may not be delivered now, because their value has no room.

Each job has a *value*, for example the value of a META name. The *room* of a value is the number of its jobs that may
be out at the same time. Jobs beyond that are set *aside*, separately for each value. So a value without room holds up
no job of another value.

Of each value, the queue offers at most as many jobs as there is room: the first ones in its order. These are *shown*,
and the others are *aside*. So a consumer never has to skip jobs that it can't get, and turns do not get longer with the
number of jobs that wait. When there is more room, the next jobs are shown, at their place in the queue's order.

Both kinds are pending: their state is QUEUED. A job that is aside has no entry in its queue (`is_listed` is false), and
counts in `length` here instead of in the queue's. Indexes by metadata (filters.py) contain both kinds, because a
consumer that asks for certain jobs may take any job of a value that has room.

The owner of a queue's parking determines the value of a job (`value_of`), and the room of a new value (`room_of`). It
changes the room with `set_room`. A job that is popped for delivery is *taken*. The next job of its value is shown only
when the owner calls `set_room` or `show_due`. All operations cost O(log n).

A consumer with a filter may have to pass many jobs by whose values have no room. `search` looks at a bounded number of
them per turn, and notes how far it got. The next search goes on there. When a job before that position gets room, the
search goes back to it.

`set_aside` and `give_back` serve a second reason to wait, with other values. For example, the owner of a cap sets a job
aside that it has just fetched from the queue.

This module knows no broker and no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import TYPE_CHECKING, Final

from disque_py.core.job import QUEUED, Job
from disque_py.core.priority_queue import Key, key_of
from disque_py.core.sorted_jobs import SortedJobs

if TYPE_CHECKING:
    from disque_py.core.filters import Group as FilterGroup
    from disque_py.core.queue import Queue

# The most jobs that one call shows. `show_due` shows the others.
SHOWN_PER_CALL: Final = 200
# The most jobs of a queue that are examined per turn for consumers with filters, to find the first ones that have room.
LOOKED_PER_TURN: Final = 1_000
# A search notes how far it got after this number of jobs.
NOTED_FROM: Final = 50
# The most values for which a search remembers why it went back.
GAINED_MAX: Final = 16
# The most filters whose searches are noted.
SEARCHES_MAX: Final = 64
FIRST_KEY: Final[Key] = (-(1 << 63), 0, b"")


class Group:
    """The pending jobs of one value.

    room    the most jobs that may be shown
    shown   jobs that the queue offers
    aside   jobs that wait for room
    """

    __slots__ = ("aside", "room", "shown")

    def __init__(self, room: int) -> None:
        self.room = room
        self.shown = SortedJobs()
        self.aside = SortedJobs()


class Search:
    """How far the jobs with certain metadata were searched for one that has room.

    retried, once   no job before this key has room: jobs that are delivered at least once, and at most once
    far             how far the search got before it went back, in the same order; None: it did not, or has to look anew
    gained          the jobs, and the values with room, that are the only reason for going back
    is_cut          whether there are more jobs to look at
    is_once_cut     whether there are more for a consumer that takes at-most-once jobs, too
    """

    __slots__ = ("far", "gained", "is_cut", "is_once_cut", "once", "retried")

    def __init__(self) -> None:
        self.retried: Key = FIRST_KEY
        self.once: Key = FIRST_KEY
        self.far: tuple[Key, Key] | None = None
        self.gained: dict[Job | bytes, None] = {}
        self.is_cut = False
        self.is_once_cut = False


class Parking:
    """The jobs of a queue by value.

    queue      the queue
    value_of   returns the value of a job; None: the job is always shown, and not stored here
    room_of    returns the room of a value that has no jobs here
    groups     value -> its jobs
    values     job -> the value under which it is stored here
    aside      all jobs that are aside
    due        values that may have room for more jobs
    searches   group of filters.py -> how far it was searched
    looked, looked_ms   how many jobs were looked at in the turn of this time
    is_full    whether a search that was cut could not be noted
    is_planned whether a turn will soon go on with the searches (lifecycle.py)
    """

    __slots__ = (
        "aside",
        "due",
        "groups",
        "is_full",
        "is_planned",
        "looked",
        "looked_ms",
        "queue",
        "room_of",
        "searches",
        "value_of",
        "values",
    )

    def __init__(self, queue: Queue, value_of: Callable[[Job], bytes | None], room_of: Callable[[bytes], int]) -> None:
        self.queue = queue
        self.value_of = value_of
        self.room_of = room_of
        self.groups: dict[bytes, Group] = {}
        self.values: dict[Job, bytes] = {}
        self.aside = SortedJobs()
        self.due: dict[bytes, None] = {}
        self.searches: dict[FilterGroup, Search] = {}
        self.looked = 0
        self.looked_ms = 0
        self.is_full = False
        self.is_planned = False

    @property
    def length(self) -> int:
        """The number of jobs that are aside."""
        return self.aside.length

    # -- the owner's side -------------------------------------------------------------------------------

    def set_room(self, value: bytes, room: int) -> bool:
        """Set the room of a value, and show as many of its jobs. Return whether a job was shown.

        If there is less room than before, the last shown jobs are set aside.
        """
        group = self.groups.get(value)
        if group is None:
            return False
        if self.searches and room > 0 >= group.room:
            for jobs in (group.shown, group.aside):
                first = jobs.first()
                if first is not None:
                    self.has_room_now(first)
        group.room = room
        while group.shown.length > max(0, room):
            self._withdraw(group)
        return self._show(value, group)

    def show_due(self) -> bool:
        """Show jobs of values from which a job was taken, if they have room. Return whether a job was shown."""
        if not self.due:
            return False
        due, self.due = self.due, {}
        is_shown = False
        for value in due:
            group = self.groups.get(value)
            if group is not None and self._show(value, group):
                is_shown = True
        return is_shown

    def offer(self, count: int) -> None:
        """Show jobs regardless of room until the queue offers `count`, because a leaving node hands over all jobs."""
        while self.queue.length < count and (job := self.aside.first()) is not None:
            group = self.groups[self.values[job]]
            group.aside.remove(job)
            self.aside.remove(job)
            group.shown.add(job)
            self.queue.show(job)

    def has_room(self, job: Job) -> bool:
        """Return whether the value of a pending job has room, so that the job may be delivered, shown or aside."""
        value = self.values.get(job)
        return value is None or self.groups[value].room > 0

    def search(self, group: FilterGroup, now_ms: int, *, is_picky: bool) -> Job | None:
        """Return the first job of a group that may be delivered.

        Return None if there is none, or if very many jobs were looked at in this turn. The second case is noted
        (`is_cut`), and the next call goes on behind these jobs.
        """
        if now_ms != self.looked_ms:
            self.looked, self.looked_ms = 0, now_ms
        known = self.searches.get(group)
        search = known or Search()
        self._skip(search)
        found: Job | None = None
        search.is_cut = False
        looked = 0
        for key, job in self._jobs_from(group, search, is_picky=is_picky):
            if self.looked >= LOOKED_PER_TURN:
                search.is_cut = True
            elif self.has_room(job):
                found = job
            if job.terms.retry_ms:
                search.retried = key
            else:
                search.once = key
            if search.is_cut or found is not None:
                break
            looked += 1
            self.looked += 1
        if not is_picky:
            search.is_once_cut = search.is_cut
        search.is_cut = search.is_cut or search.is_once_cut
        if known is None and (looked >= NOTED_FROM or search.is_cut):
            self._note(group, search)
        return found

    def _note(self, group: FilterGroup, search: Search) -> None:
        if len(self.searches) >= SEARCHES_MAX:
            over = next((each for each, known in self.searches.items() if not known.is_cut), None)
            if over is None:
                self.is_full = True  # This search begins again when another one is over.
                return
            del self.searches[over]
        self.searches[group] = search

    def _jobs_from(self, group: FilterGroup, search: Search, *, is_picky: bool) -> Iterator[tuple[Key, Job]]:
        retried = group.retried.from_key(search.retried)
        if is_picky or not group.once.length:
            return retried
        return merge(retried, group.once.from_key(search.once), key=_key_of)

    def cut(self, group: FilterGroup) -> None:
        """Note that a search ended early, because very many jobs were set aside or had expired."""
        search = self.searches.get(group)
        if search is None:
            search = Search()
            self._note(group, search)
        search.is_cut = True

    def is_cut(self, group: FilterGroup) -> bool:
        """Return whether the last search for a job of this group has not looked at all jobs."""
        search = self.searches.get(group)
        return self.is_full if search is None else search.is_cut

    def has_room_now(self, job: Job) -> None:
        """Let searches go back to a pending job, because it may have room now, or has come into another group."""
        key, value = key_of(job), self.values.get(job)
        for search in self.searches.values():
            far = search.far or (FIRST_KEY, FIRST_KEY)
            far = (max(far[0], search.retried), max(far[1], search.once))
            if key >= far[0] and key >= far[1]:
                continue
            if search.far is None:
                search.gained = {}
            search.gained[job if value is None else value] = None
            search.far = far if len(search.gained) <= GAINED_MAX else None
            search.retried = min(search.retried, key)
            search.once = min(search.once, key)

    def _skip(self, search: Search) -> None:
        """Go on where the search was before it went back, if the values for which it did have no room any more."""
        if search.far is None:
            return
        for each in search.gained:
            if isinstance(each, Job):
                if each.state == QUEUED and self.has_room(each):
                    return
            elif (group := self.groups.get(each)) is not None and group.room > 0:
                return
        search.retried, search.once = max(search.retried, search.far[0]), max(search.once, search.far[1])
        search.far = None

    def set_aside(self, job: Job, value: bytes) -> None:
        """Set a job aside that was just fetched, under a value that need not be the one of `value_of`.

        The job's state is QUEUED again. It waits until `give_back` is called for the value.
        """
        assert job not in self.values
        assert not job.is_listed
        group = self.groups.get(value)
        if group is None:
            group = self.groups[value] = Group(0)
        self.values[job] = value
        group.aside.add(job)
        self.aside.add(job)
        if self.searches and group.room > 0:
            self.has_room_now(job)

    def give_back(self, value: bytes, count: int) -> int:
        """Return the first `count` jobs of a value that were set aside to the queue. Return their number."""
        group = self.groups.get(value)
        given = 0
        while group is not None and given < count:
            job = group.aside.first()
            if job is None:
                break
            self._leave(job, value, group)
            given += 1
            if not self.added(job):
                self.queue.show(job)
        return given

    # -- the queue's side: the queue calls these for each job -------------------------------------------

    def added(self, job: Job) -> bool:
        """Add a job that has just become pending. Return whether it is set aside. If not, the queue offers it."""
        value = self.value_of(job)
        if value is None:
            if self.searches:
                self.has_room_now(job)
            return False
        group = self.groups.get(value)
        if group is None:
            group = self.groups[value] = Group(self.room_of(value))
        if self.searches and group.room > 0:
            self.has_room_now(job)
        assert job not in self.values
        self.values[job] = value
        if group.shown.length >= group.room:
            last = group.shown.last()
            if last is None or key_of(last) < key_of(job) or group.room <= 0:
                group.aside.add(job)
                self.aside.add(job)
                return True
            self._withdraw(group)
        group.shown.add(job)
        return False

    def taken(self, job: Job) -> None:
        """Remove a shown job that was popped, because it will be delivered or handed over."""
        value = self.values.pop(job, None)
        if value is not None:
            group = self.groups[value]
            group.shown.remove(job)
            self.due[value] = None
            self._drop_if_empty(value, group)

    def removed(self, job: Job) -> bool:
        """Remove a job that left without being popped. Return whether it was aside, so that the queue has no entry."""
        value = self.values.get(job)
        if value is None:
            return False
        group = self.groups[value]
        if job.is_listed:
            del self.values[job]
            group.shown.remove(job)
            self.due[value] = None
            self._drop_if_empty(value, group)
            return False
        self._leave(job, value, group)
        return True

    # -- showing ------------------------------------------------------------------------------------------

    def _show(self, value: bytes, group: Group) -> bool:
        shown = 0
        while group.shown.length < group.room:
            job = group.aside.first()
            if job is None:
                break
            if shown >= SHOWN_PER_CALL:
                self.due[value] = None
                break
            group.aside.remove(job)
            self.aside.remove(job)
            group.shown.add(job)
            self.queue.show(job)
            shown += 1
        self._drop_if_empty(value, group)
        return shown > 0

    def _withdraw(self, group: Group) -> None:
        """Set the last shown job of a value aside."""
        job = group.shown.last()
        assert job is not None
        group.shown.remove(job)
        self.queue.withdraw(job)
        group.aside.add(job)
        self.aside.add(job)

    def _leave(self, job: Job, value: bytes, group: Group) -> None:
        del self.values[job]
        group.aside.remove(job)
        self.aside.remove(job)
        self._drop_if_empty(value, group)

    def _drop_if_empty(self, value: bytes, group: Group) -> None:
        if not group.shown.length and not group.aside.length and self.groups.get(value) is group:
            del self.groups[value]
            self.due.pop(value, None)


def _key_of(item: tuple[Key, Job]) -> Key:
    return item[0]
