"""counting.py: numbers of things in messages."""

from __future__ import annotations

from disque_py.cli.counting import counted, counted_of


def test_one_thing_has_no_s():
    assert [counted(number, "job") for number in (0, 1, 12841)] == ["0 jobs", "1 job", "12,841 jobs"]


def test_the_total_decides_about_noun_and_verb():
    assert counted_of(1, 1, "job", "is") == "1 of 1 job is"
    assert counted_of(1, 3, "job", "is") == "1 of 3 jobs are"
    assert counted_of(1, 3, "node") == "1 of 3 nodes"
