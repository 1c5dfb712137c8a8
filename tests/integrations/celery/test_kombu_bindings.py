"""The bindings of exchanges to queues, which all programs share, against a real node."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("kombu", reason="the extra celery is not installed")

from disque_py.integrations.kombu.bindings import LIFE_S, Bindings, Bound, address


@pytest.fixture
def client(shared_node):
    with shared_node.client() as made:
        yield made


def test_another_program_sees_a_binding_with_its_key_and_limit(client):
    Bindings(client).bind("e *1", "a.#", "q1", lives=True, ttl_ms=5000, kind="topic")
    assert Bindings(client).of("e *1") == [Bound("q1", "a.#", 5000)]
    assert Bindings(client).of("e *") == []


def test_a_binding_that_was_removed_is_gone_at_once_here(client):
    here = Bindings(client)
    here.bind("e2", "", "q", lives=False, ttl_ms=None, kind="fanout")
    assert here.of("e2") == [Bound("q", "", None, is_fanout=True)]
    here.unbind("e2", "", "q")
    assert here.of("e2") == []


@pytest.mark.parametrize(("age", "is_kept"), [(1, True), (LIFE_S + 1, False)])
def test_a_binding_whose_program_ended_is_ignored_and_later_removed(client, age, is_kept):
    client.bind(address("e3", ""), "q", where={"until": str(int(time.time()) - age - 1), "ttl": "0"})
    assert Bindings(client).of("e3") == []
    assert bool(client.topics(address("e3", ""))) == is_kept


@pytest.mark.parametrize("until", [b"\xff", "²".encode(), b"-1", b""])
def test_a_binding_of_another_kind_of_program_is_no_error(client, until):
    """Otherwise one such binding would stop all producers of the exchange."""
    client.execute("TOPIC", "BIND", address("e4", ""), "q4", "WHERE", "until", until)
    assert Bindings(client).of("e4") == []
