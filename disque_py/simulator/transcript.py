"""Jobs, messages and replies as text for transcripts: j1 for an id, {a b} for a set of nodes, words for flags.

In these worlds, every node's id begins with the node's letter (machine.py). So a set of ids is shown as a set of
letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster_bus import messages as m
from cluster_bus.codec import Decoder
from cluster_bus.node import ID_BYTES
from disque_py.core.asking import (
    CANCEL,
    COPY,
    HAS_INVISIBLE,
    HAS_LEASED,
    HAS_QUEUED,
    MOVE,
    NOTHING,
    OVER,
    PROMOTE,
    RESCHEDULE,
)
from disque_py.core.changeable import IS_DEAD_LETTER, IS_ERRORED
from disque_py.core.changing import OUTCOME_CANCELED
from disque_py.core.job import CTIMES_PER_MS, STATE_NAMES, Job
from disque_py.core.pulls import ANSWERS_HINT, RETRIED_ONLY, STANDING
from disque_py.core.queue import PAUSE_NAMES
from disque_py.core.queue_settings import QUEUE, SCHEDULE, split_key
from disque_py.core.recurring import PROGRESS, SPEC, unpack_definition, unpack_progress
from disque_py.core.replication import CREATION_ABORTED, MOVING, NEW_KEY, NO_ANSWER, TIMED
from disque_py.core.shared_copies import split_ids

REASONS = {0: "taken"} | {
    value: name.removeprefix("REFUSED_").lower() for name, value in vars(m).items() if name.startswith("REFUSED_")
}
QUEUED_FLAGS = {0: "", m.QUEUED_RELEASED: " released", m.QUEUED_WAITING: " waiting"}
REPLJOB_FLAGS = {0: "", NO_ANSWER: " unanswered", NEW_KEY: " keyed", TIMED: " timed"}
NEEDJOBS_WORDS = {ANSWERS_HINT: "hinted", RETRIED_ONLY: "retried only", STANDING: "standing"}
NEEDJOBS_FLAGS = {
    flags: "".join(" " + ", ".join(word for bit, word in NEEDJOBS_WORDS.items() if flags & bit)).rstrip()
    for flags in range(8)
}
INTEREST = {-1: "gone", -2: "all void"}
DIGESTS = ("digest", "that was all", "digest after a write", "digest after a large write", "digest after a loss")
ACTION_NAMES = {CANCEL: "cancel", PROMOTE: "promote", RESCHEDULE: "reschedule", MOVE: "move"}
STATE_KINDS = {SCHEDULE: "schedule"}
TASK_ACTIONS = ("begin", "go on", "end")
CLAIM_OUTCOMES = ("granted", "held", "old fence", "old attempt", "done", "may not vote", "another epoch", "no room")
VOTES = ("yes", "no", "unable")
HAS_NAMES = {
    NOTHING: "nothing",
    OVER: "over",
    COPY: "copy",
    HAS_QUEUED: "queued",
    HAS_LEASED: "leased",
    HAS_INVISIBLE: "invisible",
}
JOB_ID_BYTES = 40
TEXT_MAX = 200
TEXT_START = 20


class Ids:
    """Names of jobs: the part of an id that differs between jobs."""

    def of(self, job_id: bytes) -> str:
        """Return the first eight random characters of an id."""
        return job_id[11:19].decode("ascii", "replace")

    def in_text(self, text: str) -> str:
        """Return the text unchanged."""
        return text


class Names(Ids):
    """Names j1, j2 … for ids, in the order in which they are seen. Unknown names get invented ids."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}

    def of(self, job_id: bytes) -> str:
        """Return the name of an id."""
        if job_id not in self._names:
            at = 1 + len(self._ids)
            while f"j{at}" in self._ids:
                at += 1
            self._note(f"j{at}", job_id)
        return self._names[job_id]

    def id_of(self, name: str, *, is_retried: bool = True) -> bytes:
        """Return the id of a name."""
        if name not in self._ids:
            self._note(name, b"D-00000000-%b-05a%d" % (name.encode().rjust(24, b"0"), is_retried))
        return self._ids[name]

    def _note(self, name: str, job_id: bytes) -> None:
        self._names[job_id] = name
        self._ids[name] = job_id

    def in_text(self, text: str) -> str:
        """Return the text with names for the ids in it."""
        for job_id, name in self._names.items():
            text = text.replace(job_id.decode(), name)
        return text


