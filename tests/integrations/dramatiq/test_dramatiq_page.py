"""The program of docs/integrations/dramatiq.md, with Dramatiq's own command."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/integrations/dramatiq.md"
WORKER = ("-m", "dramatiq", "tasks", "--processes", "1", "--threads", "4", "--skip-logging")


def test_the_program_of_the_page_prints_the_result(run, tmp_path, shared_node):
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "tasks.py").write_text(re.search(r"```python\n(# tasks.py\n.+?)```", text, re.DOTALL)[1])
    run(shared_node.url, *WORKER)
    out, _ = run(shared_node.url, "tasks.py").communicate(timeout=60)
    assert out == b"42\n"
