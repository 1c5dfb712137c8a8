"""The programs of docs/tasks.md, run unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import disque_py
from disque_py import testing

PAGE = Path(__file__).parents[2] / "docs/tasks.md"
BLOCKS = re.findall(r"^```python\n(.+?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
SHOP = next(block for block in BLOCKS if block.startswith("# shop.py"))
ANSWER = "42\nsent to ada@example.com\nValueError · ada is no address\n"


def test_the_program_of_the_five_minute_guide_runs(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    assert ANSWER in PAGE.read_text(encoding="utf-8")
    with testing.node() as node:
        home = str(Path(disque_py.__file__).parents[1])
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": home}
        for name in ("shop.py",):
            text = (tmp_path / name).read_text(encoding="utf-8")
            (tmp_path / name).write_text(text.replace("disque://127.0.0.1:7711", node.url), encoding="utf-8")
        command = [sys.executable, "-m", "disque_py.tasks.command", "shop:app"]
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        try:
            found = subprocess.run(
                [sys.executable, "shop.py"], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True
            )
            assert found.stdout.decode() == ANSWER
        finally:
            worker.terminate()
            assert worker.wait(60) == 0


@pytest.fixture
def shop(monkeypatch):
    """The module of the page's program."""
    module = types.ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    exec(SHOP, module.__dict__)
    return module


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_program_of_the_page_runs(number, shop):
    """The tests in it run, too."""
    names = {"__name__": "page"}
    exec(BLOCKS[number], names)
    for name, function in list(names.items()):
        if name.startswith("test_"):
            function()
