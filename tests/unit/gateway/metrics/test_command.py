"""gateway/metrics/command.py: the command line of disque-exporter."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from disque_py.client import Address
from disque_py.gateway.metrics.command import connection_of, main

WORDS = {
    "node": (),
    "url": "",
    "password": "",
    "user": "",
    "tls": False,
    "cacert": "",
    "cert": "",
    "key": "",
    "insecure": False,
    "timeout": 1.0,
}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--node", "a:x"], "not a port"),
        (["--listen", "/tmp/socket"], "not a socket"),
        (["--url", "http://a"], "--url: "),
        (["--key", "k", "--tls"], "--key needs --cert"),
        (["--cacert", "c"], "need --tls"),
        (["--tls", "--cacert", "/no/such/file"], "--cacert /no/such/file can't be used: No such file or directory"),
        (["--tls", "--cert", "/no/such/file"], "--cert /no/such/file can't be used: No such file or directory"),
        (["--timeout", "0"], "0.05<=x<=60"),
        (["--metrics-max-queues", "-1"], "0<=x<=100000"),
    ],
)
def test_a_wrong_option_is_a_usage_error(words, message):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert message in result.output


def test_a_port_that_is_taken_is_one_line():
    pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")
    result = CliRunner().invoke(main, ["--listen", "203.0.113.1:1"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: can't listen on 203.0.113.1:1: ")


def test_a_variable_that_names_no_option_is_reported():
    pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")
    variables = {"DISQUE_EXPORTER_LISTEN": "203.0.113.1:1", "DISQUE_EXPORTER_NODES": "a"}
    first, second = CliRunner().invoke(main, [], env=variables).output.splitlines()
    assert first == (
        "disque-exporter: the environment variable DISQUE_EXPORTER_NODES names no setting and is ignored;"
        " did you mean DISQUE_EXPORTER_NODE?"
    )
    assert second.startswith("Error: can't listen on 203.0.113.1:1: ")


@pytest.mark.parametrize("host", ["203.0.113.1", "[2001:db8::1]"])
def test_without_a_port_the_exporter_has_its_own(host):
    """Port 7711 is that of nodes."""
    pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")
    assert f"can't listen on {host}:9711: " in CliRunner().invoke(main, ["--listen", host]).output


def test_nodes_come_from_options_and_the_url():
    words = {**WORDS, "node": (Address("a", 1),), "url": "disque://eve:secret@b:2,c"}
    named, options = connection_of(words)
    assert named == (Address("a", 1), Address("b", 2), Address("c", 7711))
    assert (options.username, options.password, options.tls) == ("eve", "secret", False)


def test_the_default_is_the_node_of_this_machine():
    assert connection_of(WORDS)[0] == (Address("127.0.0.1", 7711),)


def test_options_win_over_the_url():
    words = {**WORDS, "url": "disque://eve:secret@b", "user": "adam", "password": "other"}
    _, options = connection_of(words)
    assert (options.username, options.password) == ("adam", "other")


def test_a_url_with_the_tls_scheme_means_tls():
    assert connection_of({**WORDS, "url": "disques://b"})[1].tls_context() is not None
    context = connection_of({**WORDS, "tls": True, "insecure": True})[1].tls_context()
    assert context is not None
    assert not context.check_hostname


def test_help_keeps_passwords_out_of_sight():
    output = CliRunner().invoke(main, ["--help"], env={"DISQUECLI_AUTH": "secret"}).output
    assert "DISQUECLI_AUTH" in output
    assert "secret" not in output


def test_each_option_can_be_a_variable_of_its_name(monkeypatch):
    monkeypatch.setenv("DISQUE_EXPORTER_NODE", "a:1 b:2")
    monkeypatch.setenv("DISQUE_EXPORTER_METRICS_MAX_QUEUES", "7")
    monkeypatch.setenv("DISQUE_EXPORTER_NOT_QUEUE", "tmp-*")
    monkeypatch.setenv("DISQUECLI_AUTH", "secret")
    words = main.make_context("disque-exporter", []).params
    assert words["node"] == (Address("a", 1), Address("b", 2))
    assert (words["metrics_max_queues"], words["not_queue"], words["password"]) == (7, ("tmp-*",), "secret")
