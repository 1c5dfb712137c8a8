"""access.py: errors with the next step, and completion of names with TAB."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from disque_py.cli.address import Tls
from disque_py.cli.admin.access import ADVICE, OPTION_DEFAULTS, advised, complete_queue, target_of
from disque_py.cli.admin.main import main
from disque_py.client.errors import from_reply
from scripted_queues import answers


@pytest.mark.parametrize("start", [start for start, _ in ADVICE])
def test_an_error_says_what_to_do_next(start):
    assert advised(from_reply(f"{start} text")).splitlines()[1].endswith(".")


def test_an_error_without_advice_is_shown_unchanged():
    assert advised(from_reply("ERR odd")) == "ERR odd"


def test_an_unreachable_node_is_one_error():
    result = CliRunner().invoke(main, ["-p", "1", "queue", "list"])
    assert result.exit_code == 1
    assert "Connection refused\nName a node with -h and -p" in result.output


def test_advice_about_the_node_does_not_follow_an_error_about_a_file():
    result = CliRunner().invoke(main, ["--tls", "--cacert", "/nonexistent", "queue", "list"])
    assert (result.exit_code, "Can't use --cacert /nonexistent: No such file" in result.output) == (1, True)
    assert "Name a node" not in result.output


def test_a_wrong_password_is_not_reported_as_a_missing_one(scripted):
    node = scripted({"HELLO": b"-NOAUTH Authentication required.\r\n", "AUTH": b"-ERR invalid password\r\n"})
    result = CliRunner().invoke(main, ["-p", str(node.port), "-a", "wrong", "queue", "list"])
    assert result.exit_code == 1
    assert "refused the login: ERR invalid password. Check -a, --user and DISQUECLI_AUTH.\n" in result.output


def test_a_command_may_have_been_executed_when_its_connection_breaks(admin):
    result = admin("queue resume mail", PAUSE=lambda words: None)
    assert "The command may have been executed" in result.output
    assert result.exit_code == 1


def test_tab_completes_names_of_queues(scripted):
    """A node that does not answer provides no names."""

    def names(port, begun):
        root = click.Context(main)
        root.params = {"port": port}
        return [item.value for item in complete_queue(root, None, begun)]

    assert names(scripted(answers()).port, "ma") == ["mail"]
    assert names(scripted(answers()).port, "x") == []
    assert names(1, "") == []


def test_options_of_tls_in_a_url_stay_when_the_command_line_names_others():
    words = {**OPTION_DEFAULTS, "url": "disques://node:9/?ca=ca.pem&cert=c.pem&key=k.pem"}
    assert target_of(words).tls == Tls("ca.pem", "c.pem", "k.pem")
    assert target_of({**words, "insecure": True}).tls == Tls("ca.pem", "c.pem", "k.pem", is_insecure=True)
