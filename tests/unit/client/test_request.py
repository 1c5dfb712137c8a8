"""A request: its bytes, its time limit and its reply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.client.address import Address
from disque_py.client.errors import PausedError, from_reply
from disque_py.client.protocol import encode
from disque_py.client.request import Lane, Request, words
from disque_py.client.results import jobs

HERE = Address("h", 1)


def test_silence_is_limited_by_the_commands_own_wait_and_the_timeout():
    """A command that may wait without a limit has no limit for silence."""
    assert Request((b"PING",), str).limit_s(5) == 5
    assert Request((b"ADDJOB",), str, wait_ms=2_000).limit_s(5) == 7
    assert Request((b"ADDJOB",), str, wait_ms=0).limit_s(5) is None
    assert Request((b"LOCK",), str, wait_ms=1_000, silence_s=0.5).limit_s(5) == 1.5


def test_a_wait_can_be_shortened_without_changing_the_request():
    """GETJOB is sent in slices."""
    request = Request(words("GETJOB", "TIMEOUT", 0, "FROM", "q"), jobs, lane=Lane.OWN, wait_word=2)
    assert b"$3\r\n250\r\n" in request.payload_waiting(250)
    assert b"$1\r\n0\r\n" in request.payload()


def test_a_copy_with_other_words_has_their_bytes():
    """Only the maker of a request can give it prepared bytes, so a copy can't have those of other words."""
    request = Request((b"ADDJOB", b"q"), str)
    request.encoded = request.payload()
    assert replace(request, argv=(b"ADDJOB", b"other")).payload() == encode((b"ADDJOB", b"other"))
    with pytest.raises(TypeError):
        Request((b"PING",), str, encoded=b"")


def test_jobs_know_the_node_that_delivered_them():
    """NACK and WORKING go to that node."""
    (job,) = Request((b"GETJOB",), jobs).value([[b"q", b"D-1", b"x"]], HERE, "utf-8")
    assert (job.node, job.value) == (HERE, "x")


def test_an_error_reply_is_raised_when_its_value_is_asked_for():
    """The reply itself is passed on as an object."""
    with pytest.raises(PausedError):
        Request((b"ADDJOB",), str).value(from_reply("PAUSED no"), HERE, None)
