"""Batches of jobs."""

from __future__ import annotations

import pytest

from disque_py.gateway.http.batches import lines_of
from disque_py.gateway.problems import RefusedError


def test_empty_lines_do_not_count():
    assert lines_of(b"a\n\n \nb", 2) == [b"a", b"b"]


def test_a_batch_without_a_line_is_refused():
    with pytest.raises(RefusedError, match="no line"):
        lines_of(b"\n", 2)


def test_a_batch_with_too_many_lines_is_refused():
    with pytest.raises(RefusedError, match="batch-max-jobs"):
        lines_of(b"a\nb\nc", 2)
