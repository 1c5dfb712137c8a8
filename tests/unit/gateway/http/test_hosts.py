"""Host headers."""

from __future__ import annotations

import pytest

from disque_py.gateway.http.hosts import Hosts, name_of


@pytest.mark.parametrize(
    "header", ["127.0.0.1:8711", "localhost", "LOCALHOST:1", "[::1]:8711", "10.0.0.5", "mq.example.org.:80"]
)
def test_our_own_names_are_admitted(header):
    assert Hosts("10.0.0.5", ["mq.example.org"]).admits(header)


@pytest.mark.parametrize("header", ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil"])
def test_other_names_are_not(header):
    assert not Hosts("10.0.0.5", ["mq.example.org"]).admits(header)


def test_a_star_admits_any():
    assert Hosts("10.0.0.5", ["*"]).admits("anything")


def test_a_port_is_no_part_of_the_name():
    assert [name_of("[::1]:80"), name_of("[::1]"), name_of("a:80")] == ["[::1]", "[::1]", "a"]
