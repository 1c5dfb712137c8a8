"""Programs whose output can't be written: each of those that an installation has."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from disque_py.output_errors import is_output_error, naming

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPTS = PROJECT["project"]["scripts"]
FULL = "Error: the output can't be written: No space left on device\n"


def run_program(name, word, output):
    """Run a program with buffered output, as users do. Return its exit status and its errors."""
    module, _, function = SCRIPTS[name].partition(":")
    start = f"import sys; sys.argv[0] = {name!r}; from {module} import {function} as main; sys.exit(main())"
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-c", start, word]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("word", ["--help", "--version"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_program_on_a_full_disk_ends_with_one_sentence(name, word):
    with open("/dev/full", "wb") as full:
        assert run_program(name, word, full) == (1, FULL)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_program_whose_reader_is_gone_ends_without_a_word(name):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run_program(name, "--help", writer) == (1, "")
    finally:
        os.close(writer)


def test_the_tests_of_disque_bench_on_a_full_disk_are_one_sentence():
    with open("/dev/full", "wb") as full:
        assert run_program("disque-bench", "--list", full) == (1, FULL)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), True),
        (OSError(errno.ENOSPC, "No space left on device", "page.html"), False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), False),
    ],
)
def test_the_error_of_a_named_file_or_of_a_connection_is_not_one_of_the_output(error, answer):
    assert is_output_error(error) is answer


def test_the_error_of_a_file_gets_its_name():
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"), naming("/dev/full"):
        Path("/dev/full").write_text("x", encoding="utf-8")
