"""query/report.py: one HTML file in which nothing from the data is markup."""

from __future__ import annotations

from datetime import datetime
from html.parser import HTMLParser

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.query.questions import Answer
from disque_py.spark.query.report import bars, lines, page, table

EVIL = "<script>alert('x')</script>"


class Tags(HTMLParser):
    """Counts elements, and notes those that were not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page_is_whole_and_loads_nothing():
    moments = [datetime(2024, 1, 1, 0, minute) for minute in range(3)]
    curve = lines(Answer(["moment", "state", "jobs"], [(at, EVIL, 5) for at in moments]))
    rows = Answer(["queue", "n"], [(EVIL, 3), ("q", None)])
    html = page(EVIL, {"events": 5}, [("Depth", curve), (EVIL, table(rows) + bars(rows, ["queue"], "n"))])
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert "http" not in html


def test_a_result_without_rows_is_shown_as_nothing():
    empty = Answer(["queue", "n"], [])
    assert table(empty) == lines(empty) == bars(empty, ["queue"], "n") == "<p>nothing</p>"


def test_long_tables_say_how_many_rows_they_leave_out():
    assert "… and 3 more" in table(Answer(["n"], [(number,) for number in range(5)]), rows_max=2)
