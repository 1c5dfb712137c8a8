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

`set_aside` and `give_back` serve a second reason to wait, with other values. For example, the owner of a cap sets a job
aside that it has just fetched from the queue.

This module knows no broker and no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from disque_py.core.job import Job
from disque_py.core.priority_queue import key_of
from disque_py.core.sorted_jobs import SortedJobs

if TYPE_CHECKING:
    from disque_py.core.queue import Queue

# The most jobs that one call shows. `show_due` shows the others.
SHOWN_PER_CALL: Final = 200
# The most jobs that are examined for a consumer with a filter, to find the first one that has room.
LOOKED_PER_CALL: Final = 1_000


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


class Parking:
    """The jobs of a queue by value.

    queue      the queue
    value_of   returns the value of a job; None: the job is always shown, and not stored here
    room_of    returns the room of a value that has no jobs here
    groups     value -> its jobs
    values     job -> the value under which it is stored here
    aside      all jobs that are aside
    due        values that may have room for more jobs
    """

    __slots__ = ("aside", "due", "groups", "queue", "room_of", "value_of", "values")

    def __init__(self, queue: Queue, value_of: Callable[[Job], bytes | None], room_of: Callable[[bytes], int]) -> None:
        self.queue = queue
        self.value_of = value_of
        self.room_of = room_of
        self.groups: dict[bytes, Group] = {}
        self.values: dict[Job, bytes] = {}
        self.aside = SortedJobs()
        self.due: dict[bytes, None] = {}

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
        """Whether a pending job may be delivered, because its value has room, whether the job is shown or aside."""
        value = self.values.get(job)
        return value is None or self.groups[value].room > 0

    def first_of(self, jobs: Iterator[Job], *, is_picky: bool) -> Job | None:
        """Return the first of these pending jobs that may be delivered, within the first LOOKED_PER_CALL of them."""
        for job in islice(jobs, LOOKED_PER_CALL):
            if (job.terms.retry_ms or not is_picky) and self.has_room(job):
                return job
        return None

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
            return False
        group = self.groups.get(value)
        if group is None:
            group = self.groups[value] = Group(self.room_of(value))
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
