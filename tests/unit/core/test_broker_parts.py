"""core/broker_parts.py: the fields of one purpose, as one object each."""

from __future__ import annotations

import re

import pytest

from brokers import add_node, ask, make_broker, make_client
from disque_py.core import broker_parts
from disque_py.core.broker import Broker
from disque_py.core.broker_parts import Acks, Consumers, Copies, JournalState, Memory, Pauses, Producers, Upkeep, Waits

PARTS = (Acks, Consumers, Copies, JournalState, Memory, Pauses, Producers, Upkeep, Waits)


@pytest.mark.plain  # A compiled class has no `__slots__` to read.
@pytest.mark.parametrize("part", PARTS)
def test_a_part_describes_its_fields(part):
    assert [name for name in part.__slots__ if not re.search(rf"^ +.*\b{name}\b.*  ", part.__doc__, re.M)] == []


@pytest.mark.plain
def test_the_broker_describes_its_parts():
    names = [name for name, value in vars(make_broker()).items() if type(value) in PARTS]
    assert len(names) == len(PARTS)
    assert [name for name in names if not re.search(rf"^ +.*\b{name}\b.*  ", Broker.__doc__, re.M)] == []


@pytest.mark.plain
def test_no_field_is_in_two_places():
    broker = make_broker()
    names = [name for part in PARTS for name in part.__slots__]
    assert sorted(set(names)) == sorted(names)
    assert not set(names) & set(vars(broker))


def test_a_journal_without_segments_has_no_place_for_a_base():
    state = make_broker().journal
    assert state.place < state.first_place == broker_parts.NO_PLACE


def test_a_job_is_among_the_waiting_ones_while_its_copies_are_made():
    broker = make_broker()
    add_node(broker)
    ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 1)
    assert len(broker.copies.waiting_repl) == 1


def test_the_bytes_of_names_are_those_of_remembered_pauses():
    broker = make_broker()
    client = make_client(broker)
    for name in ("one", "three"):
        ask(broker, client, "PAUSE", name, "in", "BCAST")
    assert broker.pauses.name_bytes == sum(map(len, broker.pauses.versions)) == 8


def test_records_of_a_removed_segment_are_no_longer_counted():
    """The next file of that number has records of its own."""
    journal = JournalState()
    journal.first_place = 3
    journal.add_live(3, 50)
    journal.add_live(3, 20, 2)
    journal.drop_live(3, 50)
    assert (journal.live_bytes, journal.live_records) == ({3: 20}, {3: 2})
    journal.drop_live(2, 9)
    journal.drop_live(4, 9)
    assert (journal.live_bytes, journal.live_records) == ({3: 20}, {3: 2})
