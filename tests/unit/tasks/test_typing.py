"""A type checker checks the parameters, results and options of tasks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

SAMPLE = """
from disque_py.tasks import App
app = App()

@app.task
def add(x: int, y: int = 1) -> int:
    return x + y

@app.task(attempts=3)
async def shout(text: str) -> str:
    return text.upper()

@app.schedule("@daily")
@app.task
def clean() -> None: ...

async def main() -> None:
    reveal_type(add(1))
    reveal_type(add.add(1).wait())
    reveal_type(await shout("a"))
    reveal_type(await (await shout.add_async("a")).result(timeout=5))
    reveal_type(shout.options(delay=5).add("a"))
    reveal_type(app.group().add(add, 1, y=2))
    reveal_type(app.add_many([add.call(1)]))
    reveal_type(clean.add())
    add.add("1")  # wrong
    shout.add()  # wrong
    add.options(dealy=5)  # wrong
    app.group().add(add, "1")  # wrong
    app.task(retries=1)  # wrong
"""


def test_mypy_knows_parameters_and_results(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    config = Path(__file__).resolve().parents[3] / "pyproject.toml"
    out, _, _ = api.run([str(path), "--config-file", str(config), "--follow-imports=silent"])
    types = re.findall(r'Revealed type is "(.+)"', out)
    short = [re.sub(r"[\w.]+\.(\w+)", r"\1", found) for found in types]
    assert short == [
        "int", "int", "str", "str", "Handle[str]", "Handle[int]", "list[Handle[int]]", "Handle[None]",
    ]  # fmt: skip
    wrong = {number for number, line in enumerate(SAMPLE.splitlines(), 1) if line.endswith("# wrong")}
    assert {int(number) for number in re.findall(r"sample\.py:(\d+): error", out)} == wrong
