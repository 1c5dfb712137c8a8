"""The context of a run."""

from __future__ import annotations

import pytest

from disque_py.tasks import Context, current
from disque_py.tasks.context import running


def test_a_function_that_is_called_directly_has_a_context_that_reports_to_no_broker():
    current().progress(40, "page 4")
    assert (current().job_id, current().is_canceled) == ("", False)


def test_a_run_has_its_own_context():
    told = []
    context = Context("add", "D-1", tell=lambda *words: told.append(words), asks_canceled=lambda: True)
    with running(context):
        current().progress(40, "page 4")
        assert current() is context
        assert current().is_canceled
    assert told == [(40, "page 4")]
    assert current().job_id == ""


def test_wrong_progress_is_an_error_outside_a_worker_too():
    """A test of the function finds it. A worker's node would refuse it."""
    with pytest.raises(ValueError, match="from 0 to 100"):
        current().progress(101)
