"""Errors as types, by code and by possible effects."""

from __future__ import annotations

import pytest

from disque_py.client import errors
from disque_py.client.errors import from_reply


@pytest.mark.parametrize(("code", "kind"), errors.BY_CODE.items())
def test_every_code_has_its_type(code, kind):
    """The first word of the reply decides. The error keeps the whole text."""
    error = from_reply(f"{code} why it is so")
    assert type(error) is kind
    assert (error.code, error.text) == (code, f"{code} why it is so")


def test_other_codes_are_reply_errors_and_keep_their_code():
    """Programs can match codes of later servers without a new library."""
    error = from_reply("QUOTA the tenant has used it up")
    assert type(error) is errors.ReplyError
    assert error.code == "QUOTA"


@pytest.mark.parametrize("text", ["ERR invalid password", "ERR Client sent AUTH, but no password is set"])
def test_errors_of_auth_are_auth_errors(text):
    """A refused AUTH has the general code (spec R7)."""
    assert isinstance(from_reply(text), errors.AuthError)


def test_a_missing_password_comes_with_the_way_to_give_one():
    """As a note, which tracebacks show."""
    assert from_reply("NOAUTH log in").__notes__ == ["Put the password into the URL, or pass password="]
    assert not hasattr(from_reply("WRONGPASS why"), "__notes__")


def test_connection_errors_are_builtin_connection_errors_too():
    """Code that knows only network errors catches them."""
    assert issubclass(errors.NotConnectedError, ConnectionError)
    assert issubclass(errors.ReplyTimeoutError, TimeoutError)


def test_a_batch_error_has_every_result_and_the_first_failure():
    """The results of successful commands are not lost."""
    failure = from_reply("PAUSED Queue paused in input, try later")
    error = errors.BatchError(["id", failure])
    assert (error.results, error.first) == (["id", failure], failure)
    assert "1 of 2" in str(error)


def test_limits_of_a_queue_have_errors_of_their_own():
    assert isinstance(from_reply("TOOBIG Body is longer than the queue's maxsize"), errors.TooBigError)
    assert isinstance(from_reply("NOKEY The queue requires META 'tenant'"), errors.NoKeyError)


def test_a_topic_and_a_batch_have_errors_of_their_own():
    assert isinstance(from_reply("NOROUTE No queue bound to the topic takes this job"), errors.NoRouteError)
    assert isinstance(from_reply("CLOSED The batch is closed"), errors.BatchClosedError)
