"""Disks for the simulator and for tests: the journal's work on a folder, without threads.

SimDisk takes its time from the world. A piece of work is done all at once when its delay is over. The node hears of it
then or a little later, so one lane may see another lane's work before the node does. When the process crashes the node
hears no more, but the threads of a real disk would go on for a moment. So the first pieces of work of each lane may be
done, and the next one in part. Therefore work may touch nothing but the folder it is given.

InlineDisk does nothing until it is told to: a test decides which work is done first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from disque_py.simulator.world.disk_errors import CrashError
from disque_py.simulator.world.folder import SimFolder
from persistence.disk import LANES, Folder

T = TypeVar("T")
Work: TypeAlias = Callable[[Folder], Any]
Done: TypeAlias = Callable[[Any], None]

# Least and most milliseconds that a piece of work takes, by lane: a disk in good health.
DELAYS_MS: Final = ((0, 3), (1, 12), (0, 5))
HEARD_LATER_MS_MAX: Final = 2
CRASH_STEPS_MAX: Final = 12  # Enough to come to the end of most pieces of work.


class SimDisk:
    """The Disk of one run of a node: after a crash the next run has another one on the same folder.

    schedule    calls back after so many milliseconds; among equals in the order of asking
    delays_ms   (least, most) by lane; may be changed at any time: a disk that gets slow
    is_stuck    while it is set nothing gets done; `free` ends it
    is_crashed  nothing is done or heard any more
    on_late     called when work is done that took longer because the disk was slow when it began
    on_crash    called when work has come to the crash that the folder was asked for (`SimFolder.crash_in`)
    """

    def __init__(
        self,
        folder: SimFolder,
        schedule: Callable[[int, Callable[[], None]], object],
        rng: Random,
        delays_ms: Sequence[tuple[int, int]] = DELAYS_MS,
    ) -> None:
        self.folder = folder
        self.schedule = schedule
        self.rng = rng
        self.delays_ms = list(delays_ms)
        self.is_stuck = False
        self.is_crashed = False
        self.on_late: Callable[[], None] | None = None
        self.on_crash: Callable[[], None] | None = None
        self.lanes = [Lane(self, number) for number in range(LANES)]

    def start(self, lane: int, work: Callable[[Folder], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this lane; `done` hears its result, or the OSError it raised, unless the node has crashed."""
        if not self.is_crashed:
            self.lanes[lane].start(work, done)

    @property
    def under_way(self) -> int:
        """Return how many pieces of work were started and not yet reported."""
        return sum(len(lane.tasks) + len(lane.ended) for lane in self.lanes)

    def free(self) -> None:
        """A stuck disk goes on."""
        self.is_stuck = False
        for lane in self.lanes:
            if lane.is_held_up:
                lane.is_held_up = False
                lane.begin()

    def crash(self) -> None:
        """End the node now. Its threads finish some work; `kill` or `cut_power` of the folder is next."""
        if self.is_crashed:
            return
        self.is_crashed = True
        if self.folder.is_dead or self.is_stuck:
            return
        self.folder.kill()
        turns = [lane for lane in self.lanes for _ in range(self.rng.randint(0, len(lane.tasks)))]
        self.rng.shuffle(turns)
        for lane in turns:
            run(lane.tasks.popleft()[0], self.folder)
        for lane in self.lanes:
            if lane.tasks:
                self.folder.crash_in(self.rng.randrange(CRASH_STEPS_MAX))
                try:
                    run(lane.tasks.popleft()[0], self.folder)
                except CrashError:
                    pass
                self.folder.kill()  # For the next lane, which was in the middle of something, too.


class Lane:
    """One lane of a SimDisk.

    tasks       started, in order; the first is being done
    ended       done and not yet heard of
    is_held_up  the first was due while the disk was stuck
    is_slow     the first began while the disk was slow
    """

    __slots__ = ("disk", "ended", "is_held_up", "is_slow", "number", "tasks")

    def __init__(self, disk: SimDisk, number: int) -> None:
        self.disk = disk
        self.number = number
        self.tasks: deque[tuple[Work, Done]] = deque()
        self.ended: deque[tuple[Done, Any]] = deque()
        self.is_held_up = False
        self.is_slow = False

    def start(self, work: Work, done: Done) -> None:
        """Behind what is there already."""
        self.tasks.append((work, done))
        if len(self.tasks) == 1:
            self.begin()

    def begin(self) -> None:
        """The first task takes its time."""
        disk = self.disk
        self.is_slow = disk.delays_ms[self.number] != DELAYS_MS[self.number]
        disk.schedule(disk.rng.randint(*disk.delays_ms[self.number]), self._on_time)

    def _on_time(self) -> None:
        disk = self.disk
        if disk.is_crashed:
            return
        if disk.is_stuck:
            self.is_held_up = True
            return
        if self.is_slow and disk.on_late is not None:
            disk.on_late()
        work, done = self.tasks.popleft()
        try:
            result = run(work, disk.folder)
        except CrashError:
            disk.is_crashed = True
            if disk.on_crash is not None:
                disk.on_crash()
            return
        if self.tasks:
            self.begin()
        later_ms = disk.rng.randint(0, HEARD_LATER_MS_MAX)
        if not later_ms and not self.ended:
            done(result)
            return
        self.ended.append((done, result))
        disk.schedule(later_ms, self._on_heard)

    def _on_heard(self) -> None:
        """One of those that have ended is heard of: always the oldest, whichever this call was meant for."""
        if not self.disk.is_crashed:
            done, result = self.ended.popleft()
            done(result)


class InlineDisk:
    """A Disk that works when it is told to. `waiting` is what was started: (lane, work, done)."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.waiting: list[tuple[int, Work, Done]] = []

    def start(self, lane: int, work: Callable[[Folder], T], done: Callable[[T | OSError], None]) -> None:
        """Keep it for `run`."""
        self.waiting.append((lane, work, done))

    def run_one(self, lane: int | None = None) -> bool:
        """Do what was started first, in this lane or in any, and tell; False if there is nothing."""
        for index, (number, work, done) in enumerate(self.waiting):
            if lane is None or number == lane:
                del self.waiting[index]
                done(run(work, self.folder))
                return True
        return False

    def run(self, lane: int | None = None) -> int:
        """Do everything in this lane or in all of them, what is started meanwhile included; how much it was."""
        count = 0
        while self.run_one(lane):
            count += 1
        return count


def run(work: Work, folder: Folder) -> Any:
    """The result of the work, or its OSError."""
    try:
        return work(folder)
    except OSError as error:
        return error
