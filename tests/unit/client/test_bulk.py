"""The bookkeeping for many commands sent together."""

from __future__ import annotations

from disque_py.client.bulk import CHUNK_BYTES, CHUNK_COMMANDS, Bulk
from disque_py.client.errors import ConnectionLostError, NotConnectedError, from_reply
from disque_py.client.request import Repeat

LOST = ConnectionLostError("gone", sent=True)


def bulk_of(*repeats, retry_unsafe=False):
    return Bulk([b"%d." % index for index in range(len(repeats))], repeats, retry_unsafe=retry_unsafe)


def round_of(bulk):
    return b"".join(payload for payload, _ in bulk.chunks())


def test_commands_travel_in_chunks():
    """Chunks are limited in number and size, and together contain every command."""
    many = Bulk([b"x"] * (CHUNK_COMMANDS + 1), [Repeat.SAFE] * (CHUNK_COMMANDS + 1), retry_unsafe=False)
    assert [count for _, count in many.chunks()] == [CHUNK_COMMANDS, 1]
    large = Bulk([b"x" * CHUNK_BYTES] * 2, [Repeat.SAFE] * 2, retry_unsafe=False)
    assert [count for _, count in large.chunks()] == [1, 1]


def test_a_bulk_is_done_when_all_commands_are_answered():
    """Refusals count as answers."""
    bulk = bulk_of(Repeat.ASK, Repeat.ASK)
    refusal = from_reply("PAUSED no")
    bulk.end_round([b"id", refusal], 2, None)
    assert bulk.is_done
    assert bulk.replies == [b"id", refusal]
    assert bulk.made_progress


def test_after_a_break_only_repeatable_commands_are_sent_again():
    """The cases: answered, possibly executed and harmful, possibly executed and harmless, and never sent."""
    bulk = bulk_of(Repeat.ASK, Repeat.ASK, Repeat.SAFE, Repeat.ASK)
    bulk.end_round([b"first"], 3, LOST)
    assert round_of(bulk) == b"2.3."
    assert isinstance(bulk.replies[1], ConnectionLostError)
    assert bulk.replies[1].sent
    bulk.end_round([b"third", b"fourth"], 2, None)
    assert bulk.is_done
    assert [bulk.replies[index] for index in (0, 2, 3)] == [b"first", b"third", b"fourth"]


def test_a_caller_may_allow_a_second_execution():
    """The client's option is `retry_unsafe`."""
    bulk = bulk_of(Repeat.ASK, Repeat.NEVER, retry_unsafe=True)
    bulk.end_round([], 2, LOST)
    assert round_of(bulk) == b"0."


def test_a_node_that_leaves_does_not_affect_results_of_other_nodes():
    """The refused command goes to another node."""
    bulk = bulk_of(Repeat.ASK, Repeat.ASK)
    bulk.end_round([b"id", from_reply("LEAVING go")], 2, None)
    assert bulk.refusal is bulk.replies[1]
    assert round_of(bulk) == b"1."
    bulk.end_round([b"id2"], 1, None)
    assert (bulk.refusal, bulk.replies) == (None, [b"id", b"id2"])


def test_without_a_reachable_node_every_command_gets_an_error():
    """None of the commands was executed."""
    bulk = bulk_of(Repeat.NEVER)
    bulk.end_round((), 0, NotConnectedError("no node"))
    assert isinstance(bulk.replies[0], NotConnectedError)
    assert not bulk.made_progress
