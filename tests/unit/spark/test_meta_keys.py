"""meta_keys.py: keys of metadata become columns, whatever their names are."""

from __future__ import annotations

from disque_py.spark.meta_keys import column_of, distinct, with_keys


def test_a_key_with_the_name_of_a_column_gets_another_name():
    columns = ["queue", "state", column_of(0), column_of(1), "jobs"]
    assert with_keys(columns, ["region", "Queue"]) == ["queue", "state", "region", "meta_Queue", "jobs"]


def test_no_two_columns_have_the_same_name():
    columns = ["queue", *map(column_of, range(3)), "meta_queue"]
    assert with_keys(columns, ["queue", "a", "A"]) == ["queue", "meta_meta_queue", "a", "meta_A", "meta_queue"]


def test_a_key_that_is_given_twice_is_one_column():
    assert distinct(["b", "a", "b"]) == ["b", "a"]
