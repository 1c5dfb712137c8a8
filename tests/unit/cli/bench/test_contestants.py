"""disque_py/cli/bench/contestants.py: the choice of contestants on the command line."""

from __future__ import annotations

import sys

import pytest

from disque_py.cli.bench import contestants
from disque_py.cli.bench.contestants import ChoiceError, chosen, floor, from_address, from_command, ours


def test_a_command_gets_its_port_and_directory():
    found = from_command(f"old={sys.executable} -m x --port {{port}} --dir {{dir}}", 1)
    assert found.name == "old"
    assert found.words(7711, "/tmp/x") == [sys.executable, "-m", "x", "--port", "7711", "--dir", "/tmp/x"]


def test_a_command_without_a_name_is_numbered():
    assert from_command(f"{sys.executable} {{port}}", 2).name == "server-2"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python3 x", "needs {port}"),
        ("no-such-program {port}", "not installed"),
        ("python3 '{port}", "is not a command line"),
    ],
)
def test_a_command_that_cannot_start_is_refused(text, words):
    with pytest.raises(ChoiceError, match=f"^SERVER .*{words}"):
        from_command(text, 1)


@pytest.mark.parametrize(
    ("text", "name"), [("7711", "disque:7711"), ("127.0.0.1:7711", "disque:7711"), ("redis-list=:1", "redis-list:1")]
)
def test_an_address_has_a_protocol(text, name):
    found = from_address(text)
    assert (found.name, found.is_started) == (name, False)


@pytest.mark.parametrize(
    ("text", "words"), [("10.0.0.1:7711", "not this machine"), ("x=1", "is not a protocol"), ("localhost:x", "no port")]
)
def test_an_invalid_or_remote_address_is_refused(text, words):
    with pytest.raises(ChoiceError, match=f"^CONNECT .*{words}"):
        from_address(text)


def test_contestants_are_chosen_by_name():
    both = [ours(1), floor()]
    assert chosen(both, [], []) == both
    assert [one.name for one in chosen(both, ["floor"], [])] == ["floor"]
    assert [one.name for one in chosen(both, [], ["floor"])] == ["disque-py"]


@pytest.mark.parametrize(
    ("names", "words"), [(["x"], "no contestant 'x' here; the contestants are floor"), ([], "used twice")]
)
def test_a_choice_that_is_not_clear_is_refused(names, words):
    with pytest.raises(ChoiceError, match=words):
        chosen([floor()] if names else [floor(), floor()], names, [])


def test_programs_that_are_not_installed_are_reported(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert contestants.others() == ([], ["redis-server", "beanstalkd"])
