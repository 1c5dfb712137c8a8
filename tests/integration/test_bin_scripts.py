"""bin/disque-*: programs that run from a checkout, or say what is missing."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from disque_py import __version__

BIN = Path(__file__).resolve().parents[2] / "bin"


def output_of(*command, **environment):
    result = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
        cwd="/",
    )
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("program", ["disque-cli", "disque-cluster", "disque-check-journal"])
@pytest.mark.parametrize("environment", [{}, {"PYTHONSAFEPATH": "1"}])
def test_a_program_runs_from_anywhere_without_installation(program, environment):
    assert output_of(sys.executable, BIN / program, "--version", **environment) == (0, f"{program} {__version__}\n", "")


@pytest.mark.parametrize("program", ["disque-cli", "disque-cluster", "disque-check-journal", "disque-server"])
def test_programs_may_be_executed(program):
    assert os.access(BIN / program, os.X_OK)


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose program wants a package that nobody has."""
    shutil.copytree(BIN, tmp_path / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "disque_py" / "cli"
    package.mkdir(parents=True)
    (tmp_path / "disque_py" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "disque_cli.py").write_text("import nobody_has_this\n")
    return tmp_path


def test_the_programs_look_for_all_that_the_package_depends_on():
    project = tomllib.loads((BIN.parent / "pyproject.toml").read_text())["project"]
    needed = runpy.run_path(str(BIN / "checkout.py"))["NEEDED"]
    assert sorted(needed) == sorted(word.partition(">")[0] for word in project["dependencies"])


def test_what_is_missing_is_said_with_what_to_do(checkout):
    status, _, errors = output_of(sys.executable, checkout / "bin" / "disque-cli")
    assert status == 1
    assert errors.startswith("disque-cli: the package nobody_has_this is missing. Run bin/test once")


def test_a_virtual_environment_of_the_checkout_is_used(checkout):
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "again: $2 $3"\n')
    python.chmod(0o755)
    assert output_of(sys.executable, checkout / "bin" / "disque-cli", "PING", "x") == (0, "again: PING x\n", "")


def test_starting_again_happens_once(checkout):
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert output_of(sys.executable, checkout / "bin" / "disque-cli")[0] == 1
