"""Errors of the broker and of the client library, which the gateway turns into refusals."""

from __future__ import annotations

import pytest

from disque_py.client import ConnectionLostError, NotConnectedError
from disque_py.client.errors import BY_CODE as CLIENT_CODES
from disque_py.client.errors import from_reply
from disque_py.gateway.problems import BY_CODE, TABLE, RefusedError, refusal_of


@pytest.mark.parametrize("code", sorted(CLIENT_CODES))
def test_every_error_of_the_client_library_has_a_row(code):
    assert refusal_of(from_reply(f"{code} some reason")).code == code


@pytest.mark.parametrize(
    ("reply", "http"),
    [
        ("BADID Invalid Job ID format.", 400),
        ("ERR syntax error", 400),
        ("ERR unknown command 'X'", 501),
        ("ERR invalid password", 401),
        ("NOPERM no", 403),
        ("NOJOB unknown", 404),
        ("PAUSED Queue paused", 409),
        ("STALE later", 409),
        ("MAXLEN full", 429),
        ("TOOBIG long", 413),
        ("OOM full", 507),
        ("NOREPL few", 503),
        ("SOMETHING new", 400),
    ],
)
def test_the_first_word_of_an_error_gives_the_status(reply, http):
    assert refusal_of(from_reply(reply)).row.http == http


def test_a_code_of_the_gateway_cannot_come_from_a_broker():
    """If a broker's error has the code FAULT, that is not an error of the gateway."""
    assert refusal_of(from_reply("FAULT of the node")).code == "ERR"


def test_a_lost_answer_is_unknown_and_says_so():
    refused = refusal_of(ConnectionLostError("gone", sent=True))
    assert (refused.row.http, refused.problem()["unknown"]) == (502, True)


def test_a_command_that_was_never_sent_may_be_repeated():
    assert refusal_of(ConnectionLostError("gone", sent=False)).code == "NONODE"
    assert refusal_of(NotConnectedError("none")).retry_after


def test_a_cluster_without_voters_says_how_to_choose_them():
    """To retry would not help, so the answer does not ask for it."""
    refused = refusal_of(from_reply("NOQUORUM no voters configured"))
    problem = refused.problem()
    assert (problem["status"], problem["code"], problem["title"]) == (503, "NOQUORUM", "the cluster has no voters")
    assert "CLUSTER VOTERS INIT" in problem["detail"]
    assert not refused.retry_after
    assert refusal_of(from_reply("NOQUORUM no majority of the voters answers")).retry_after


def test_an_unexpected_error_shows_no_details():
    assert "secret" not in refusal_of(RuntimeError("secret")).text


def test_a_problem_has_the_fields_of_the_standard_and_the_code():
    problem = RefusedError("PAUSED", "later").problem()
    assert {"type", "title", "status", "detail", "code"} <= problem.keys()
    assert (problem["status"], problem["code"], problem["detail"]) == (409, "PAUSED", "later")


def test_no_code_has_two_rows():
    assert sum(len(row.codes) for row in TABLE) == len(BY_CODE)
