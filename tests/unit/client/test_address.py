"""Addresses and cluster URLs as people write them."""

from __future__ import annotations

import pytest

from disque_py.client import Disque
from disque_py.client.address import Address, parse_address, parse_url


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("10.0.0.1:7712", Address("10.0.0.1", 7712)),
        ("localhost", Address("localhost", 7711)),
        ("[::1]:7712", Address("::1", 7712)),
        ("[::1]", Address("::1", 7711)),
        ("fe80::1", Address("fe80::1", 7711)),
        ("unix:/run/disque.sock", Address(path="/run/disque.sock")),
        ("unix:///run/disque.sock", Address(path="/run/disque.sock")),
        ("/run/disque.sock", Address(path="/run/disque.sock")),
    ],
)
def test_an_address_is_read_as_it_is_written(words, address):
    """Disque's port is the default."""
    assert parse_address(words) == address


@pytest.mark.parametrize("words", ["h", "[::1]", "::1", "h:9"])
def test_a_program_that_listens_has_its_own_default_port(words):
    assert parse_address(words, 9711).port == (9 if words == "h:9" else 9711)


@pytest.mark.parametrize("words", ["", ":7711", "a:0", "a:65536", "a:x", "[::1", "[::1]7711", "unix:", "a:+1"])
def test_a_text_that_is_not_an_address_is_refused(words):
    """Otherwise the mistake would only show up as an unreachable node."""
    with pytest.raises(ValueError, match=r"."):
        parse_address(words)


def test_an_address_is_written_so_that_it_can_be_read():
    """An IPv6 address gets brackets, and a path gets the prefix unix:."""
    for address in (Address("h", 1), Address("::1", 2), Address(path="/s")):
        assert parse_address(str(address)) == address


def test_a_url_names_nodes_password_and_options():
    """Commas separate nodes, and the password may contain escapes."""
    url = parse_url("disque://:p%40ss@h1:7711,[::1]:7712/?timeout=2&name=me")
    assert url.nodes == (Address("h1", 7711), Address("::1", 7712))
    assert (url.username, url.password, url.tls) == (None, "p@ss", False)
    assert url.options == {"timeout": "2", "name": "me"}


def test_disques_means_tls_and_a_user_may_be_named():
    """The scheme disques relates to disque as rediss to redis."""
    url = parse_url("disques://ann:secret@h")
    assert (url.tls, url.username, url.password, url.nodes) == (True, "ann", "secret", (Address("h", 7711),))


def test_a_unix_url_is_one_socket():
    """Everything before the question mark is its path."""
    assert parse_url("unix:///run/d.sock?name=x").nodes == (Address(path="/run/d.sock"),)


@pytest.mark.parametrize("url", ["amqp://h", "redis://h/1", "h:7711", "disque://", "disque://h/0", "disque://,"])
def test_a_url_that_names_no_cluster_is_refused(url):
    """In Redis the path would be a database number. Here it is a mistake."""
    with pytest.raises(ValueError, match=r"."):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "disque://:secret?secret@h:7711",
        "disque://ann:7711?secret@h",
        "disque://ann:7711?timeout=secret@h",
        "disque://ann:a@secret?secret@h",
        "disque://ann:secret%40h",
        "disque://ann:7711/secret",
        "disque://h1,:secret",
        "disque://ann:/secret",
        "disque:ann:secret@h",
        "ann:secret@h://",
        ":secret@h:7711",
    ],
)
def test_no_part_of_a_password_is_in_an_error(url):
    """Errors appear in logs. The error's cause does not contain the password either."""
    with pytest.raises(ValueError, match=r"URL") as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_question_mark_in_a_password_is_escaped():
    """The error explains how to escape it."""
    assert parse_url("disque://:pa%3Fss@h?name=a%40b").password == "pa?ss"
    with pytest.raises(ValueError, match=r"URL.*%3F.*%40"):
        parse_url("disque://:pa?ss@h")


def test_a_url_in_the_place_of_an_address_is_refused_without_its_password():
    with pytest.raises(ValueError, match="from_url") as caught:
        Disque("disque://:hidden@127.0.0.1:7711")
    assert "hidden" not in str(caught.value)
