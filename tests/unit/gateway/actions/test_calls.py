"""Pages of lists, lists that the gateway refuses to build, and jobs that go back."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("msgspec", reason="the extra disque-py[gateway] is not installed")

from disque_py.client import Address, commands
from disque_py.client.errors import AuthError, NotConnectedError
from disque_py.gateway.actions.calls import Call, asked, check_known, page_of
from disque_py.gateway.logins.grants import Principal, grant_of
from disque_py.gateway.problems import RefusedError


def test_a_page_begins_at_its_cursor():
    assert page_of({}, 50) == (0, 50)
    assert page_of({"cursor": "100", "limit": 7}, 50) == (100, 7)


@pytest.mark.parametrize("cursor", ["-1", "x", "1" * 13, "\u0661"])
def test_a_cursor_that_no_page_gave_is_refused(cursor):
    with pytest.raises(RefusedError, match="cursor"):
        page_of({"cursor": cursor}, 50)


@pytest.mark.parametrize(("grants", "asks_broker"), [((), True), ((), False), ((grant_of("produce"),), False)])
def test_a_list_needs_known_rights_with_read(grants, asks_broker):
    with pytest.raises(RefusedError) as refused:
        check_known(Principal("someone", grants, None, asks_broker))
    assert refused.value.code == "NOPERM"


def test_a_reader_may_have_lists():
    check_known(Principal("someone", (grant_of("read:a*"),), None))


def test_jobs_whose_node_is_gone_as_well_as_their_caller_are_left_to_their_leases():
    calls = []

    async def put_back():
        calls.append(True)
        raise NotConnectedError("gone")

    asyncio.run(Call(Principal("someone", (), None), {}, None, None, put_back=put_back).give_back())
    assert calls == [True]


def test_a_node_that_refuses_the_login_of_the_gateway_counts_as_one_that_is_away():
    class Client:
        async def run(self, request):
            raise AuthError("WRONGPASS no")

    call = Call(Principal("someone", (), Client()), {}, None, None)
    assert asyncio.run(asked(call, commands.ping(), Address("127.0.0.1", 7711))) is None
