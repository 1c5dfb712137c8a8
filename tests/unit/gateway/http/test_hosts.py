"""Host headers."""

from __future__ import annotations

import pytest

from disque_py.gateway.http.hosts import Hosts, name_of


@pytest.mark.parametrize(
    "header", ["127.0.0.1:8711", "localhost", "LOCALHOST:1", "[::1]:8711", "10.0.0.5", "mq.example.org.:80"]
)
def test_the_host_names_of_the_gateway_are_accepted(header):
    assert Hosts("10.0.0.5", ["mq.example.org"]).admits(header)


# The console makes the address for its issuer from Host.
MALFORMED = ["localhost:80@evil.example", "[::1]evil.example", "[::1]:x", "localhost:80:80"]


@pytest.mark.parametrize("header", ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil", *MALFORMED])
def test_other_host_names_are_refused(header):
    assert not Hosts("10.0.0.5", ["mq.example.org"]).admits(header)


def test_a_star_accepts_any_host():
    assert Hosts("10.0.0.5", ["*"]).admits("anything")


def test_the_port_is_not_part_of_the_host_name():
    assert [name_of("[::1]:80"), name_of("[::1]"), name_of("a:80")] == ["[::1]", "[::1]", "a"]
