"""Audit: at the end of a world, the event logs must have the full history of every job.

A client reads every log to its end, and the events are compared with those that the nodes wrote. If no log was given up
or lost its end in a power cut, the histories are merged as docs/events.md says. Then each job must have been added
once, or never if its creator died and only another request with its key got its id. It must have been delivered at
least as often as consumers got it. Its end must be the one that the oracle knows: an acknowledged job is completed,
whatever some node did to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.event_format import (
    ACKED,
    CANCELED_EVENT,
    CODES,
    COMPLETED,
    DELIVERED,
    ERRORED_EVENT,
    FINAL_RANKS,
    MOVED,
    MOVED_ERRORED,
    MOVED_INVISIBLE,
)
from disque_py.simulator.checks.event_log_history import job_of, version_of
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.clients.event_readers import Question, check_info, check_lines, check_refusal
from disque_py.simulator.oracle import Promise, RuleBrokenError
from disque_py.simulator.world.machine import ADDED_CODES

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

READ_MS: Final = 5_000
STEP_MS: Final = 50
COUNT: Final = 10_000
# A shorter TTL may be over before the ack.
LONG_TTL_MS: Final = 600_000
MOVES: Final = (MOVED, MOVED_INVISIBLE, MOVED_ERRORED)
# The events of a job over all nodes: (code, version, node, seq) each.
History = list[tuple[int, int, bytes, int]]


class EventAuditor(Connection):
    """A client that reads one node's log from its first event to its last."""

    __slots__ = ("_question", "is_done")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_done = False
        self._question: Question | None = None

    def begin(self) -> None:
        """Send EVENTS INFO, to learn which events the log has."""
        self.send([words("EVENTS", "INFO")], 1)

    def on_reply(self, reply: Any) -> None:
        """Handle the state of the log, lines, the end of the lines, or the loss of some."""
        question = self._question
        if question is None:
            if isinstance(reply, Exception):
                self.is_done = str(reply).startswith("NOLOG")  # LOADING and similar refusals end before the audit.
            else:
                log_id, first_seq, _ = check_info(self.machine, reply)
                self._ask(Question(self.machine, log_id, first_seq, COUNT))
        elif isinstance(reply, Exception):
            start = check_refusal(question, str(reply))
            self.is_done = not start
            if start:
                self._ask(question._replace(start=start))
        else:
            count = check_lines(question, reply)
            event_logs = self.machine.event_logs
            self.is_done = not count
            if count:
                self._ask(question._replace(start=question.start + count))
            elif (
                event_logs is not None
                and event_logs.service.log is not None
                and event_logs.service.log.durable_seq > question.start
            ):
                raise RuleBrokenError("readers come to the end", f"nothing for {question}", self.machine.name)

    def _ask(self, question: Question) -> None:
        self._question = question
        self.send([words("EVENTS", "READ", question.log_id, question.start, "COUNT", question.most)], 1)


def read_all(world: World) -> None:
    """Read every readable log to its end. Raises RuleBrokenError."""
    auditors = []
    for machine in world.running():
        if machine.event_logs is not None:
            auditor = EventAuditor(world)
            world.connect(machine, auditor)
            auditor.begin()
            auditors.append(auditor)
    end_ms = world.now_ms + READ_MS
    while not all(auditor.is_done for auditor in auditors):
        if world.now_ms >= end_ms:
            raise RuleBrokenError("readers come to the end", f"not within {READ_MS} ms")
        world.run(STEP_MS)
    for auditor in auditors:
        if auditor.is_open:
            auditor.hang_up()


def is_complete(machine: Machine) -> bool:
    """Return whether one log has all events of this machine."""
    event_logs = machine.event_logs
    return (
        event_logs is not None
        and event_logs.missed + event_logs.service.missed == 0
        and event_logs.lost == 0
        and not (event_logs.had_gap or event_logs.was_off)
        and len(event_logs.logs) <= 1
    )


def histories(world: World) -> dict[bytes, History]:
    """Return the events of all nodes, by job."""
    found: dict[bytes, History] = {}
    for machine in world.machines.values():
        if machine.event_logs is None:
            continue
        for written in machine.event_logs.logs.values():
            for seq, event in enumerate(written.events, written.first_seq):
                job_id = job_of(event)
                if job_id:
                    found.setdefault(job_id, []).append((event[0], version_of(event), machine.node_id, seq))
    return found


def last_state(history: History) -> int:
    """Return the state of a job, by the documented order."""
    code = max(history, key=_order)[0]
    return CODES[code][1]


def _order(event: tuple[int, int, bytes, int]) -> tuple[int, int, bytes, int]:
    return FINAL_RANKS.get(CODES[event[0]][1], 0), *event[1:]


def audit(world: World, oracle: Oracle) -> None:
    """Audit the event logs of a world. Raises RuleBrokenError."""
    read_all(world)
    if not all(is_complete(machine) for machine in world.machines.values()):
        return
    found = histories(world)
    for promise in oracle.promises:
        if promise.answered_ms:
            check(promise, found.get(promise.id, []))
            if oracle.is_calm_since(promise):
                check_ends(promise, found.get(promise.id, []))


def check_ends(promise: Promise, history: History) -> None:
    """Check that a job was canceled once, errored once per set of attempts, and moved once per command.

    The check needs a time without faults. Spec Y4, Y8, MV5. Two requests that reach two nodes at the same moment may
    both count.
    """
    errors = max(1, promise.nacks) + promise.renewed
    for codes, most in (((CANCELED_EVENT,), promise.cancels), ((ERRORED_EVENT,), errors), (MOVES, promise.moves)):
        versions = {event[1] for event in history if event[0] in codes}
        if len(versions) > most:
            raise RuleBrokenError(
                "a job ends once", f"{promise}: {len(versions)} times {CODES[codes[0]][0]}: {history}", promise.id
            )


def check(promise: Promise, history: History) -> None:
    """Check that the events of this job agree with the oracle. Raises RuleBrokenError."""
    codes = [event[0] for event in history]
    added = sum(code in ADDED_CODES for code in codes)
    if added > 1 or (not added and promise.asked is not None):
        raise RuleBrokenError("every job is added once", f"{promise}: {added} times by its events", promise.id)
    delivered = sum(code == DELIVERED for code in codes)
    if delivered < promise.delivered:
        raise RuleBrokenError(
            "every transition is in the log",
            f"{promise} was delivered {promise.delivered} times, but {delivered} times by its events",
            promise.id,
        )
    if promise.settled_ack_ms and not promise.is_deleted and promise.ttl_ms >= LONG_TTL_MS:
        is_ended = CANCELED_EVENT in codes if promise.cancels else False
        if not is_ended and (ACKED not in codes or last_state(history) != COMPLETED):
            raise RuleBrokenError(
                "events tell what became of jobs", f"{promise} was acknowledged: {history}", promise.id
            )
