"""The examples of docs/testing.md, run unchanged: tests by pytest and unittest, the others as programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from servers import INSTALLED, ROOT

PAGE = ROOT / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
RUN_SECONDS = 100


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_unchanged(number, tmp_path):
    """With the plugin loaded by its module, which works without an installation, too."""
    path = tmp_path / "test_example.py"
    path.write_text(EXAMPLES[number])
    words = [sys.executable]
    if "def test_" in EXAMPLES[number]:
        words += ["-m", "pytest", "-p", "disque_py.testing.plugin", "-p", "no:cacheprovider"]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(INSTALLED), os.environ.get("PYTHONPATH", "")))),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    run = subprocess.run(
        [*words, path.name], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
