"""Settings from arguments and URLs."""

from __future__ import annotations

import ssl
from dataclasses import fields

import pytest

from disque_py.client import Disque
from disque_py.client.address import Address, parse_url
from disque_py.client.options import ClientOptions, ClientSettings, make_options, settings_of, settings_of_url


def test_without_a_node_the_local_one_is_meant():
    """The port is Disque's default."""
    assert make_options((), {}).seeds == (Address("127.0.0.1", 7711),)


def test_nodes_may_be_text_or_addresses():
    """The nodes keep their order."""
    assert make_options(("h:1", Address("i", 2)), {}).seeds == (Address("h", 1), Address("i", 2))


@pytest.mark.parametrize(
    "settings",
    [{"pool_size": 0}, {"timeout": 0}, {"connect_timeout": -1}, {"connect_timeout": float("inf")}, {"patience": -1}],
)
def test_settings_that_make_no_sense_are_refused(settings):
    """The error comes when the client is created, not at the first failure."""
    with pytest.raises(ValueError, match="must"):
        make_options((), settings)


def test_a_password_is_not_shown():
    """Options appear in logs and tracebacks."""
    assert "secret" not in repr(make_options((), {"password": "secret"}))
    assert "secret" not in repr(parse_url("disque://:secret@h"))


def test_an_unknown_setting_is_a_type_error():
    """It fails like a wrong keyword of any function."""
    with pytest.raises(TypeError):
        make_options((), {"time_out": 1})


@pytest.mark.parametrize("node", [["h"], ("h", 7711), b"h", 7711])
def test_a_node_of_another_type_is_a_type_error_that_says_what_is_accepted(node):
    with pytest.raises(TypeError, match="a node is a text such as 'host:7711', or an Address, not a"):
        Disque(node)


def test_a_url_carries_settings():
    """Numbers and flags are converted."""
    nodes, settings = settings_of_url("disque://:pw@h:1/?timeout=2.5&pool_size=3&discover=no&name=me&decode=utf-8")
    assert nodes == (Address("h", 1),)
    assert settings == {
        "password": "pw", "timeout": 2.5, "pool_size": 3, "discover": False, "name": "me", "decode": "utf-8",
    }  # fmt: skip


@pytest.mark.parametrize("url", ["disque://h/?color=red", "disque://h/?discover=perhaps", "disque://h/?ca=/x"])
def test_options_that_cannot_be_read_are_refused(url):
    """This includes TLS options without TLS, which would give a false sense of safety."""
    with pytest.raises(ValueError, match=r"."):
        settings_of_url(url)


@pytest.mark.parametrize("words", ["ca={none}", "ca={self}", "cert={self}", "cert={self}&key={none}"])
def test_a_file_for_tls_that_cannot_be_used_is_named(words, tmp_path):
    """Python's own errors have no name of a file."""
    query = words.format(none=tmp_path / "nothing", self=__file__)
    with pytest.raises(ValueError, match=rf"^{query.replace('&', ' with ')}: ."):
        settings_of_url(f"disques://h/?{query}")


def test_disques_makes_a_context_that_verifies_unless_told_otherwise():
    """`verify=no` is for tests and self-signed certificates."""
    _, settings = settings_of_url("disques://h")
    assert settings["tls"].verify_mode == ssl.CERT_REQUIRED
    _, settings = settings_of_url("disques://h/?verify=no")
    assert settings["tls"].verify_mode == ssl.CERT_NONE


def test_tls_is_a_context_or_a_word():
    """True means the system's certificate authorities."""
    context = ssl.create_default_context()
    assert make_options((), {"tls": context}).tls_context() is context
    assert make_options((), {"tls": True}).tls_context() is not None
    assert make_options((), {}).tls_context() is None


def test_a_redis_url_names_a_cluster_too():
    """It may have the option names of Redis clients. Database 0 is the only one."""
    url = "redis://user:pw@h:1,i/0?client_name=me&socket_timeout=2&max_connections=3&db=0&decode=utf-8"
    nodes, settings = settings_of_url(url)
    assert nodes == (Address("h", 1), Address("i", 7711))
    assert settings == {
        "username": "user", "password": "pw", "name": "me", "timeout": 2.0, "pool_size": 3, "decode": "utf-8",
    }  # fmt: skip
    with pytest.raises(ValueError, match="Disque has one database, 0"):
        settings_of_url("redis://h?db=1")


def test_a_rediss_url_means_tls():
    """The client verifies certificates unless an option says otherwise."""
    _, settings = settings_of_url("rediss://h")
    assert settings["tls"].verify_mode == ssl.CERT_REQUIRED
    _, settings = settings_of_url("rediss://h?ssl_cert_reqs=none")
    assert settings["tls"].verify_mode == ssl.CERT_NONE


def test_a_misspelt_setting_is_answered_with_the_likely_name():
    """Otherwise a typo in `password` would only show up as a refused login."""
    with pytest.raises(TypeError, match="'pasword' is not a setting of a client; did you mean 'password'"):
        Disque("h", pasword="secret")  # type: ignore[call-arg]


@pytest.mark.parametrize("url", ["disque://ann@h", "redis://secret@h/0"])
def test_a_user_name_needs_a_password(url):
    """Otherwise the client would not log in, and act as the user default."""
    nodes, settings = settings_of_url(url)
    with pytest.raises(ValueError, match=r"username needs a password.*user:password@.*any text"):
        make_options(nodes, settings)
    assert make_options(nodes, settings | {"password": ""}).password == ""


def test_every_setting_can_be_given():
    """The typed dictionary has the same names as the dataclass."""
    assert {setting.name for setting in fields(ClientOptions)} - {"seeds"} == set(ClientSettings.__annotations__)


def test_options_can_be_given_to_another_client():
    options = make_options(("h:1",), {"patience": 3, "password": "x", "retry_unsafe": True})
    assert make_options(options.seeds, settings_of(options)) == options
