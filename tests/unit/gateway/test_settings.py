"""The settings of the gateway."""

from __future__ import annotations

import pytest

from disque_py.gateway.settings import TABLE, Settings, is_loopback, parse_file, read_settings


def test_without_arguments_every_setting_has_its_default():
    found = Settings({})
    assert (str(found.listen), found.body_max, found.has_logins) == ("127.0.0.1:8711", 1 << 20, False)


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path):
    path = tmp_path / "gateway.conf"
    path.write_text("body-max 1 # bytes\nrate 1\nstreams-max 1\n")
    found = read_settings(str(path), {"body-max": "3"}, {"DISQUE_GATEWAY_BODY_MAX": "2", "DISQUE_GATEWAY_RATE": "2"})
    assert (found.body_max, found.rate, found.streams_max) == (3, 2, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_an_address_without_a_port_has_the_gateways_port(host):
    """Not the port of a node: the gateway would then connect to itself."""
    found = Settings({"listen": host, "grpc-listen": host})
    assert found.grpc_listen is not None
    assert (str(found.listen), str(found.grpc_listen)) == (f"{host}:8711", f"{host}:8712")


@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_every_default_can_be_read(setting):
    assert getattr(Settings({setting.name: setting.default}), setting.field) == setting.read(setting.default)


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ({"bodymax": "1"}, "no setting"),
        ({"body-max": "-1"}, "whole number"),
        ({"body-max": "0"}, "from 1"),
        ({"console": "maybe"}, "yes or no"),
        ({"listen": "0.0.0.0:1"}, "loopback"),
        ({"listen": ""}, "empty"),
        ({"listen": "unix:/x"}, "socket"),
        ({"grpc-listen": "[::]:1"}, "loopback"),
        ({"listen": "127.0.0.1:1", "grpc-listen": "localhost:1"}, "grpc-listen .* is the address of listen"),
        ({"base-path": "x"}, "as /disque"),
        ({"tls-key": "k"}, "tls-cert"),
    ],
)
def test_a_mistake_is_named(texts, complaint):
    with pytest.raises(ValueError, match=complaint):
        Settings(texts)


@pytest.mark.parametrize("text", ["eu=disque://u:secret@h us", "EU=disque://u:secret@h", "disque://u:secret@h"])
def test_a_mistake_in_clusters_shows_no_password(text):
    with pytest.raises(ValueError, match="clusters") as caught:
        Settings({"clusters": text})
    assert "secret" not in str(caught.value)


def test_with_logins_any_address_may_be_served():
    assert Settings({"listen": "0.0.0.0:1", "grpc-listen": "", "broker-users": "yes"}).grpc_listen is None


def test_an_error_in_a_file_names_the_file(tmp_path):
    (tmp_path / "gateway.conf").write_text("\nrat 1")
    with pytest.raises(ValueError, match=r"gateway.conf: line 2: there is no setting 'rat'"):
        read_settings(str(tmp_path / "gateway.conf"), {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rate 1 2", "one value"),
        ("rat 1", "no setting"),
        ("rate 1\nrate 2", "line 2.*before"),
        ('rate "1', "quotation"),
    ],
)
def test_a_wrong_line_is_named(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_file(text)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("audit-log a#b", "a#b"),
        ("audit-log a#b # where", "a#b"),
        ("audit-log '# a' #", "# a"),
        ('audit-log "a # b"#c # d', "a # b#c"),
        ("audit-log a\\ #b", "a #b"),
        ("audit-log #a", ""),
    ],
)
def test_a_comment_begins_at_the_start_of_a_word(line, value):
    assert parse_file(f"# first\n{line}\n  # last") == {"audit-log": value}


def test_loopback_is_a_machines_own():
    assert [is_loopback(host) for host in ("127.0.0.9", "::1", "localhost", "10.0.0.1", "0.0.0.0", "name")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_clusters_are_lines_of_a_file_or_one_text():
    text = "cluster eu disque://a:1,b:2\ncluster us disque://c:3\n"
    assert Settings(parse_file(text)).clusters == {"eu": "disque://a:1,b:2", "us": "disque://c:3"}
    assert Settings({"clusters": "eu=disque://a:1"}).clusters == {"eu": "disque://a:1"}


@pytest.mark.parametrize("text", ["eu", "eu=", "=x", "EU=x", "eu=x eu=y", "main=x"])
def test_names_of_clusters_are_simple_and_differ(text):
    with pytest.raises(ValueError, match="clusters"):
        Settings({"clusters": text})
