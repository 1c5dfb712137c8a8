"""testing/plugin.py: the fixtures, as another project's tests use them."""

from __future__ import annotations

import os
import subprocess
import sys

from servers import INSTALLED

RUN_SECONDS = 60


def environment(**more):
    path = os.pathsep.join(filter(None, (str(INSTALLED), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, **more}


def run_pytest(folder, text):
    """Return the output of pytest with the plugin, whether or not it is installed."""
    (folder / "test_mine.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-p", "disque_py.testing.plugin", "-p", "no:cacheprovider", str(folder)]
    env = environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=env, timeout=RUN_SECONDS).stdout


def test_tests_can_use_the_fixtures(tmp_path):
    output = run_pytest(
        tmp_path,
        "def test_client(disque_client, disque_node):\n"
        "    disque_client.add_job('q', b'x')\n"
        "    assert disque_client.qlen('q') == 1 and disque_node.is_running\n"
        "def test_cluster(disque_cluster):\n"
        "    disque_cluster.kill(2)\n",
    )
    assert "2 passed" in output, output


def test_a_failed_test_shows_the_log_of_its_node_and_a_passed_one_does_not(tmp_path):
    output = run_pytest(
        tmp_path,
        "import pytest\n"
        "@pytest.fixture\n"
        "def disque_directives():\n"
        "    return {'loglevel': 'verbose'}\n"
        "def test_good(disque_node):\n    pass\n"
        "def test_bad(disque_client):\n    assert False\n",
    )
    assert "1 failed, 1 passed" in output, output
    assert output.count("log of the node at 127.0.0.1:") == 1
