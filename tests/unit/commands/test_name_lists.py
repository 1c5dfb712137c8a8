"""commands/name_lists.py: LIST [pattern], for names that all nodes know."""

from __future__ import annotations

import pytest

from brokers import ask, error_of, make_broker, make_client
from copies import advance
from disque_py.commands.name_lists import NAMES_PER_PART, PATTERN_BYTES_MAX, listed
from disque_py.core import settings_sync
from disque_py.resp.replies import bulk_array

NAMES = [b"q%d" % at for at in range(3 * NAMES_PER_PART + 7)]


@pytest.mark.parametrize("pattern", [(), ("q*",), ("*9",)])
def test_many_names_are_listed_a_part_at_a_time(pattern):
    """The names are in order nevertheless."""
    broker = make_broker()
    client = make_client(broker)
    settings_sync.start(broker, [(name, b"lease", b"5", 1, b"\x02" * 20) for name in NAMES])
    assert ask(broker, client, "QUEUE", "LIST", *pattern) == b""
    advance(broker, 100)
    found = [name for name in NAMES if pattern != ("*9",) or name.endswith(b"9")]
    assert b"".join(client.out) == bulk_array(sorted(found))


def test_parts_are_compared_first_and_merged_then():
    steps = listed(NAMES, "*")
    assert sum(1 for _ in steps) == 3 + 4
    assert list(listed([], "*")) == list(listed(NAMES[:NAMES_PER_PART], "*")) == []


@pytest.mark.parametrize("command", ["QUEUE", "SCHEDULE", "BATCH"])
def test_a_pattern_is_of_bounded_length(command):
    """This bounds the work of one part of the list."""
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, command, "LIST", "x" * PATTERN_BYTES_MAX) == b"*0\r\n"
    assert error_of(broker, client, command, "LIST", "x" * (PATTERN_BYTES_MAX + 1)).startswith("ERR syntax error")
