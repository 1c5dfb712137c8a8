"""Schedules: their definitions, their progress, and the heap of moments at which they are due.

A schedule is cluster-wide state (queue_settings.py) with three fields, each of which has its own version:

    spec       the definition. It is one value, so that two SETs never mix
    progress   generation, last recorded tick, id of its job, ticks fired, ticks missed
    pause      whether the schedule is paused, and the moment up to which ticks are not wanted

A progress counts only for the generation that it names. On this node, the last recorded tick never moves back. If a
merge brings an older progress, this node sends its own progress again (firing.py).

`Recurring.due` is a heap of (wall clock, serial, schedule). An entry counts only if its serial is the schedule's
`due_serial`. So ten thousand schedules cost nothing while none is due. This module is data, and firing.py decides. Spec
SD4, SD5.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from disque_py.core.cron import UTC, Cron, CronError, Ticks, Zone

if TYPE_CHECKING:
    from disque_py.core.client import Client
    from disque_py.core.command_entry import Handler

NAME_BYTES_MAX: Final = 512
EVERY_MS_MIN: Final = 1_000
# Wrong names of time zones are remembered up to this length, while this many names are known.
ZONE_BYTES_MAX: Final = 64
ZONES_MAX: Final = 1_000

SPEC: Final = b"spec"
PROGRESS: Final = b"progress"
PAUSE: Final = b"pause"

CATCHUPS: Final = (b"none", b"last", b"all")
OVERLAPS: Final = (b"allow", b"skip")
MOMENT_MAX: Final = 1 << 53


class Definition(NamedTuple):
    """The arguments of a SCHEDULE SET.

    generation   a number that no other SET of this name has
    set_ms       the Unix time of the SET; only later moments are ticks
    cron         the cron expression; empty for a schedule with EVERY
    every_ms     the interval; 0 for a schedule with CRON
    zone         the name of the time zone
    catchup, overlap   one of CATCHUPS, one of OVERLAPS
    queue, body, options   the jobs' queue and body, and their options as words of ADDJOB
    """

    generation: int
    set_ms: int
    cron: bytes
    every_ms: int
    zone: bytes
    catchup: bytes
    overlap: bytes
    queue: bytes
    body: bytes
    options: list[bytes]

    def pack(self) -> bytes:
        """Return the value of the field."""
        return bytes(msgpack.packb(list(self)))


class Progress(NamedTuple):
    """The progress of one generation of a schedule.

    last_ms   the last recorded tick; 0: none
    job_id    the job of that tick; empty: it had none
    fired     the number of ticks with a job
    missed    the number of ticks without a job
    """

    generation: int
    last_ms: int
    job_id: bytes
    fired: int
    missed: int

    def pack(self) -> bytes:
        """Return the value of the field."""
        return bytes(msgpack.packb(list(self)))


def pack_pause(is_paused: bool, floor_ms: int) -> bytes:
    """Return the value of the field `pause`. Ticks up to `floor_ms` are not wanted."""
    return bytes(msgpack.packb([int(is_paused), floor_ms]))


def unpack_definition(value: bytes) -> Definition | None:
    """Return a definition; None if it is malformed or of a newer version."""
    found = _unpacked(value, (int, int, bytes, int, bytes, bytes, bytes, bytes, bytes, list))
    if found is None or not all(type(word) is bytes for word in found[9]):
        return None
    definition = Definition(*found[:10])
    is_known = definition.catchup in CATCHUPS and definition.overlap in OVERLAPS
    if not is_known or bool(definition.cron) == (definition.every_ms >= EVERY_MS_MIN):
        return None
    return definition


def unpack_progress(value: bytes) -> Progress | None:
    """Return a progress; None if it is malformed."""
    found = _unpacked(value, (int, int, bytes, int, int))
    return Progress(*found[:5]) if found is not None else None


def unpack_pause(value: bytes) -> tuple[bool, int]:
    """Return whether a schedule is paused, and the moment up to which ticks are not wanted."""
    found = _unpacked(value, (int, int))
    return (found[0] > 0, found[1]) if found is not None else (False, 0)


def _unpacked(value: bytes, kinds: tuple[type, ...]) -> list[Any] | None:
    """Return the values of a field if they have these types, else None. Numbers must be moments, spans or counts."""
    try:
        found = msgpack.unpackb(value)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    if type(found) is not list or len(found) < len(kinds):
        return None
    for each, kind in zip(found, kinds, strict=False):
        if type(each) is not kind or (type(each) is int and not 0 <= each <= MOMENT_MAX):
            return None
    return list(found)


class Firing:
    """A tick whose job is being made. If there are voters, the node claims the tick first. Then it runs an ADDJOB.

    fence   the fence of the claim; 0: there is no claim
    reply   the reply to the ADDJOB; empty: there is none yet
    """

    __slots__ = ("fence", "generation", "name", "reply", "tick_ms")

    def __init__(self, name: bytes, generation: int, tick_ms: int) -> None:
        self.name = name
        self.generation = generation
        self.tick_ms = tick_ms
        self.fence = 0
        self.reply = b""


class Schedule:
    """One schedule, as this node knows it.

    packed      the definition as the field's value
    ticks       the ticks; None if this node does not know the zone or the expression
    is_paused, floor_ms   from PAUSE and RESUME
    progress    the progress of this generation
    next_ms     the first tick that is wanted and not recorded; 0: there is none
    due_serial  the serial of the schedule's entry in the heap; 0: there is none
    has_waited  whether the nodes that come before this one have had their time for `next_ms`
    firing      the tick that is being fired; None: there is none
    fails       how often this node failed to fire the next tick
    """

    __slots__ = (
        "definition",
        "due_serial",
        "fails",
        "firing",
        "floor_ms",
        "has_waited",
        "is_paused",
        "name",
        "next_ms",
        "packed",
        "progress",
        "ticks",
    )

    def __init__(self, name: bytes, definition: Definition, packed: bytes) -> None:
        self.name = name
        self.packed = packed
        self.definition = definition
        self.ticks: Ticks | None = None
        self.is_paused = False
        self.floor_ms = 0
        self.progress = Progress(definition.generation, 0, b"", 0, 0)
        self.next_ms = 0
        self.due_serial = 0
        self.has_waited = False
        self.firing: Firing | None = None
        self.fails = 0

    @property
    def base_ms(self) -> int:
        """The moment up to which no tick is fired: ticks are recorded, or older than the SET or the RESUME."""
        return max(self.definition.set_ms, self.floor_ms, self.progress.last_ms)

    def merge(self, progress: Progress | None) -> bool:
        """Adopt a newer progress of this generation. Return whether ours is newer, so that it must be sent again."""
        ours = self.progress
        if progress is None or progress.generation != ours.generation:
            return ours.last_ms > 0
        if progress.last_ms > ours.last_ms:
            self.progress = progress
            return False
        return progress.last_ms < ours.last_ms


class Recurring:
    """All schedules of one node.

    known       name -> schedule
    zones       name -> time zone; None: this node has no such zone
    unplanned   schedules whose next tick must be computed
    fallen      schedules for which a node sent an older progress than ours
    strange     schedules with a progress of a definition that is not known here
    ask_at_ms   from when on other nodes may be asked for such a definition again
    due         a heap of (wall clock, serial, name)
    addjob      the handler of ADDJOB
    is_internal   whether the node itself runs an ADDJOB, which may have reserved names of META
    is_checking   whether the ADDJOB must end before it makes a job
    answered    firings whose ADDJOB has its reply
    clients     firing -> the pseudo-client of its ADDJOB, while it waits for the reply
    firing_count   the number of firings in progress
    woken_ms    the moment for which a look was scheduled; monotonic
    """

    def __init__(self) -> None:
        self.known: dict[bytes, Schedule] = {}
        self.zones: dict[bytes, Zone | None] = {b"UTC": UTC}
        self.unplanned: dict[bytes, None] = {}
        self.fallen: dict[bytes, None] = {}
        self.strange: dict[bytes, None] = {}
        self.ask_at_ms = 0
        self.due: list[tuple[int, int, bytes]] = []
        self.addjob: Handler | None = None
        self.is_internal = False
        self.is_checking = False
        self.answered: list[Firing] = []
        self.clients: dict[Firing, Client] = {}
        self.firing_count = 0
        self.woken_ms = 0
        self.stepped_ms = 0
        self.wait_until_ms = 0
        self._serial = 0

    def zone(self, name: bytes, find: Callable[[str], Callable[[int], int] | None]) -> Zone | None:
        """Return a time zone; None if this node has no zone of this name."""
        if name not in self.zones:
            text = name.decode("ascii", "replace")
            offset_at = find(text)
            if offset_at is None and (len(self.zones) >= ZONES_MAX or len(name) > ZONE_BYTES_MAX):
                return None
            self.zones[name] = Zone(text, offset_at) if offset_at is not None else None
        return self.zones[name]

    def ticks_of(self, definition: Definition, find: Callable[[str], Callable[[int], int] | None]) -> Ticks | None:
        """Return the ticks of a definition; None if this node does not know its zone or expression."""
        zone = self.zone(definition.zone, find)
        if zone is None:
            return None
        if not definition.cron:
            return Ticks(None, definition.every_ms, zone)
        try:
            return Ticks(Cron(definition.cron.decode("ascii", "replace")), 0, zone)
        except CronError:
            return None

    def set_due(self, schedule: Schedule, at_ms: int) -> None:
        """Make a schedule due when the wall clock reaches `at_ms`. With 0, it is not due at all."""
        if not at_ms:
            schedule.due_serial = 0
            return
        self._serial += 1
        schedule.due_serial = self._serial
        heappush(self.due, (at_ms, self._serial, schedule.name))
        if len(self.due) > 64 + 4 * len(self.known):
            self._drop_stale()

    def _drop_stale(self) -> None:
        kept = []
        for entry in self.due:
            schedule = self.known.get(entry[2])
            if schedule is not None and schedule.due_serial == entry[1]:
                kept.append(entry)
        self.due = sorted(kept)

    def next_due_ms(self) -> int:
        """Return the wall clock time at which the next schedule is due; 0 if none is."""
        due = self.due
        while due:
            schedule = self.known.get(due[0][2])
            if schedule is not None and schedule.due_serial == due[0][1]:
                return due[0][0]
            heappop(due)
        return 0

    def take_due(self, wall_ms: int) -> Schedule | None:
        """Remove and return the entry of a schedule that is due; None if none is."""
        at_ms = self.next_due_ms()
        if not at_ms or at_ms > wall_ms:
            return None
        schedule = self.known[heappop(self.due)[2]]
        schedule.due_serial = 0
        return schedule
