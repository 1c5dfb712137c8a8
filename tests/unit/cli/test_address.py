"""address.py: places as people write them."""

from __future__ import annotations

import pytest

from disque_py.cli.address import Address, Target, Tls, parse_address, parse_url


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("node:7712", Address("node", 7712)),
        ("node", Address("node", 7711)),
        (":7713", Address("127.0.0.1", 7713)),
        ("[::1]:7712", Address("::1", 7712)),
        ("[::1]", Address("::1", 7711)),
        ("::1:7712", Address("::1", 7712)),
        ("10.0.0.1:7711@9000", Address("10.0.0.1", 7711, bus_port=9000)),
        ("/run/disque.sock", Address(path="/run/disque.sock")),
        ("unix:///run/disque.sock", Address(path="/run/disque.sock")),
    ],
)
def test_an_address_is_read(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":", "node:x", "node:0", "node:65536", "[::1:7711", "a:1@b"])
def test_a_text_that_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="is no"):
        parse_address(text)


def test_ipv6_is_written_in_brackets():
    assert str(Address("::1", 7711)) == "[::1]:7711"


def test_the_prompt_names_a_socket_by_its_path():
    assert Address(path="/run/d.sock").prompt == "disque /run/d.sock"


def test_a_url_names_user_password_and_tls():
    target = parse_url("disques://ann:p%40ss@node:7712")
    assert target == Target(Address("node", 7712), user="ann", password="p@ss", tls=Tls())


def test_a_password_in_a_url_may_hold_anything():
    """The client library reads the same URLs."""
    assert parse_url("disque://:a#b/c?d@e@node:7712") == Target(Address("node", 7712), password="a#b/c?d@e")


@pytest.mark.parametrize("text", ["disque://:secret@node:99999", "disque://:secret@node/3", "redis://:secret@node"])
def test_a_url_that_is_wrong_is_refused_without_its_password(text):
    with pytest.raises(ValueError, match=r"URL|port") as caught:
        parse_url(text)
    assert "secret" not in str(caught.value)


def test_a_url_needs_no_more_than_its_scheme():
    assert parse_url("disque://") == Target()


@pytest.mark.parametrize("text", ["redis://node", "disque://node/3", "disque://node:x", "node:7711"])
def test_other_urls_are_refused(text):
    with pytest.raises(ValueError, match=r"URL|port|more than"):
        parse_url(text)
