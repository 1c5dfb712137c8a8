"""BATCH: groups of jobs that are counted together. Spec BT1, BT2, BT4, BT6.

The shared state of a batch is known on every node. Its counts come from the keepers, and the number of running jobs
from the nodes that run them. So SHOW asks all linked nodes (gathering.py). WAIT goes on when the shared state says that
the batch is done.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final

from disque_py.commands.name_lists import list_names
from disque_py.commands.options import INT64_MAX, between
from disque_py.commands.subcommands import ANY, Form, run_form, syntax_error
from disque_py.core import batch_ends, census, deferred_reply, gathering, incremental, keeping, settings_sync, versions
from disque_py.core.batch_state import ABORTED, CALLBACK_ID, Batch
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.client import Blocked, Client
from disque_py.core.deferred_reply import Done
from disque_py.core.errors import CommandError
from disque_py.core.gathering import Share
from disque_py.core.job_attributes import BATCH
from disque_py.core.keeping import NAME_BYTES_MAX
from disque_py.core.queue_fields import VALUE_BYTES_MAX
from disque_py.core.queue_settings import BATCH as BATCH_STATE
from disque_py.core.queue_settings import COUNTER_MAX, NO_VERSION, RESET_FIELD, state_key
from disque_py.event_format import CANCELED, COMPLETED, ERRORED, EXPIRED, RUNNING, STATUS_NAMES
from disque_py.resp.replies import OK, array, bulk, integer, nil_array, nil_bulk

SUBJECT_BATCH: Final[bytes] = b"batch"
# Share: is it a keeper, ids, and how many of them have each status; jobs that run there. Nodes of this version add how
# many ids do not count (spec BT8).
COUNTED: Final = (COMPLETED, CANCELED, ERRORED, EXPIRED)
FIELDS: Final = 3 + len(COUNTED)
ABORTED_AT: Final = FIELDS
LOOKED_PER_PART: Final = 2_000
NAME_ERROR: Final = f"ERR BATCH must have 1 to {NAME_BYTES_MAX} bytes"
NO_SUCH: Final = "ERR no such batch"
BODY_ERROR: Final = f"ERR the callback's queue must have 1 to {VALUE_BYTES_MAX} bytes, and its body at most as many"
TIMEOUT_ERROR: Final = "ERR TIMEOUT must be a number of milliseconds >= 0"


def batch(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """BATCH SHOW | CLOSE | WAIT | DEL | LIST."""
    return run_form(FORMS, broker, client, argv)


def _known(broker: Broker, name: bytes) -> Batch | None:
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise CommandError(NAME_ERROR)
    found = broker.batches.by_name.get(name)
    return found if found is not None and found.is_known else None


# -- SHOW and WAIT ------------------------------------------------------------------------------------


def share(broker: Broker, words: list[Any]) -> Share:
    """Make this node's share of a batch's counts."""
    name = words[0] if len(words) == 1 else None
    if type(name) is not bytes:
        raise ValueError("a question about a batch without a name")
    known = broker.batches.by_name.get(name)
    if known is None:
        return (yield from _no_share())
    running = 0
    if known.held:
        looked = 0
        for number in range(SHARDS):
            shard = broker.shards[number]
            for job in shard.values():
                attributes = job.attributes
                if attributes is not None and attributes.extra(BATCH) == name and census.is_running(broker, job):
                    part = attributes.part
                    running += not (part is not None and part.is_dead_letter)
            looked += len(shard)
            if looked >= LOOKED_PER_PART:
                looked = 0
                yield
    counts = known.counts()
    is_keeper = int(broker.me in known.keepers or bool(known.parts))
    return [is_keeper, known.count, *[counts[status] for status in COUNTED], running, counts[ABORTED]]


def _no_share() -> Share:
    yield from ()
    return [0] * (FIELDS + 1)


def check_share(value: Any) -> list[int]:
    """Return a share as this version makes it. ValueError if no node sends this."""
    if type(value) not in (list, tuple) or len(value) < FIELDS:
        raise ValueError("a share of a batch that is none")
    share_of = [*value, 0][: FIELDS + 1]
    if not all(type(each) is int and 0 <= each < 1 << 53 for each in share_of):
        raise ValueError("a share of a batch with something else than numbers")
    return share_of


def _show(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SHOW name → pairs; nil if there is no such batch."""
    if _known(broker, argv[2]) is None:
        return nil_array(client.protocol)
    return incremental.begin(broker, client, _shown(broker, client, argv[2]))


