"""Extras of pyproject.toml that belong together agree."""

from __future__ import annotations

import tomllib
from pathlib import Path

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def test_what_disque_query_needs_alone_is_a_part_of_what_spark_needs():
    """The tests run with the whole extra. Only `make bounds-query` runs them with the part."""
    assert set(EXTRAS["query"]) <= set(EXTRAS["spark"])


def test_what_traces_need_is_of_the_same_release_in_the_tests():
    """The tests run with the whole extra."""
    assert set(EXTRAS["otel"]) <= set(EXTRAS["test"])


def test_what_disque_exporter_needs_is_of_the_same_release_everywhere():
    """The tests use this release, and Spark's pipelines write the same format."""
    assert set(EXTRAS["metrics"]) <= set(EXTRAS["spark"]) & set(EXTRAS["test"])
