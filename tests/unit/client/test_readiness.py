"""Waiting until a socket can be read or written."""

from __future__ import annotations

import socket

import pytest

from disque_py.client.readiness import PollReadiness, SelectReadiness


@pytest.fixture(params=[PollReadiness, SelectReadiness])
def kind(request):
    """Both implementations of the wait."""
    return request.param


@pytest.fixture
def pair():
    """Two connected sockets."""
    near, far = socket.socketpair()
    near.setblocking(False)
    yield near, far
    near.close()
    far.close()


def test_bytes_end_the_wait(kind, pair):
    near, far = pair
    readiness = kind(near)
    assert not readiness.wait(0, wants_room=False)
    assert not readiness.has_bytes()
    far.send(b"x")
    assert readiness.wait(None, wants_room=False)
    assert readiness.has_bytes()
    readiness.close()


def test_room_ends_the_wait_only_where_it_is_wanted(kind, pair):
    readiness = kind(pair[0])
    assert readiness.wait(5, wants_room=True)
    assert not readiness.wait(0.01, wants_room=False)


def test_the_end_of_a_connection_ends_the_wait(kind, pair):
    near, far = pair
    readiness = kind(near)
    far.close()
    assert readiness.wait(5, wants_room=False)
    assert readiness.has_bytes()
    near.close()
    readiness.close()
