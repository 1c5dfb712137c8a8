"""The rules for repeating a command."""

from __future__ import annotations

from random import Random

import pytest

from disque_py.client.errors import (
    ClientClosedError,
    ConnectionLostError,
    NotConnectedError,
    ProtocolError,
    ReplyTimeoutError,
    from_reply,
)
from disque_py.client.request import Repeat
from disque_py.client.retry import PAUSE_S_MAX, Patience, is_refused_for_now, may_repeat, means_elsewhere, refuses_login

SENT = ConnectionLostError("gone", sent=True)
UNSENT = ConnectionLostError("gone", sent=False)


@pytest.mark.parametrize("repeat", list(Repeat))
def test_an_unsent_command_may_always_be_repeated(repeat):
    """An unsent command was not executed."""
    assert may_repeat(UNSENT, repeat, retry_unsafe=False)
    assert may_repeat(NotConnectedError("no node"), repeat, retry_unsafe=False)


@pytest.mark.parametrize("error", [SENT, ReplyTimeoutError("silent", sent=True), ProtocolError("no RESP")])
def test_a_sent_command_is_repeated_if_that_does_no_harm(error):
    """Other commands are repeated if the client allows it."""
    assert may_repeat(error, Repeat.SAFE, retry_unsafe=False)
    assert not may_repeat(error, Repeat.ASK, retry_unsafe=False)
    assert may_repeat(error, Repeat.ASK, retry_unsafe=True)
    assert not may_repeat(error, Repeat.NEVER, retry_unsafe=True)


def test_a_client_that_is_closed_is_not_worth_a_second_try():
    """The same failure would occur again."""
    assert not may_repeat(ClientClosedError("closed"), Repeat.SAFE, retry_unsafe=True)


def test_refusals_of_leaving_or_loading_nodes_mean_another_node():
    """Such a node has done nothing. Other refusals would be the same at any node."""
    assert means_elsewhere(from_reply("LEAVING This node"))
    assert means_elsewhere(from_reply("LOADING Disque is loading"))
    assert not means_elsewhere(from_reply("PAUSED Queue paused"))
    assert not means_elsewhere(b"OK")


def test_a_refused_login_is_no_other_refusal():
    assert refuses_login(from_reply("WRONGPASS no"))
    assert not refuses_login(from_reply("LOADING wait"))


def test_a_command_that_needs_a_login_may_be_sent_elsewhere():
    """The node requires a password since then. A wrong AUTH of the program itself is no such command."""
    assert is_refused_for_now(from_reply("NOAUTH Authentication required."), awaits_nodes=False)
    assert not is_refused_for_now(from_reply("WRONGPASS no"), awaits_nodes=False)


def test_patience_is_counted_from_the_first_failure():
    """It does not run from the start of the command, which may have waited for hours before."""
    patience = Patience(10.0, Random(1))
    assert not patience.is_over(1_000.0)
    assert not patience.is_over(1_009.0)
    assert patience.is_over(1_010.0)
    patience.renew()
    assert not patience.is_over(1_011.0)


def test_a_patience_of_zero_means_one_attempt():
    """This is for callers that repeat commands themselves."""
    assert Patience(0.0, Random(1)).is_over(5.0)


def test_pauses_double_up_to_a_limit():
    """Jitter shortens a pause by half at most."""
    patience = Patience(10.0, Random(1))
    pauses = [patience.pause_s() for _ in range(20)]
    assert pauses[0] <= 0.02
    assert PAUSE_S_MAX / 2 <= pauses[-1] <= PAUSE_S_MAX


def test_a_claim_without_a_majority_is_repeated_unless_there_are_no_voters():
    """Another node may reach more voters. If none are configured, an operator has to name them."""
    lacking = from_reply("NOQUORUM no majority of the voters answered")
    assert is_refused_for_now(lacking, awaits_nodes=False, awaits_voters=True)
    assert not is_refused_for_now(lacking, awaits_nodes=False)
    unset = from_reply("NOQUORUM no voters configured")
    assert not is_refused_for_now(unset, awaits_nodes=False, awaits_voters=True)
