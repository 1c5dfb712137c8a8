"""Parking: jobs of one queue that are pending, and may not be delivered now because others of their value have room.

Jobs of a queue may share a *value*: the value of a META name, say. At most so many jobs of a value may be out at the
same time; that is the value's *room*. Jobs that find no room are set aside, each value by itself. So a value without
room holds back no job of another value.

The queue offers at most as many jobs of a value as there is room: the best ones, in its own order. They are *shown*.
The others are *aside*. So a consumer never has to pass by jobs that it can't get, and no turn gets longer with the
number of jobs that wait. When there is more room, the next ones are shown, at their place in the queue's order.

Both kinds are pending: their state is QUEUED. A job that is aside has no entry in its queue (`is_listed` is false), and
counts in `length` here instead of the queue's. Indexes by metadata (filters.py) have both kinds, because a consumer
that asks for certain jobs may take any job of a value that has room.

The owner of a queue's parking says which value a job has (`value_of`), and how many jobs of a value that is not known
yet may be out (`room_of`). It changes the room with `set_room`. A job that is popped to be delivered is *taken*: it
leaves no gap before the owner calls `set_room` or `show_due`. All operations cost O(log n).

`set_aside` and `give_back` are for a second reason to wait, with values of its own: the owner of a cap, say, sets a job
aside that the queue has just given.

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

# Jobs that are shown in one go; `show_due` goes on with the others.
SHOWN_PER_CALL: Final = 200
# Jobs that a consumer with a filter looks at, before it takes the first that has room.
LOOKED_PER_CALL: Final = 1_000


class Group:
    """The pending jobs of one value.

    room    the most of them that are shown
    shown   those that the queue offers
    aside   those that wait for room
    """

    __slots__ = ("aside", "room", "shown")

    def __init__(self, room: int) -> None:
        self.room = room
        self.shown = SortedJobs()
        self.aside = SortedJobs()


class Parking:
    """The jobs of a queue by value.

    queue      the queue
    value_of   returns the value of a job; None: it is always shown, and not kept here
    room_of    returns the room of a value that has no jobs here
    groups     value -> its jobs
    values     job -> the value under which it is kept here
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
        """Let so many jobs of a value be offered. Return whether a job was shown.

        With less room than before, the last of those that are shown go aside.
        """
        group = self.groups.get(value)
        if group is None:
            return False
        group.room = room
        while group.shown.length > max(0, room):
            self._withdraw(group)
        return self._show(value, group)

    def show_due(self) -> bool:
        """Show jobs of values from which a job was taken, and which have room still. Return whether a job was shown."""
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
        """Show at least so many jobs, whatever room their values have: the node leaves, and hands all jobs over."""
        while self.queue.length < count and (job := self.aside.first()) is not None:
            group = self.groups[self.values[job]]
            group.aside.remove(job)
            self.aside.remove(job)
            group.shown.add(job)
            self.queue.show(job)

    def has_room(self, job: Job) -> bool:
        """Whether a pending job may be delivered: it is shown, or would be if it were the best of its value."""
        value = self.values.get(job)
        return value is None or self.groups[value].room > 0

    def first_of(self, jobs: Iterator[Job], *, is_picky: bool) -> Job | None:
        """Return the first of some pending jobs that may be delivered. At most LOOKED_PER_CALL are looked at."""
        for job in islice(jobs, LOOKED_PER_CALL):
            if (job.terms.retry_ms or not is_picky) and self.has_room(job):
                return job
        return None

    def set_aside(self, job: Job, value: bytes) -> None:
        """Set a job aside that the queue has just given, under a value that need not be its own.

        Its state is QUEUED again. It waits until the value has room (`give_back`).
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
        """Let the queue offer the first `count` jobs of a value that were set aside. Return how many there were."""
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

    # -- the queue's side: it calls these for each job -------------------------------------------------

    def added(self, job: Job) -> bool:
        """Enter a job that has just become pending. Return whether it is aside; if not, the queue offers it."""
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
        """Let go of a shown job that was popped: it is about to be delivered or handed over."""
        value = self.values.pop(job, None)
        if value is not None:
            group = self.groups[value]
            group.shown.remove(job)
            self.due[value] = None
            self._drop_if_empty(value, group)

    def removed(self, job: Job) -> bool:
        """Let go of a job that left without being popped. Return whether it was aside, so that it had no entry."""
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
        """Take the last shown job of a value out of the queue's order."""
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
