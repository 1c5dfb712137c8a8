"""The public interface in editors, type checkers and `help`: every parameter, default, unit and error."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import disque_py.client
from disque_py.client import AsyncDisque, AsyncPipeline, Backoff, Disque, Pipeline, Worker
from disque_py.client.options import ClientSettings

CLASSES = (AsyncDisque, Disque, AsyncPipeline, Pipeline, Worker)
# These methods are for the library's own modules.
INNER = {"run_adding", "iterate", "scan", "add", "run"}
PARAMETER = re.compile(r"^ {4,}([a-z_]+)  +(\S.*(?:\n {12,}\S.*)*)", re.MULTILINE)


def methods():
    for each in CLASSES:
        for name, method in inspect.getmembers(each, inspect.isfunction):
            if not name.startswith("_") and (name not in INNER or each is Worker):
                yield pytest.param(method, id=f"{each.__name__}.{name}")


def documented(doc):
    """Return the parameters that a docstring explains, and their texts."""
    return {name: re.sub(r"\s+", " ", text) for name, text in PARAMETER.findall(doc or "")}


def check(parameters, doc):
    said = documented(doc)
    assert set(said) == set(parameters)
    for name, parameter in parameters.items():
        text, default = said[name], parameter.default
        if name.endswith(("_ms", "_s")) or re.search(r"Seconds|Span", str(parameter.annotation)):
            assert "second" in text, name
        if default is None or default == "":
            assert re.search(r"default|None", text), name
        elif isinstance(default, (int, float)) and not isinstance(default, bool):
            assert f"{default:g}" in text or str(default) in text, name


@pytest.mark.parametrize("method", list(methods()))
def test_every_parameter_of_every_method_is_explained(method):
    """The docstring names its default and the unit of a span."""
    parameters = dict(inspect.signature(method).parameters)
    del parameters["self"]
    check(parameters, method.__doc__)


@pytest.mark.parametrize("each", [Worker, Backoff])
def test_every_parameter_of_a_class_is_explained(each):
    """The docstring of the class explains them."""
    check(inspect.signature(each).parameters, each.__doc__)


@pytest.mark.parametrize("each", [AsyncDisque, Disque])
def test_every_setting_of_a_client_is_explained(each):
    """The typed dictionary of settings explains them too."""
    assert set(documented(each.__init__.__doc__)) == {"nodes", *ClientSettings.__annotations__}


@pytest.mark.parametrize("method", list(methods()))
def test_every_command_documents_its_errors(method):
    """The errors that all commands share are written once, and each docstring includes them."""
    if method.__name__ not in {"pipeline", "stop", "close"}:
        assert re.search(r"Raises |Like every command", method.__doc__ or "")


def test_the_package_is_typed():
    """Type checkers read the annotations of a package only if it is marked as typed."""
    assert (Path(disque_py.client.__file__).parents[1] / "py.typed").exists()


SNIPPETS = {
    'Disque("h", pasword="x")': 'Unexpected keyword argument "pasword"',
    'Disque("h").add_job("q", b"", rety=1)': 'Unexpected keyword argument "rety"',
    'Disque("h").add_job("q", b"", retry=0.9)': 'incompatible type "float"',
    'Disque("h").add_jobs("q", [b""], metta={})': 'Unexpected keyword argument "metta"',
    'AsyncDisque.from_url("disque://h", time_out=3)': 'Unexpected keyword argument "time_out"',
    'Disque("h").jobs("q", withmata=True)': 'Unexpected keyword argument "withmata"',
    'Worker(AsyncDisque("h"), ["q"], print, concurency=3)': 'Unexpected keyword argument "concurency"',
    'answer: int = Disque("h").get_job("q")': 'expression has type "Job | None"',
}
GOOD = """
from datetime import timedelta
from disque_py.client import AsyncDisque, Disque, Job, Worker

with Disque("h", password="x", timeout=timedelta(seconds=2)) as client:
    ids: list[str] = client.add_jobs("q", [b""], retry=timedelta(minutes=1), key=lambda body: body, meta={"a": "b"})
    found: Job | None = client.get_job("q", withmeta=True, timeout_ms=timedelta(seconds=1))
    for job in client.jobs("q", count=5, withlease=True):
        count: int = client.nack_jobs([job])
Worker(AsyncDisque("h"), ["q"], print, max_attempts=3, on_give_up=lambda job, error: print(job.id, error)).run()
"""


@pytest.mark.timeout(300)
def test_a_type_checker_finds_typos_and_fractions(tmp_path):
    """It reports no error in correct code."""
    pytest.importorskip("mypy")
    lines = ["from disque_py.client import AsyncDisque, Disque, Worker", *SNIPPETS]
    (tmp_path / "wrong.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "right.py").write_text(textwrap.dedent(GOOD))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", tmp_path / "cache"]
    place = Path(disque_py.client.__file__).parents[2]
    environment = dict(os.environ) if place.name == "site-packages" else {**os.environ, "MYPYPATH": str(place)}
    run = subprocess.run(
        [*command, "wrong.py", "right.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    output = run.stdout.splitlines()
    for number, expected in enumerate(SNIPPETS.values(), 2):
        found = [line for line in output if line.startswith(f"wrong.py:{number}: error")]
        assert len(found) == 1, (number, run.stdout)
        assert expected in found[0]
    assert [line for line in output if line.startswith("right.py")] == []
