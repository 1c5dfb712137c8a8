"""Readers: clients that follow the nodes' event logs, and the rules for their replies (docs/events.md).

A *reader* goes from node to node. It asks which events each log has (INFO), reads on from its last position (READ,
with and without waiting), and looks for moments (SEEK). Its events are compared with those that the node wrote
(event_log_history.py), and with those that readers got before. A number means the same event for ever. An event that
was read once can be read again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import Actor, Line
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.world.machine import Machine

if TYPE_CHECKING:
    from disque_py.simulator.checks.event_log_history import Written
    from disque_py.simulator.world.event_log_storage import EventLogStorage

COUNTS: Final = (1, 3, 50, 1_000)
BYTES: Final = (1, 2_000, 100_000)
BLOCKS_MS: Final = (20, 300, 2_000)
SEEK_BACK_MS_MAX: Final = 5_000


class Question(NamedTuple):
    """A READ or SEEK: the log, the first event or the moment, and the largest number of events.

    durable   the first event that could not be read at the time of the request
    """

    machine: Machine
    log_id: str
    start: int
    most: int = 0
    durable: int = 0


def log_of(machine: Machine, log_id: str) -> Written:
    """Return the history of the log that a node names. Raises RuleBrokenError if there is no such log."""
    event_logs = machine.event_logs
    written = event_logs.logs.get(log_id) if event_logs is not None else None
    if written is None:
        raise RuleBrokenError("events come from somewhere", f"{machine.name} has a log {log_id}", machine.name)
    return written


def check_info(machine: Machine, reply: list[Any]) -> tuple[str, int, int]:
    """Check the reply to EVENTS INFO, and return log id, first event and first unreadable event; RuleBrokenError."""
    pairs = dict(zip(reply[::2], reply[1::2], strict=True))
    log_id, first_seq, next_seq = pairs[b"log-id"].decode(), pairs[b"first-seq"], pairs[b"next-seq"]
    written = log_of(machine, log_id)
    if not 1 <= first_seq <= next_seq <= written.next_seq or next_seq < written.told:
        raise RuleBrokenError(
            "events stay",
            f"{machine.name} has {first_seq} to {next_seq} of {log_id}; {written.told} could be read once,"
            f" {written.next_seq} come next",
        )
    written.told = next_seq
    return log_id, first_seq, next_seq


def check_lines(question: Question, data: bytes) -> int:
    """Check the lines of a READ, and return their number. Raises RuleBrokenError."""
    written = log_of(question.machine, question.log_id)
    lines = data.splitlines(keepends=True)
    if len(lines) > question.most:
        raise RuleBrokenError("a reader gets what it asked for", f"{len(lines)} events for {question}")
    for seq, line in enumerate(lines, question.start):
        written.check_line(seq, line)
    written.told = max(written.told, question.start + len(lines))
    return len(lines)


def check_refusal(question: Question, text: str) -> int:
    """Check -TRIMMED or -NOLOG, and return the event to go on with, or 0 for another log. Raises RuleBrokenError."""
    word, _, rest = text.partition(" ")
    if word == "LOADING":
        return question.start
    event_logs = question.machine.event_logs
    assert event_logs is not None
    if word == "NOLOG":
        if rest == question.log_id:
            raise RuleBrokenError("a log is there or not", f"{question.machine.name}: {text}")
        return 0
    if word != "TRIMMED" or int(rest) <= question.start:
        raise RuleBrokenError("no odd errors", f"{text!r} for {question}")
    log = event_logs.service.log
    if log is not None and log.first_seq <= question.start and not event_logs.had_gap:
        raise RuleBrokenError("events stay", f"{text!r} for {question}: {log.first_seq} is the first one")
    return int(rest)


def check_moment(question: Question, seq: int) -> None:
    """Check the result of a SEEK, unless the node's clock ever went back. Raises RuleBrokenError."""
    written = log_of(question.machine, question.log_id)
    moments = written.moments
    if any(later < earlier for earlier, later in pairwise(moments)):
        return
    at = seq - written.first_seq
    log = question.machine.event_logs.service.log if question.machine.event_logs is not None else None
    # An event that could not be read at the time of the request may be older than the moment.
    is_right = 0 <= at <= len(moments)
    if is_right and at and log is not None and seq > log.first_seq:
        is_right = moments[at - 1] < question.start
    if is_right and seq < question.durable:
        is_right = moments[at] >= question.start
    if not is_right:
        raise RuleBrokenError("a moment is found", f"{seq} for {question}")


class Reader(Actor):
    """A client that reads events. `places` has its position in each node's log."""

    def begin(self) -> None:
        """Start to act."""
        self.places: dict[str, tuple[str, int]] = {}
        super().begin()

    def pick(self, *, anywhere: bool = True) -> Machine | None:
        """Return any node, because each node has its own log."""
        return super().pick(anywhere=anywhere)

    def act(self) -> int:
        """Send a question, if the last one has its reply."""
        rng = self.rng
        if rng.random() < 0.15 and self.line is not None and self.line.is_open:
            self.line.hang_up()
        line = self.free_line()
        if isinstance(line, int):
            return line
        machine = line.machine
        place = self.places.get(machine.name)
        dice = rng.random()
        if place is None or dice < 0.1:
            line.ask([(words("EVENTS", "INFO"), self._informed, line)], self.travel())
        elif dice < 0.2:
            moment_ms = machine.wall_ms() - rng.randrange(SEEK_BACK_MS_MAX)
            log = machine.event_logs.service.log if machine.event_logs is not None else None
            question = Question(machine, place[0], moment_ms, 0, log.durable_seq if log is not None else 0)
            line.ask([(words("EVENTS", "SEEK", moment_ms), self._found, question)], self.travel())
        else:
            self._read(line, *place)
        return 1 + int(rng.expovariate(self.load / 50))

    def _read(self, line: Line, log_id: str, seq: int) -> None:
        rng = self.rng
        question = Question(line.machine, log_id, seq, rng.choice(COUNTS))
        options: list[str | int] = ["COUNT", question.most, "MAXBYTES", rng.choice(BYTES)]
        if rng.random() < 0.5:
            options += ["BLOCK", rng.choice(BLOCKS_MS)]
        if rng.random() < 0.5:
            options += ["READER", f"r{self.number}"]
        line.ask([(words("EVENTS", "READ", log_id, seq, *options), self._got, question)], self.travel())

    def _informed(self, reply: Any, line: Line) -> None:
        machine = line.machine
        if isinstance(reply, list):
            log_id, first_seq, next_seq = check_info(machine, reply)
            known = self.places.get(machine.name)
            if known is None or known[0] != log_id or self.rng.random() < 0.1:
                self.places[machine.name] = log_id, self.rng.choice((first_seq, first_seq, next_seq))

    def _got(self, reply: Any, question: Question) -> None:
        name = question.machine.name
        if isinstance(reply, bytes):
            count = check_lines(question, reply)
            self.places[name] = question.log_id, question.start + count
        elif isinstance(reply, Exception):
            seq = check_refusal(question, str(reply))
            if seq:
                self.places[name] = question.log_id, seq
            else:
                self.places.pop(name, None)

    def _found(self, reply: Any, question: Question) -> None:
        if isinstance(reply, int):
            event_logs: EventLogStorage | None = question.machine.event_logs
            if (
                event_logs is not None
                and event_logs.current is not None
                and event_logs.current.log_id == question.log_id
            ):
                check_moment(question, reply)
