"""The bookkeeping of the rolling upgrade, and its refusal to begin. `make upgrade` runs it with real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from rolling_upgrade import CANNOT_BEGIN, Book, BrokenRuleError, main


@pytest.fixture
def book():
    """A book with one promised job."""
    book = Book()
    book.note_added(b"j")
    return book


def test_a_promised_job_is_owed_until_its_ack_is_answered(book):
    book.note_got(b"j", 1.0)
    assert book.owed() == {b"j"}
    book.note_acked([b"j"], 2.0)
    assert book.owed() == set()


def test_a_job_that_was_not_promised_is_not_owed(book):
    book.note_added(b"async", is_promised=False)
    book.note_added(b"once", is_once=True)
    assert book.owed() == {b"j"}


def test_a_delivery_is_late_if_it_was_asked_for_after_the_ack(book):
    """A request that was sent before may be answered by another node before that one hears of the ack."""
    book.note_acked([b"j"], 2.0)
    book.note_got(b"j", 1.9)
    book.check()
    book.note_got(b"j", 2.1)
    with pytest.raises(BrokenRuleError, match="1 jobs were delivered after the answer to ACKJOB, such as j"):
        book.check()


def test_an_at_most_once_job_may_be_delivered_once(book):
    book.note_added(b"once", is_once=True)
    assert book.note_got(b"once", 1.0) == 1
    book.check()
    book.note_got(b"once", 1.0)
    with pytest.raises(BrokenRuleError, match="delivered twice"):
        book.check()


def test_a_revision_that_git_does_not_have_is_reported(capsys):
    assert main(["--revision", "no-such-revision"]) == CANNOT_BEGIN
    assert "git has no revision no-such-revision" in capsys.readouterr().err
