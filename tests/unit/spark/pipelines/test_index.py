"""pipelines/index.py: the options of the query."""

from __future__ import annotations

from typing import Any

import pytest

from disque_py.spark.pipelines import index


class Session:
    """A SparkSession that keeps the options of its query, the reader's and the writer's together."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.readStream = self.writeStream = self  # Spark's names

    def option(self, name: str, value: str) -> Session:
        self.options[name] = value
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


@pytest.mark.parametrize(
    ("source", "gaps"),
    [
        ({}, None),
        ({"failOnDataLoss": "true"}, None),
        ({"failOnDataLoss": "false"}, "allow"),
        ({"failondataloss": "No"}, "allow"),
    ],
)
def test_the_sink_allows_gaps_where_the_source_may_skip_events(source, gaps):
    session = Session()
    index.run(session, "127.0.0.1:7711", "/data/index", source=source)
    assert session.options.get("gaps") == gaps


@pytest.mark.parametrize(("source", "limit"), [(None, "1000000"), ({"maxoffsetspertrigger": "7"}, "7")])
def test_a_batch_has_a_limit_unless_another_one_is_given(source, limit):
    """The driver would need memory for all events of all logs, and the next start would plan the same batch."""
    session = Session()
    index.run(session, "127.0.0.1:7711", "/data/index", source=source)
    given = {name.lower(): value for name, value in session.options.items()}  # As Spark does.
    assert (given["maxoffsetspertrigger"], given["maxbytespertrigger"]) == (limit, str(256 << 20))