def nodes(packed: bytes) -> str:
    """Return {a b} for packed node ids."""
    return "{" + " ".join(letter(packed[at : at + ID_BYTES]) for at in range(0, len(packed), ID_BYTES)) + "}"


def letter(node_id: bytes) -> str:
    """Return a node's letter. A node that was reset has a random id; then return the beginning of that."""
    return chr(node_id[0]) if b"a" <= node_id[:1] <= b"z" else node_id[:2].hex()


def state_of(job: Job) -> tuple[str, str]:
    """Return a job's state and holders as text."""
    state = STATE_NAMES[job.state].upper().replace("-", "_")
    return state, nodes(b"".join(sorted(node.id for node in job.holders)))


def seconds(span_ms: int) -> str:
    """Return a span as text."""
    return f"{span_ms / 1000:g}s"


def _place(words: Sequence[Any]) -> str:
    """Return a place in the queue's order: a PRIORITY, or `its age` if the priority is the moment of creation."""
    priority, ctime = words[0], words[1]
    if priority is None:
        return "none"
    return "its age" if priority == ctime // CTIMES_PER_MS else str(priority)


def _state_name(key: bytes) -> str:
    """Return the name of a shared state, with its kind unless it belongs to a queue."""
    kind, name = split_key(key)
    return name.decode("utf-8", "replace") if kind == QUEUE else f"{STATE_KINDS.get(kind, '?')} {name.decode()}"


def _state_value(names: Ids, item: Any) -> str:
    """Return a field's value as text; the progress of a schedule is unpacked."""
    key, field, value = item[:3]
    if split_key(key)[0] != SCHEDULE:
        return str(value.decode("utf-8", "replace"))
    progress = unpack_progress(value) if field == PROGRESS else None
    if progress is not None:
        job = f" {names.of(progress.job_id)}" if progress.job_id else ""
        return f"{progress.last_ms % 1_000_000}{job} fired {progress.fired} missed {progress.missed}"
    definition = unpack_definition(value) if field == SPEC else None
    return "" if definition is None else (definition.cron.decode() or f"{definition.every_ms}ms")


def _voters(packed: Sequence[Any]) -> str:
    return f"epoch {packed[0]} {' '.join(letter(node_id) for node_id, _ in packed[3])}"


def _where(pairs: list[bytes] | tuple[bytes, ...]) -> str:
    return " ".join(f"{pairs[at].decode()}={pairs[at + 1].decode()}" for at in range(0, len(pairs), 2))


def _text(name: bytes) -> str:
    """Return bytes as text. Keys and holders of claims are usually text, but may contain node ids."""
    return name.decode("utf-8", "backslashreplace")


