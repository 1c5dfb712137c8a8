"""log_lines.py: the table of messages, and lines made from it."""

from __future__ import annotations

import re
import string

import pytest

from brokers import NotedHost
from disque_py.log_lines import MESSAGES, line, tell


def test_a_line_is_its_text_and_knows_its_message():
    made = line("node-failed", node="n", address="10.0.0.1:7711", bus_port=17711, reason="a majority agrees")
    assert made == "node n at 10.0.0.1:7711 marked as failing: a majority agrees"
    assert (made.name, made.level, made.fields["bus_port"]) == ("node-failed", "warning", 17711)


def test_a_message_name_that_is_in_no_table_is_an_error():
    with pytest.raises(KeyError):
        line("no-such-message")


def test_a_message_is_logged_through_the_host_with_its_level():
    host = NotedHost()
    tell(host, "leaving-began")
    assert host.calls == [("log", "notice", "CLUSTER LEAVING yes: this node gives its jobs away")]


@pytest.mark.parametrize("message", MESSAGES.values(), ids=lambda message: message.name)
def test_a_template_names_its_fields(message):
    """None is without a name, which `line` could not fill."""
    assert "" not in [name for _, name, _, _ in string.Formatter().parse(message.template)]


@pytest.mark.parametrize("message", MESSAGES.values(), ids=lambda message: message.name)
def test_a_number_stands_behind_its_noun(message):
    """So that "1 wrong passwords" can't be written."""
    counts = r"\{(count|jobs|queues|clients|commands|messages|files|voters|made)\} (\w+ )?\w+s\b"
    assert re.search(counts, message.template) is None


@pytest.mark.parametrize(
    ("trouble", "recovery"),
    [
        ("cluster-fail", "cluster-ok"),
        ("node-failed", "node-recovered"),
        ("memory-refused", "memory-enough"),
        ("journal-refused", "journal-recovered"),
        ("nodes-file-failed", "nodes-file-written"),
        ("spill-failed", "spill-recovered"),
    ],
)
def test_a_problem_is_a_warning_and_its_end_is_a_notice(trouble, recovery):
    assert (MESSAGES[trouble].level, MESSAGES[recovery].level) == ("warning", "notice")
