"""address.py: addresses as people write them."""

from __future__ import annotations

import pytest

from disque_py.cli.address import Place, Target, Tls, parse_place, parse_target, prompt_of
from disque_py.client import Address


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("node:7712", Place(Address("node", 7712))),
        ("node", Place(Address("node", 7711))),
        (":7713", Place(Address("127.0.0.1", 7713))),
        ("[::1]:7712", Place(Address("::1", 7712))),
        ("[::1]", Place(Address("::1", 7711))),
        ("::1:7712", Place(Address("::1", 7712))),
        ("10.0.0.1:7711@9000", Place(Address("10.0.0.1", 7711), 9000)),
        ("/run/d@q.sock", Place(Address(path="/run/d@q.sock"))),
        ("unix:///run/disque.sock", Place(Address(path="/run/disque.sock"))),
    ],
)
def test_a_place_is_read(text, place):
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", ":", "@1", "node:x", "node:0", "node:65536", "[::1:7711", "a:1@b", "unix:"])
def test_a_text_that_is_not_an_address_is_refused(text):
    with pytest.raises(ValueError, match=r"port|host|address|path"):
        parse_place(text)


def test_the_prompt_names_a_socket_by_its_path():
    assert prompt_of(Address(path="/run/d.sock")) == "disque /run/d.sock"
    assert prompt_of(Address("::1", 7711)) == "[::1]:7711"


def test_a_url_names_user_password_and_tls():
    target = parse_target("disques://ann:p%40ss@node:7712?ca=a.crt&verify=no")
    assert target == Target(Address("node", 7712), user="ann", password="p@ss", tls=Tls("a.crt", is_insecure=True))


def test_a_password_in_a_url_may_hold_anything():
    assert parse_target("disque://:a#b/c?d@e@node:7712") == Target(Address("node", 7712), password="a#b/c?d@e")


def test_the_address_of_a_cluster_is_its_first_node():
    assert parse_target("disque://a:1,b:2").address == Address("a", 1)


def test_urls_of_redis_clients_are_understood():
    """The library reads them, too."""
    assert parse_target("redis://:pw@node/0") == Target(Address("node", 7711), password="pw")


@pytest.mark.parametrize("text", ["disque://:secret@node:99999", "disque://:secret@node/3", "http://:secret@node"])
def test_a_url_that_is_wrong_is_refused_without_its_password(text):
    with pytest.raises(ValueError, match=r"URL|port|path") as caught:
        parse_target(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["disque://a,b:x", "disque://node/3", "disque://node:x", "node:7711", "disque://n?pool_size=2"]
)
def test_other_urls_are_refused(text):
    with pytest.raises(ValueError, match=r"URL|port|path"):
        parse_target(text)


@pytest.mark.parametrize("url", ["disque://", "disque://:7711", "disque://ann:pw@", "disque://ann:pw@:7711"])
def test_a_url_without_a_host_is_this_machine(url):
    assert parse_target(url).address == Address("127.0.0.1", 7711)