def tell_message(names: Ids, kind: int, item: Any) -> str:
    """Return the payload of one message as text."""
    match kind:
        case m.REPLJOB:
            snapshot, flags = item[:2]
            return f"{names.of(snapshot[0])} {nodes(snapshot[4])}{REPLJOB_FLAGS[flags]}"
        case m.GOTJOB:
            if isinstance(item, bytes):
                return names.of(item)
            return f"{names.of(item[0])} {'moving' if item[1] == MOVING else 'known'}"
        case m.REPLMANY:
            return f"{' '.join(map(names.of, split_ids(item[0])))} {nodes(item[4])}"
        case m.GOTMANY:
            return " ".join(map(names.of, split_ids(item)))
        case m.REFUSED:
            return f"{names.of(item[0])} {REASONS[item[1]]}"
        case m.HOLDERS | m.SETACK:
            canceled = " canceled" if kind == m.SETACK and len(item) > 3 and item[3] == OUTCOME_CANCELED else ""
            return f"{names.of(item[0])} {nodes(item[1])}{canceled}"
        case m.GOTACK:
            return f"{names.of(item[0])} {nodes(item[1])}{'' if item[2] else ' not named'}"
        case m.DELJOB:
            never = " never was" if len(item) > 2 and item[2] == CREATION_ABORTED else ""
            return f"{names.of(item[0])} {'at once' if item[1] is None else nodes(item[1])}{never}"
        case m.ENQUEUE:
            return names.of(item[0]) + (f" in {seconds(item[1])}" if item[1] else "")
        case m.WILLQUEUE:
            return f"{names.of(item[0])}{_counters(item[1], 0, 0)}"
        case m.QUEUED:
            return f"{names.of(item[0])}{QUEUED_FLAGS[item[1]]}{_counters(*item[2:5])}"
        case m.LEASED:
            return f"{names.of(item[0])} {seconds(item[1])}{_counters(item[2], 0, 0)}"
        case m.NEEDJOBS:
            better = f" before {_place(item[3:])}" if len(item) > 3 else ""
            return f"{item[0].decode()} {item[1]}{NEEDJOBS_FLAGS[item[2]]}{better}"
        case m.YOURJOBS:
            jobs = [names.of(snapshot[0]) if snapshot is not None else "-" for snapshot in item[2]]
            return f"#{item[0]} {' '.join(jobs)}{f' settled {item[1]}' if item[1] else ''}"
        case m.TOOK:
            return f"#{item[0]} {' '.join(REASONS[answer] for answer in item[1])}"
        case m.SETTLED:
            return f"#{item}"
        case m.INTEREST:
            if len(item) > 3:
                return f"{item[0].decode()} busy"
            plain = f", {INTEREST.get(item[2], item[2])} for RETRY 0" if len(item) > 2 else ""
            return f"{item[0].decode()} {INTEREST.get(item[1], item[1])}{plain}".lstrip()
        case m.HINT:
            best = f" best {_place(item[2:])}" if len(item) > 2 else ""
            return f"{item[0].decode()} {item[1]}{best}{f' after {item[4]}' if len(item) > 4 else ''}"
        case m.FILTER_NEED:
            return f"{item[0].decode()} {_where(item[1])} {item[2]}{NEEDJOBS_FLAGS[item[3]]}"
        case m.FILTER_INTEREST:
            plain = f", {INTEREST.get(item[3], item[3])} for RETRY 0" if item[3] != item[2] else ""
            return f"{item[0].decode()} {_where(item[1])} {INTEREST.get(item[2], item[2])}{plain}"
        case m.FILTER_HINT:
            return f"{item[0].decode()} {_where(item[1])} {item[2]}"
        case m.PATTERN_INTEREST:
            counts = " ".join(str(INTEREST.get(count, count)) for count in item[1:])
            return f"{b' '.join(item[0]).decode()} {counts}"
        case m.PATTERN_QUEUE:
            return f"{item[0].decode()}" if type(item) in (tuple, list) else f"{item.decode()}"
        case m.PAUSE:
            return f"{item[0].decode()} {PAUSE_NAMES[item[1]]}"
        case m.SETTING:
            field = f"{item[1].decode()} {_state_value(names, item)}" if item[1] else "reset"
            return f"{_state_name(item[0])} {field} by {letter(item[4])}{item[3]}"
        case m.SETTINGS_HAVE:
            return _state_name(item[0])
        case m.SETTINGS_DIGEST:
            return DIGESTS[item[1]]
        case m.ASKSETTINGS:
            return "of all queues"
        case m.QLENGTHS:
            return f"{item[0].decode()} {item[1]}"
        case m.VOTERS:
            return _voters(item[0])
        case m.CLAIM:
            return f"{_text(item[2])} {_text(item[3])} fence {item[4]} for {item[5]}ms"
        case m.CLAIM_IS:
            running = f" by {_text(item[3])} fence {item[2]}" if item[3] else ""
            return f"{CLAIM_OUTCOMES[item[1]]}{running}"
        case m.RELEASE:
            return f"{_text(item[2])} {_text(item[3])} fence {item[4]}{f' done for {item[6]}ms' if item[6] else ''}"
        case m.RELEASED:
            return ("not held", "ended", "can't say")[item[1]]
        case m.VOTE:
            return f"ballot {item[2]}{letter(item[3])} {'promise' if item[4] is None else _voters(item[4])}"
        case m.VOTE_IS:
            return VOTES[item[1]]
        case m.RECALL:
            return f"epoch {item[1]} page {item[2]}"
        case m.RECALLED:
            return f"{len(item[3])} grants{', the last' if item[4] else ''}" if item[1] == 0 else "not now"
        case m.LEFT:
            new = f"{letter(item[2])} instead of" if item[2] else "without"
            return f"{names.of(item[0])} {new} {letter(item[1])} {nodes(item[3])}"
        case m.LEFT_OK:
            return f"{names.of(item[0])} {'held' if item[1] else 'not held'}"
        case m.ISKEY:
            return f"?{item[0]}"
        case m.KEYIS:
            return f"?{item[0]} {names.of(item[2]) if item[2] else 'not known'}"
        case m.OUTCOME | m.OUTCOME_IS:
            return names.of(item[0])
        case m.CHANGED:
            return f"{names.of(item[0])}{_change(item[1])}"
        case m.ASKCHANGED:
            return names.of(item)
        case m.ACKATTEMPT:
            return f"{names.of(item[0])} attempt {item[1]}"
        case m.ASKJOBS:
            return f"?{item[0]} {' '.join(names.of(job_id) for job_id in item[1])}"
        case m.DOJOBS:
            return f"?{item[0]} {ACTION_NAMES[item[1]]} {' '.join(names.of(job_id) for job_id in item[2])}"
        case m.JOBSARE:
            return f"?{item[0]} {' '.join(HAS_NAMES[what] for what in item[1])}"
        case m.TASK:
            words = [_text(part) for part in item[2:] if isinstance(part, bytes)]
            return " ".join([f"!{item[0]} {TASK_ACTIONS[item[1]]}", *words])
        case m.TASK_STATE:
            return f"!{item[0]} round {item[1]}, {len(item[2] or ()) // 2} offered, {item[3]} changed"
        case m.SYNC | m.SYNCED:
            return f"!{item}"
        case m.DIDJOBS:
            return f"?{item[0]} {' '.join(map(str, item[1]))}"
    return repr(item)


