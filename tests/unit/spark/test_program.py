"""program.py: pairs, errors of one sentence, completion."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from disque_py.shell_scripts import SHELLS, completion_script
from disque_py.spark.program import FailureError, files, folders, read_pairs


@click.command()
@click.option("--with", "pairs", multiple=True, callback=read_pairs)
@click.option("--out", shell_complete=files)
@click.option("--path", shell_complete=folders)
def program(pairs, out, path):
    """Fail with the pairs."""
    raise FailureError("program", f"{pairs}")


def test_pairs_become_a_dictionary_and_a_value_may_have_the_sign_too():
    done = CliRunner().invoke(program, ["--with", "a=1", "--with", "b=x=y", "--with", "c="])
    assert done.output == "program: {'a': '1', 'b': 'x=y', 'c': ''}\n"


def test_a_text_without_the_sign_is_a_usage_error():
    done = CliRunner().invoke(program, ["--with", "a"])
    assert (done.exit_code, "'a' is not NAME=VALUE" in done.output) == (2, True)


def test_a_failure_is_one_line_behind_the_programs_name_and_status_1():
    done = CliRunner().invoke(program, [])
    assert (done.exit_code, done.output) == (1, "program: {}\n")


@pytest.mark.parametrize(("option", "kind"), [("out", "file"), ("path", "dir")])
def test_the_shell_completes_names_on_disk(option, kind):
    param = next(param for param in program.params if param.name == option)
    (item,) = param.shell_complete(click.Context(program), "s3://")
    assert (item.type, item.value) == (kind, "s3://")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_is_for_the_programs_name(shell):
    assert "_MY_PROGRAM_COMPLETE" in completion_script(program, "my-program", shell)
