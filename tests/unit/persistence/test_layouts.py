"""persistence/layouts.py: the broker and the tools use the same table of positions."""

from __future__ import annotations

import re

import pytest

from brokers import ask, make_broker, make_client
from copies import collect, hold_queued
from disque_py.core import claim_stamps, job_snapshot, lifecycle
from disque_py.core.claim_stamps import HAS_VALUE, Stamp
from disque_py.core.restoring import Restoring
from disque_py.node import dispatch
from made_journals import ME, WALL_MS, facts
from persistence import items, layouts
from persistence.records import DROPPED, GONE, JOB, KIND_NAMES, STATE
from rewrite_docs import ROOT

HERE = ("persistence", "disque_py/core/journaling.py", "disque_py/core/restoring.py", "disque_py/cli/check_journal")


def recorded():
    """Return a job's id, and by kind of record the last item that a broker records during the job's whole life."""
    broker = make_broker()
    broker.is_journaling = True
    broker.journal.first_place = broker.journal.place = 1
    client = make_client(broker)
    found = {}

    def record():
        dispatch.settle(broker)
        found.update((kind, run[-1]) for kind, *run in collect(broker))

    ask(broker, make_client(broker), "ADDJOB", "other", "x", 0, "BATCH", "b")
    record()
    reply = ask(broker, client, "ADDJOB", "q", "body", 0, "KEY", "k", "RETRY", 30, "ATTEMPTS", 3)
    record()
    stamp = Stamp(b"q", b"user", b"ann", HAS_VALUE, 5, 0, b"holder")
    claim_stamps.set_stamp(broker, broker.find(reply.strip()[1:]), stamp)
    ask(broker, client, "GETJOB", "TOKEN", "t", "FROM", "q")
    ask(broker, client, "PAUSE", "q", "in")
    record()
    ask(broker, client, "ACKJOB", reply.strip()[1:], "RESULT", "r")
    record()
    return reply.strip()[1:], found


def test_the_broker_writes_the_fields_of_the_table():
    job_id, found = recorded()
    assert {kind: len(item) for kind, item in found.items()} == {
        kind: len(fields) for kind, fields in layouts.FIELDS.items() if kind != DROPPED
    }
    base, state, gone = found[JOB], found[STATE], found[GONE]
    assert base[layouts.ID_AT] == state[layouts.ID_AT] == gone[layouts.ID_AT] == job_id
    assert layouts.HEADER.unpack(base[layouts.HEADER_AT])[2] == 30_000
    assert (base[layouts.QUEUE_AT], base[layouts.BODY_AT]) == (b"q", b"body")
    assert len(base[layouts.HOLDERS_AT]) == items.NODE_BYTES
    assert layouts.BASE_STATE.unpack(base[layouts.BASE_STATE_AT]) == (layouts.IS_QUEUED | layouts.WAS_QUEUED, -1)
    assert len(state[layouts.STATE_AT]) == layouts.STATE_FIELDS.size
    assert (state[layouts.STATE_HOLDERS_AT], gone[layouts.SEGMENT_AT]) == (None, 1)
    assert set(layouts.FIELDS) == set(KIND_NAMES)


def test_the_tools_read_what_the_broker_writes():
    _, found = recorded()
    items.check_base(found[JOB])
    items.check_state(found[STATE])
    read = items.facts_of(found[JOB], WALL_MS, found[STATE][layouts.STATE_AT], WALL_MS)
    assert (read.queue, read.body, read.retry_ms, len(read.more)) == (b"q", b"body", 30_000, 2)
    assert read.flags & layouts.IS_DELIVERED


def test_the_broker_reads_what_the_tools_write():
    said = facts(queue=b"q", body=b"body", nacks=2, deliveries=3, attempt=4, version=9, holders=(ME,))
    broker = make_broker()
    restoring = Restoring(broker)
    restoring.block(1, broker.wall_ms, 0, [[JOB, items.base_item(said, broker.wall_ms)]])
    job = broker.find(said.id)
    assert (job.queue, job.body, job.nacks, job.deliveries, job.attempt, job.version) == (b"q", b"body", 2, 3, 4, 9)


def test_a_snapshot_on_the_bus_begins_as_a_base():
    broker = make_broker()
    job = hold_queued(broker)
    base, snapshot = layouts.FIELDS[JOB], job_snapshot.snapshot_of(broker, job)
    assert len(snapshot) == base.index("state") == job_snapshot.AFTER
    assert snapshot[layouts.HEADER_AT] == job_snapshot.header_of(job, broker.now_ms)
    assert (snapshot[layouts.QUEUE_AT], snapshot[layouts.BODY_AT]) == (job.queue, job.body)
    assert lifecycle.BASE_BYTES == layouts.BASE_BYTES


@pytest.mark.parametrize("place", HERE)
def test_positions_of_fields_are_numbers_in_one_module_only(place):
    path = ROOT / place
    for module in path.rglob("*.py") if path.is_dir() else (path,):
        source = module.read_text(encoding="utf-8")
        assert not re.findall(r"\b(?:item|base)\[\d", source), module
