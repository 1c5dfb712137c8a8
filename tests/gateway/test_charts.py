"""Charts: the lines that show short histories."""

from __future__ import annotations

from disque_py.gateway.console.charts import points, words


def test_the_largest_value_is_at_the_top():
    assert points([0, 5, 10], 100, 12) == "0.0,11.0 50.0,6.0 100.0,1.0"


def test_a_history_of_one_or_none_is_drawn():
    assert points([]) == ""
    assert points([0]) == "0.0,27.0"


def test_a_chart_has_a_description_in_words():
    assert words([1, 7, 3]) == "from 1 to 3, at most 7"
    assert words([]) == "no history yet"
