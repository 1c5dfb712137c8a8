"""commands/where.py: the pairs that follow WHERE."""

from __future__ import annotations

import pytest

from brokers import error_of, make_broker, make_client
from disque_py.commands.where import NAME_ERROR, TRACE_ERROR, read_pair
from disque_py.core.errors import CommandError


def test_a_pair_is_read_byte_for_byte():
    """Spec W1."""
    pairs = {}
    read_pair(pairs, [b"QLEN", b"q", b"WHERE", b"Name", b"\x00\xff"], 2)
    assert pairs == {b"Name": b"\x00\xff"}


def test_an_empty_value_is_a_value_and_a_missing_one_is_an_error():
    pairs = {}
    read_pair(pairs, [b"WHERE", b"n", b""], 0)
    assert pairs == {b"n": b""}
    with pytest.raises(CommandError, match="WHERE needs a name and a value"):
        read_pair(pairs, [b"WHERE", b"m"], 0)


@pytest.mark.parametrize(
    "words",
    [
        ("GETJOB", "NOHANG", "WHERE", "<name>", "v", "FROM", "q"),
        ("QLEN", "q", "WHERE", "<name>", "v"),
        ("QPEEK", "q", 1, "WHERE", "<name>", "v"),
        ("QDEPTH", "q", "BY", "<name>"),
        ("JSCAN", 0, "WHERE", "<name>", "v"),
        ("QPURGE", "q", "WHERE", "<name>", "v"),
        ("TOPIC", "BIND", "t", "q", "WHERE", "<name>", "v"),
    ],
)
def test_names_have_1_to_1024_bytes_and_are_no_trace_context_in_each_command(words):
    """Spec W1."""
    broker = make_broker()
    client = make_client(broker)
    for name, error in (("", NAME_ERROR), ("n" * 1025, NAME_ERROR), ("tracestate", TRACE_ERROR)):
        assert error_of(broker, client, *[name if word == "<name>" else word for word in words]) == error
