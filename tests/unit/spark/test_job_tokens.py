"""job_tokens.py: what a batch is follows from its offset alone."""

from __future__ import annotations

import json

from disque_py.spark.job_tokens import Share, first_offset, next_offset, shares_of, token, tokens


def test_a_batch_takes_from_each_node_in_proportion():
    offset = next_offset(first_offset("x"), {"a": 9_000, "b": 1_000, "c": 0}, 5_000)
    assert offset == {"id": "x", "n": 1, "shares": [["a", 5, 900], ["b", 1, 500]]}


def test_it_never_asks_for_much_more_than_the_limit():
    for limit in (1, 7, 999, 1_001, 123_456):
        shares = next_offset(first_offset("x"), {"a": 70_001, "b": 333, "c": 1}, limit)["shares"]
        assert limit <= sum(count * jobs for _, count, jobs in shares) or limit > 70_335
        assert sum(count * jobs for _, count, jobs in shares) < limit + sum(count for _, count, _ in shares) + 3


def test_an_empty_batch_has_a_number_and_no_shares():
    assert next_offset({"id": "x", "n": 4, "shares": [["a", 1, 1]]}, {}, 0) == {"id": "x", "n": 5, "shares": []}


def test_tasks_cover_all_tokens_once():
    offset = {"id": "x", "n": 2, "shares": [["a", 7, 900], ["b", 1, 5]]}
    tasks = shares_of(offset, 6)
    assert tasks == [Share("a", 0, 2, 900), Share("a", 2, 2, 900), Share("a", 4, 3, 900), Share("b", 0, 1, 5)]
    fetched = {token(offset, task.node, task.first + at) for task in tasks for at in range(task.tokens)}
    assert fetched == {one for words in tokens(offset).values() for one in words}


def test_tokens_survive_the_checkpoint():
    offset = next_offset(first_offset("x"), {"a" * 40: 10}, 10)
    assert tokens(json.loads(json.dumps(offset))) == tokens(offset) == {"a" * 40: [b"spark/x/1/aaaaaaaa/0"]}
