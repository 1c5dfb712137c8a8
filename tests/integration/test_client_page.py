"""The examples of pages for programs, run unchanged against a node, except for the addresses."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest

from disque_py.client import Disque
from disque_py.loopback_ports import HOST
from servers import ROOT, Server

PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "client",
        "retries",
        "locks",
        "schedules",
        "topics",
        "guides/developers",
        "guides/data-engineers",
    )
]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    example for page in PAGES for example in EXAMPLE.findall(page.read_text(encoding="utf-8")) if "spark" not in example
]
RUN_SECONDS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("node"), options=["--requirepass", "secret"]) as server:
        with Disque(f"{HOST}:{server.port}", password="secret") as disque:
            disque.cluster_voters_init(disque.cluster_myid())
        yield server


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_unchanged(node, number):
    """A worker runs until it is told to end."""
    code = re.sub(r"10\.0\.0\.\d:7711", f"{HOST}:{node.port}", EXAMPLES[number])
    with Disque(f"{HOST}:{node.port}", password="secret") as disque:
        disque.add_job("mail", b"for the worker")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ".run()" in code:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=RUN_SECONDS)
    assert (process.returncode, errors) == (0, ""), output


def test_the_page_has_examples():
    """They show the three ways to use the library, and the surprising cases."""
    assert len(EXAMPLES) >= 7
