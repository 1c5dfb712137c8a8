"""The package imports without Spark, and the error for a missing extra says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from disque_py.spark import register


def test_the_package_itself_needs_nothing_of_the_extra():
    """The broker's installation has no Spark; `import disque_py.spark` must not ask for it."""
    code = (
        "import sys, disque_py.spark; sys.exit(any(name in sys.modules for name in ('pyspark', 'pyarrow', 'duckdb')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["jobs", "events", "index"])
def test_the_sources_load_without_pandas(name):
    """Spark starts half a dozen processes for a query, and each of them loads the source."""
    pytest.importorskip("pyspark", reason="the extra disque-py[spark] is not installed")
    code = f"import sys, disque_py.spark.{name}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_extra_is_one_sentence_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "disque_py.spark.events", None)
    with pytest.raises(ImportError, match=r"pip install 'disque-py\[spark\]'"):
        register(None)
