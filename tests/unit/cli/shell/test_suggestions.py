"""suggestions.py: misspelled words."""

from __future__ import annotations

import pytest

from disque_py.cli.admin.main import main as admin
from disque_py.cli.cluster.main import main as cluster
from disque_py.cli.shell.command_docs import builtin_docs
from disque_py.cli.shell.suggestions import closest, suggestion

DOCS = builtin_docs()


@pytest.mark.parametrize(
    ("line", "error", "meant"),
    [
        ("adjob q x 0", "ERR unknown command 'adjob'", "ADDJOB"),
        ("ADDJOB q x 0 RETY 5", "ERR syntax error", "RETRY"),
        ("cluster met a 1", "ERR Wrong CLUSTER subcommand or number of arguments", "MEET"),
        ("QSCAN 0 CUONT 5", "ERR syntax error", "COUNT"),
        ("PAUSE q stat", "ERR syntax error", "state"),
        ("job show x", "ERR unknown command 'job'", "disque-admin job"),
        ("status", "ERR unknown command 'status'", "disque-cluster status"),
    ],
)
def test_a_misspelled_word_gets_the_word_that_is_most_like_it(line, error, meant):
    assert suggestion(DOCS, line.encode().split(), error) == f"Did you mean '{meant}'?"


@pytest.mark.parametrize(("program", "group"), [("disque-admin", admin), ("disque-cluster", cluster)])
def test_each_command_of_another_program_is_known(program, group):
    """Except those whose names are commands of the node."""
    for name in set(group.commands) - {"completion"} - {each.lower() for each in DOCS}:
        asked = suggestion(DOCS, [name.encode()], "ERR unknown command")
        assert asked == f"Did you mean '{program} {name}'?"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XYZZY", "ERR unknown command 'XYZZY'"),
        ("ADDJOB retr x 0", "NOREPL Not enough reachable nodes"),
        ("ADDJOB q x 0 RETRY 5 RETRY x", "ERR syntax error"),
        ("CONFIG SET maxmemry 5", "ERR Unsupported CONFIG parameter: maxmemry. Did you mean 'maxmemory'?"),
    ],
)
def test_a_word_is_suggested_only_if_it_is_similar(line, error):
    assert suggestion(DOCS, line.encode().split(), error) is None


def test_a_word_unlike_all_others_gets_no_suggestion():
    assert closest("--zzz", ["--stat", "--scan"]) is None
