"""GETJOB and the commands about tokens: their words and their nodes."""

from __future__ import annotations

import pytest

from disque_py.client import fetch_commands
from disque_py.client.address import Address
from request_words import words_of

A = Address("a", 1)


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (fetch_commands.get_jobs("q", "r"), "GETJOB TIMEOUT 0 FROM q r"),
        (fetch_commands.get_jobs("q", count=3, timeout_ms=9, withcounters=True),
         "GETJOB TIMEOUT 9 COUNT 3 WITHCOUNTERS FROM q"),
        (fetch_commands.get_jobs("q", nohang=True), "GETJOB NOHANG FROM q"),
        (fetch_commands.get_jobs("q", nohang=True, withmeta=True, withlease=True, lease=9, token="t"),
         "GETJOB NOHANG WITHMETA WITHLEASE LEASE 9 TOKEN t FROM q"),
        (fetch_commands.ack_token("t", b"u"), "ACKTOKEN t u"),
        (fetch_commands.nack_token("t"), "NACKTOKEN t"),
        (fetch_commands.extend_token("t", 60), "EXTENDTOKEN t 60"),
        (fetch_commands.get_job("q", nohang=True, where={"a": "b"}), "GETJOB NOHANG WHERE a b FROM q"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire


def test_getjob_without_a_queue_is_refused():
    """The node would answer `syntax error`, which does not name the missing part."""
    with pytest.raises(ValueError, match="queue"):
        fetch_commands.get_jobs()


@pytest.mark.parametrize("pattern", ["mail.*", b"mail.*"])
def test_a_single_pattern_is_no_list_of_patterns(pattern):
    """Its letters would be patterns, and `*` takes the jobs of every queue."""
    with pytest.raises(TypeError, match="list of patterns"):
        fetch_commands.get_job(match=pattern)


def test_a_token_belongs_to_the_node_that_answered():
    again = fetch_commands.get_jobs("q", token="t", node=A)
    assert (again.node, again.is_pinned) == (A, True)
    assert (fetch_commands.ack_token("t", node=A).node, fetch_commands.ack_token("t", node=A).is_pinned) == (A, True)
    assert not fetch_commands.get_jobs("q", token="t").is_pinned
