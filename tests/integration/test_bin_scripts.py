"""bin/disque-*: programs that run from a checkout, or report missing packages."""

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


@pytest.mark.parametrize(
    "program",
    [
        "disque-cli",
        "disque-admin",
        "disque-cluster",
        "disque-check-journal",
        "disque-bench",
        "disque-exporter",
        "disque-worker",
    ],
)
@pytest.mark.parametrize("environment", [{}, {"PYTHONSAFEPATH": "1"}])
def test_a_program_runs_from_anywhere_without_installation(program, environment):
    assert output_of(sys.executable, BIN / program, "--version", **environment) == (0, f"{program} {__version__}\n", "")


@pytest.mark.parametrize(
    "program", ["disque-cli", "disque-admin", "disque-cluster", "disque-check-journal", "disque-server"]
)
def test_programs_may_be_executed(program):
    assert os.access(BIN / program, os.X_OK)


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose program needs a package that does not exist."""
    shutil.copytree(BIN, tmp_path / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "disque_py" / "cli" / "shell"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text("import no_such_package\n")
    return tmp_path


def test_the_programs_look_for_all_dependencies_of_the_package():
    project = tomllib.loads((BIN.parent / "pyproject.toml").read_text())["project"]
    needed = runpy.run_path(str(BIN / "checkout.py"))["NEEDED"]
    assert sorted(needed) == sorted(word.partition(">")[0] for word in project["dependencies"])


def fake_python(path, output):
    """Make an interpreter that prints the program that it should run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{output}\n")
    path.chmod(0o755)
    return path


def run_in(checkout):
    """Run the checkout's program with this interpreter, without any prepared environment."""
    return output_of(sys.executable, checkout / "bin" / "disque-cli", "PING", "x", DISQUE_VENV="")


def test_a_virtual_environment_of_the_checkout_is_used(checkout):
    fake_python(checkout / ".venv" / "bin" / "python", 'echo "again: $2 $3"')
    assert run_in(checkout) == (0, "again: PING x\n", "")


def test_a_fresh_clone_prepares_itself_and_goes_on(checkout):
    python = fake_python(checkout / "made" / "python", 'echo "again: $2 $3"')
    fake_python(checkout / "bin" / "prepare", f"echo Preparing >&2; echo {python}")
    status, output, errors = run_in(checkout)
    assert (status, output) == (0, "again: PING x\n")
    assert errors.endswith("Preparing\n")
    assert errors.startswith("disque-cli: the package no_such_package is missing, so bin/prepare makes an environment")


def test_an_environment_that_lacks_a_new_dependency_is_brought_up_to_date(checkout):
    """After a `git pull`, pyproject.toml may name a new package. The second attempt has it."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    newer = fake_python(checkout / "made" / "python", 'echo "again: $2 $3"')
    fake_python(checkout / "bin" / "prepare", f"echo {newer}")
    assert run_in(checkout)[:2] == (0, "again: PING x\n")


@pytest.mark.parametrize("prepare", ["exit 1", "echo " + sys.executable, "echo nowhere"])
def test_a_package_that_stays_missing_is_reported_with_a_remedy(checkout, prepare):
    """The environment is prepared only once, even if that fails or does not help."""
    fake_python(checkout / "bin" / "prepare", f"echo Preparing >&2; {prepare}")
    status, output, errors = run_in(checkout)
    assert (status, output, errors.count("Preparing")) == (1, "", 1)
    assert "disque-cli: the package no_such_package is missing. Run bin/prepare, which makes .venv, or: pip" in errors


# -- help -------------------------------------------------------------------------------------------


PROGRAMS = sorted(path.name for path in BIN.iterdir() if os.access(path, os.X_OK) and path.is_file())


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_has_help(program):
    """Help goes to standard output, with status 0. The program tests, fetches and installs nothing for it."""
    status, output, _ = output_of(BIN / program, "--help", DISQUE_VENV=Path(sys.executable).parents[1])
    assert status == 0
    assert output.lower().startswith(("usage:", "disque-cli", "make the virtual"))
    assert program in output


def test_help_of_the_demo_with_spark_needs_no_spark():
    output = output_of(BIN / "demo", "--spark", "--help", DISQUE_VENV=Path(sys.executable).parents[1])[1]
    assert output.startswith("Usage: bin/demo --spark")


@pytest.mark.parametrize("words", [["--hlep"], ["tset"], ["test,sprak"], ["test", "spark"]])
def test_prepare_refuses_words_that_are_no_extras(words):
    status, output, errors = output_of(BIN / "prepare", *words)
    assert (status, output) == (2, "")
    assert errors.startswith("bin/prepare: ")
    assert "see bin/prepare --help" in errors
