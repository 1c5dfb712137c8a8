"""Operations, which are commands of the client library."""

from __future__ import annotations

import pytest

from disque_py.tasks import Message
from disque_py.tasks.operations import Add, BatchEnd, BatchState, Cancel, CloseBatch, Ends, KeepValue, Show

MESSAGE = Message("add", "q", b"body", {"retry": 60})


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (Add(MESSAGE), b"ADDJOB q body 5000 RETRY 60"),
        (Ends(("D-1", "D-2"), 2), b"WAITJOB D-1 D-2 TIMEOUT 2000"),
        (Show("D-1"), b"SHOW D-1 CLUSTER"),
        (Cancel("D-1"), b"CANCELJOB D-1"),
        (KeepValue("q", b"long"), b"ADDJOB q.results long 5000 DELAY 86399 TTL 86400"),
        (CloseBatch("b", None), b"BATCH CLOSE b"),
        (CloseBatch("b", MESSAGE), b"BATCH CLOSE b CALLBACK q body"),
        (BatchState("b"), b"BATCH SHOW b"),
        (BatchEnd("b", 2), b"BATCH WAIT b TIMEOUT 2000"),
    ],
)
def test_an_operation_is_a_command(operation, words):
    assert b" ".join(operation.request().argv) == words
