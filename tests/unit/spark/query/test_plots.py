"""query/plots.py: tables and curves of characters."""

from __future__ import annotations

from datetime import datetime

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.query.plots import bars, cell, curve, curves, table
from disque_py.spark.query.questions import Answer


def test_values_are_readable_and_cannot_move_the_cursor():
    values = (None, 1234567, 1.25, {"a": "b"}, {"a": "\x1b[2J"}, "\x1b[2J", datetime(2024, 1, 2, 3, 4, 5))
    assert [cell(value) for value in values] == [
        "", "1,234,567", "1.2", "a=b", "a=\ufffd[2J", "\ufffd[2J", "2024-01-02 03:04:05.000",
    ]  # fmt: skip


def test_a_table_leaves_out_empty_columns_and_puts_numbers_to_the_right():
    answer = Answer(["queue", "error", "jobs"], [("q", "", 5), ("long", None, 12)])
    assert table(answer) == "queue  jobs\n─────  ────\nq         5\nlong     12\n"
    assert table(Answer(["x"], [])) == "nothing\n"
    assert table(Answer(["x"], [(1,), (2,)]), rows_max=1).endswith("… and 1 more rows\n")


def test_a_curve_is_as_high_as_its_largest_value():
    assert curve([0, 1, 4, 8], height=1) == [" ▁▄█"]
    assert curve([0, 8], height=2) == [" █", " █"]
    assert curve([1] * 100 + [8], width=10)[0][-1] == "█"
    assert curve([]) == [""]


def test_curves_name_their_series():
    answer = Answer(["moment", "state", "jobs"], [("t1", "pending", 0), ("t2", "pending", 7)])
    assert "pending  t1 … t2" in curves(answer)
    assert curves(Answer(["moment", "state", "jobs"], [])) == "nothing\n"


def test_a_terminal_that_is_too_narrow_gets_one_column():
    answer = Answer(["moment", "state", "jobs"], [(datetime(2024, 1, 1), "pending", 3)])
    assert curves(answer, -10) == curves(answer, 1)


def test_bars_are_as_long_as_their_share():
    text = bars(Answer(["error", "failures"], [("x", 4), ("", 2)]), "error", "failures", width=4)
    assert text == "x  ████ 4\n–  ██   2\n"


def test_the_names_of_columns_do_not_move_the_cursor():
    """PIVOT makes columns of queue names."""
    assert "\x1b" not in table(Answer(["q\x1b[2J"], [(1,)]))
