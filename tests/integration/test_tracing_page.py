"""The examples of docs/tracing.md, run unchanged against a node, except for the address."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra [test] is not installed")

from disque_py import testing
from servers import ROOT

PAGE = ROOT / "docs" / "tracing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
RUN_SECONDS = 60


@pytest.fixture(scope="module")
def node():
    with testing.node(requirepass="secret") as node:
        yield node


def output_of(code, node):
    """The text that a program prints."""
    code = code.replace("10.0.0.1:7711", node.address)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    return run.stdout


def test_the_first_program_prints_one_trace(node):
    """The page says so: four spans, and three of them in one trace."""
    output = output_of(EXAMPLES[0], node)
    spans = []
    decoder = json.JSONDecoder()
    while "{" in output:
        span, end = decoder.raw_decode(output[output.index("{") :])
        spans.append(span)
        output = output[output.index("{") + end :]
    traces = {span["name"]: span["context"]["trace_id"] for span in spans}
    assert sorted(traces) == ["ack traced-mail", "add traced-mail", "get traced-mail", "process traced-mail"]
    assert traces["add traced-mail"] == traces["process traced-mail"] == traces["ack traced-mail"]


def test_the_loop_without_a_worker_runs(node):
    assert output_of(EXAMPLES[1], node) == "order 17\n"


def test_the_page_has_these_examples():
    assert len(EXAMPLES) == 2
