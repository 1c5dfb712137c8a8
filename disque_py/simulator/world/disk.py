"""Disks for the simulator and for tests: the journal's work on a folder, without threads.

A *lane* stands for one thread. A SimDisk takes its time from the world. A piece of work is done in one step when its
delay is over. The node is told then or a little later, so one lane may see another lane's work before the node does.
After a crash of the process the node is told nothing more, but the threads of a real disk would go on for a moment. So
the first pieces of work of each lane may be done, and the next one in part. Therefore work may use only the folder that
it is given.

An InlineDisk does its work when a test says so. The test decides which work is done first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from disque_py.simulator.world.disk_errors import CrashError
from disque_py.simulator.world.folder import SimFolder
from persistence.disk import LANES, Folder

T = TypeVar("T")
Work: TypeAlias = Callable[[Folder], Any]
Done: TypeAlias = Callable[[Any], None]

# The least and most milliseconds for a piece of work, by lane, on a disk without faults.
DELAYS_MS: Final = ((0, 3), (1, 12), (0, 5))
HEARD_LATER_MS_MAX: Final = 2
# Share of the waits for a quick disk in which its work ends.
WAIT_SHARE: Final = 0.7
CRASH_STEPS_MAX: Final = 12  # Enough steps to finish most pieces of work.


class SimDisk:
    """The Disk of one run of a node. After a crash, the next run has another one on the same folder.

    schedule    calls back after a number of milliseconds; equal times keep the order of the requests
    delays_ms   (least, most) by lane; changing it makes the disk slow or fast at any time
    wait_share  the share of the waits in which work ends
    is_stuck    True: no work is done; `free` ends that
    is_crashed  no work is done or reported any more
    on_late     called when work is done that took longer because the disk was slow when the work began
    on_crash    called when work reaches the crash that was requested from the folder (`SimFolder.crash_in`)
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
        self.wait_share = WAIT_SHARE
        self.is_stuck = False
        self.is_crashed = False
        self.on_late: Callable[[], None] | None = None
        self.on_crash: Callable[[], None] | None = None
        self.lanes = [Lane(self, number) for number in range(LANES)]

    def start(self, lane: int, work: Callable[[Folder], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this lane. Unless the node crashes, `done` gets its result or the OSError that it raised."""
        if not self.is_crashed:
            self.lanes[lane].start(work, done)

    def wait(self, lane: int) -> None:
        """Do the first task of this lane now, in some of the calls. A disk in trouble is not waited for."""
        if not self.is_crashed and not self.is_stuck and not self.folder.is_in_trouble:
            self.lanes[lane].wait()

    @property
    def under_way(self) -> int:
        """Return how many pieces of work were started and not yet reported."""
        return sum(len(lane.tasks) + len(lane.ended) for lane in self.lanes)

    def free(self) -> None:
        """Let a stuck disk go on."""
        self.is_stuck = False
        for lane in self.lanes:
            if lane.is_held_up:
                lane.is_held_up = False
                lane.begin()

    def crash(self) -> None:
        """End the node now. Its threads finish some work. The caller calls `kill` or `cut_power` of the folder next."""
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
                self.folder.kill()  # Make the folder usable for the next lane, which was in the middle of work, too.


class Lane:
    """One lane of a SimDisk.

    tasks       pieces of work that were started, in order; the first one is being done
    ended       pieces of work that are done and not reported yet
    is_held_up  the first task was due while the disk was stuck
    is_slow     the first task began while the disk was slow
    begun       how many tasks were begun
    """

    __slots__ = ("begun", "disk", "ended", "is_held_up", "is_slow", "number", "tasks")

    def __init__(self, disk: SimDisk, number: int) -> None:
        self.disk = disk
        self.number = number
        self.tasks: deque[tuple[Work, Done]] = deque()
        self.ended: deque[tuple[Done, Any]] = deque()
        self.is_held_up = False
        self.is_slow = False
        self.begun = 0

    def start(self, work: Work, done: Done) -> None:
        """Add a task behind the others."""
        self.tasks.append((work, done))
        if len(self.tasks) == 1:
            self.begin()

    def begin(self) -> None:
        """Begin the first task: schedule its end."""
        disk = self.disk
        self.is_slow = disk.delays_ms[self.number] != DELAYS_MS[self.number]
        self.begun += 1
        disk.schedule(disk.rng.randint(*disk.delays_ms[self.number]), partial(self._on_time, self.begun))

    def wait(self) -> None:
        """Do the first task and report it, unless the disk is slow. That happens in some of the calls only."""
        disk = self.disk
        if not disk.wait_share or not self.tasks or self.ended or self.is_slow:
            return
        if disk.rng.random() < disk.wait_share:
            work, done = self.tasks.popleft()
            result = run(work, disk.folder)
            self.begun += 1  # The end that was scheduled for the task is over.
            if self.tasks:
                self.begin()
            done(result)

    def _on_time(self, begun: int) -> None:
        disk = self.disk
        if disk.is_crashed or begun != self.begun:
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
        """Report an ended task: always the oldest one, whichever this call was scheduled for."""
        if not self.disk.is_crashed:
            done, result = self.ended.popleft()
            done(result)


class InlineDisk:
    """A Disk that works when a test says so.

    waiting    the work that was started, as (lane, work, done)
    is_quick   whether work that is waited for is done
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.is_quick = False
        self.waiting: list[tuple[int, Work, Done]] = []

    def start(self, lane: int, work: Callable[[Folder], T], done: Callable[[T | OSError], None]) -> None:
        """Keep the work for `run`."""
        self.waiting.append((lane, work, done))

    def wait(self, lane: int) -> None:
        """Do the work of this lane, if the test wants waits to succeed."""
        if self.is_quick:
            self.run(lane)

    def run_one(self, lane: int | None = None) -> bool:
        """Do and report the oldest work, in this lane or in any. Return False if there is none."""
        for index, (number, work, done) in enumerate(self.waiting):
            if lane is None or number == lane:
                del self.waiting[index]
                done(run(work, self.folder))
                return True
        return False

    def run(self, lane: int | None = None) -> int:
        """Do all work in this lane or in all lanes, including work that is started meanwhile. Return its number."""
        count = 0
        while self.run_one(lane):
            count += 1
        return count


def run(work: Work, folder: Folder) -> Any:
    """Do the work, and return its result or its OSError."""
    try:
        return work(folder)
    except OSError as error:
        return error