def _shown(broker: Broker, client: Client, name: bytes) -> Generator[None, None, bytes]:
    question = gathering.ask(broker, client, SUBJECT_BATCH, [name], check_share)
    shares = [check_share((yield from share(broker, [name])))]
    shares += yield from gathering.answers(broker, question)
    known = _known(broker, name)
    if known is None:
        return nil_array(client.protocol)
    # Keepers hear of a job at about the same time, so the keeper that knows most has the latest counts.
    best = max(shares, key=_knowledge)
    total = best[1] - best[ABORTED_AT]
    ends = dict(zip(COUNTED, best[2:], strict=False))
    over = sum(ends[status] for status in COUNTED)
    running = min(sum(each[FIELDS - 1] for each in shares), total - over)
    callback = known.fields.get(CALLBACK_ID)
    pairs = (
        ("name", bulk(name)),
        ("closed", integer(int(known.is_closed))),
        ("total", integer(total)),
        ("invisible-or-pending", integer(total - over - running)),
        (STATUS_NAMES[RUNNING] or "", integer(running)),
        *[(STATUS_NAMES[status] or "", integer(ends[status])) for status in COUNTED],
        ("done", integer(int(known.is_done))),
        ("callback", nil_bulk(client.protocol) if callback is None else bulk(callback)),
    )
    return array([part for field, value in pairs for part in (bulk(field), value)])


def _knowledge(share_of: list[int]) -> tuple[int, int]:
    return share_of[1], sum(share_of[2 : FIELDS - 1]) + share_of[ABORTED_AT]


def _wait(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """WAIT name [TIMEOUT ms] → pairs as SHOW, when the batch is done or the time is over."""
    timeout_ms = 0
    for at in range(3, len(argv), 2):
        if argv[at].lower() != b"timeout" or at + 1 == len(argv):
            raise syntax_error(argv[at])
        timeout_ms = between(argv[at + 1] or b"-", 0, INT64_MAX >> 1, TIMEOUT_ERROR)
    if _known(broker, argv[2]) is None:
        raise CommandError(NO_SUCH)
    until_ms = broker.now_ms + timeout_ms if timeout_ms else 0
    return incremental.begin(broker, client, _waited(broker, client, argv, until_ms))


def _refuse_wait(broker: Broker, client: Client, name: bytes, text: str) -> None:
    broker.batches.waiting.get(name, {}).pop(client, None)
    incremental.refuse(broker, client, text)


def _waited(broker: Broker, client: Client, argv: list[bytes], until_ms: int) -> Generator[None, None, bytes]:
    name = argv[2]
    while True:
        known = _known(broker, name)
        if known is None or known.is_done or 0 < until_ms <= broker.now_ms:
            break
        broker.batches.waiting.setdefault(name, {})[client] = until_ms
        broker.waits.stalled[client] = None
        client.blocked = Blocked(argv, partial(_refuse_wait, broker, client, name))
        yield
    client.blocked = None  # The rest takes no longer than BATCH SHOW.
    return (yield from _shown(broker, client, name))


# -- CLOSE and DEL ------------------------------------------------------------------------------------


def _changed(
    broker: Broker, client: Client, name: bytes, values: list[tuple[bytes, bytes]], reply: bytes
) -> bytes | None:
    """Change the shared state, and answer when linked nodes have it."""
    key = state_key(BATCH_STATE, name)
    if not settings_sync.has_room(broker, key, values):
        raise CommandError(keeping.TOO_MANY)
    if broker.queue_settings.next_counter(key) > COUNTER_MAX:
        raise CommandError(NO_VERSION)

    def start(done: Done) -> None:
        settings_sync.change(broker, key, values, done)

    def outcome(failure: OSError | None) -> bytes:
        if failure is not None:
            raise CommandError(f"ERR the batch could not be saved: {failure.strerror or failure}")
        return reply

    return deferred_reply.begin(broker, client, start, outcome)


def _close(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """CLOSE name [CALLBACK queue body] → OK. A second CLOSE keeps the first callback."""
    callback: tuple[bytes, bytes] | None = None
    if len(argv) > 3:
        if len(argv) != 6 or argv[3].lower() != b"callback":
            raise syntax_error(argv[3])
        callback = (argv[4], argv[5])
        if not argv[4] or max(len(argv[4]), len(argv[5])) > VALUE_BYTES_MAX:
            raise CommandError(BODY_ERROR)
    known = _known(broker, argv[2])
    if known is None:
        raise CommandError(NO_SUCH)
    versions.refuse_older(broker, versions.FLOWS)
    if known.is_closed:
        return OK
    return _changed(broker, client, argv[2], batch_ends.closing_changes(callback), OK)


def _del(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DEL name → 1, or 0 if there is no such batch. The jobs stay."""
    if _known(broker, argv[2]) is None:
        return integer(0)
    versions.refuse_older(broker, versions.FLOWS)
    return _changed(broker, client, argv[2], [(RESET_FIELD, b"")], integer(1))


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LIST [pattern] → names of batches, sorted."""
    names = [name for name, known in broker.batches.by_name.items() if known.is_known]
    return list_names(broker, client, argv, names)


FORMS: Final = {
    b"show": Form(_show, 3, 3),
    b"close": Form(_close, 3, 6),
    b"wait": Form(_wait, 3, ANY),
    b"del": Form(_del, 3, 3),
    b"list": Form(_list, 2, 3),
}