def _change(field: Any) -> str:
    """Return the changeable part of a job as text: its number, and values that are not the default."""
    number, node, queue, _, _, due_ms, limit, start, ended, flags, error, *_ = field
    words = [f"change {number} of {letter(node)}"] if node else []
    words += [f"queue {queue.decode()}"] if flags & IS_DEAD_LETTER else []
    words += ["errored"] if flags & IS_ERRORED else []
    words += [f"due in {seconds(due_ms)}"] if due_ms else []
    words += [f"attempts {limit}"] if limit else []
    words += [f"from {start}"] if start else []
    words += [f"ended {ended}"] if ended else []
    words += [f"error {error.decode()!r}"] if error is not None else []
    return " " + ", ".join(words) if words else ""


def _counters(attempt: int, nacks: int, deliveries: int) -> str:
    counts = {"attempt": attempt, "nacks": nacks, "again": deliveries}
    told = [f"{name} {value}" for name, value in counts.items() if value]
    return " " + ", ".join(told) if told else ""


def tell_reply(names: Ids, reply: Any) -> str:
    """Return a reply as a client sees it, with names for ids."""
    if reply is None:
        return "nil"
    if isinstance(reply, bool | int):
        return f":{reply}"
    if isinstance(reply, Exception):
        return f"-{names.in_text(str(reply))}"
    if isinstance(reply, bytes):
        if len(reply) == JOB_ID_BYTES and reply[:2] == b"D-":
            return names.of(reply)
        return tell_bytes(names, reply)
    if isinstance(reply, list):
        return "[" + ", ".join(tell_reply(names, part) for part in reply) + "]"
    return repr(reply)


def tell_bytes(names: Ids, data: bytes) -> str:
    """Return a word or a body as text. A long or unreadable one is shown by its beginning and length."""
    text = names.in_text(data.decode("utf-8", "backslashreplace"))
    if len(text) <= TEXT_MAX and text.isprintable():
        return text or '""'
    start = "".join(character if character.isprintable() else "." for character in text[:TEXT_START])
    return f"{start}… {len(data)} bytes"


def tell_frame(names: Ids, frame: bytes, version: int) -> list[str]:
    """Return the messages in a frame as text, heartbeats by name only."""
    return [tell_run(names, run) for runs in Decoder(versions=(version, version)).feed(frame) for run in runs]


def tell_run(names: Ids, run: list[Any]) -> str:
    """Return a run of messages of one kind as text, a heartbeat by name only."""
    kind, *items = run
    told = m.NAMES.get(kind, str(kind))
    return told if kind < m.FIRST_JOB_KIND else f"{told} {', '.join(tell_message(names, kind, item) for item in items)}"
