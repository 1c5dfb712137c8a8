"""misplaced_options.py: options of the connection that stand behind the command."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from disque_py.cli.cluster.main import main as cluster
from disque_py.cli.misplaced_options import with_place


def test_an_option_of_the_program_gets_its_place():
    result = CliRunner().invoke(cluster, ["status", "127.0.0.1:1", "-a", "pw"], prog_name="disque-cluster")
    assert result.exit_code == 2
    assert "Put it before the command: disque-cluster -a … status" in result.output


@pytest.mark.parametrize("option", ["--nosuch", "--nodes"])
def test_other_errors_stay_as_they_are(option):
    error = click.NoSuchOption(option, ctx=click.Context(cluster))
    assert with_place(error, cluster) is error
