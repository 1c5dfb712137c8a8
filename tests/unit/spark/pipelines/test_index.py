"""pipelines/index.py: the options of the query."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.delta_store import Store
from disque_py.spark.pipelines import index
from index_events import batch, event
from index_events import index as write


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


TRIMMED = "disque-events: node n1: events {} of log {} were trimmed before they were read; raise events-max-bytes"
GONE = "disque-events: node n1: events {} of the planned batch are gone, because log {} was trimmed; raise"
CUT = "disque-events: node n1: log l1 ends before 2, but event 9 comes next; either the node runs on an older copy"


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        (TRIMMED.format("2 to 3", "l1"), "up to event 3, so it lacks none of these events: .* Remove /cp and start"),
        (GONE.format("2 to 3", "l1"), "up to event 3, so it lacks none of these events: .* Remove /cp and start"),
        (TRIMMED.format("2 to 4", "l1"), "The index has log l1 up to event 3$"),
        (CUT, "The index has log l1 up to event 3$"),
        (TRIMMED.format("2 to 3", "l1.1"), "The index has no event of log l1.1$"),
        ("disque-events: node n1 has no event log", "^$"),
    ],
)
def test_an_error_about_lost_events_says_how_far_the_index_has_the_log(tmp_path, sentence, text):
    assert index.place_in_index(Store(str(tmp_path)), sentence, "/cp") == ""
    write(tmp_path, batch(event(1, "a"), event(2, "b"), event(3, "c")))
    assert re.search(text, index.place_in_index(Store(str(tmp_path)), sentence, "/cp"))
