"""job_tokens.py: the offset alone determines a batch."""

from __future__ import annotations

import json

from disque_py.spark.job_tokens import Share, first_offset, jobs_of, next_offset, shares_of, token, tokens

MB = 1 << 20


def test_a_batch_takes_from_each_node_in_proportion():
    offset = next_offset(first_offset("x"), {"a": 9_000, "b": 1_000, "c": 0}, 5_000, 10 * MB)
    assert offset == {"id": "x", "n": 1, "shares": [["a", 14, 4_500, 9 * MB], ["b", 2, 500, MB]]}


def test_a_batch_never_asks_for_much_more_than_the_limit():
    for limit in (1, 7, 999, 1_001, 70_334, 123_456):
        offset = next_offset(first_offset("x"), {"a": 70_001, "b": 333, "c": 1}, limit, MB)
        assert min(limit, 70_335) <= jobs_of(offset) < limit + 3
        assert sum(share.jobs for share in shares_of(offset, 9)) == jobs_of(offset)


def test_there_are_tokens_for_all_jobs_however_big_they_are_but_none_without_a_job():
    """A reply ends at a thousand jobs or a megabyte."""
    assert next_offset(first_offset("x"), {"a": 50_000}, 50_000, 100 * MB)["shares"] == [["a", 150, 50_000, 100 * MB]]
    assert next_offset(first_offset("x"), {"a": 7}, 50_000, 100 * MB)["shares"] == [["a", 7, 7, 100 * MB]]


def test_an_empty_batch_has_a_number_and_no_shares():
    start = {"id": "x", "n": 4, "shares": [["a", 1, 1, MB]]}
    assert next_offset(start, {}, 0, MB) == {"id": "x", "n": 5, "shares": []}


def test_tasks_cover_all_tokens_jobs_and_bytes_once():
    offset = {"id": "x", "n": 2, "shares": [["a", 7, 900, 3 * MB], ["b", 1, 5, MB]]}
    tasks = shares_of(offset, 6)
    assert tasks == [
        Share("a", 0, 2, 300, MB), Share("a", 2, 2, 300, MB), Share("a", 4, 3, 300, MB), Share("b", 0, 1, 5, MB)
    ]  # fmt: skip
    fetched = {token(offset, task.node, task.first + at) for task in tasks for at in range(task.tokens)}
    assert fetched == {one for words in tokens(offset).values() for one in words}


def test_an_offset_of_an_older_version_is_understood():
    """It has the jobs of each GETJOB, and no bytes."""
    offset = {"id": "x", "n": 2, "shares": [["a", 3, 900]]}
    assert shares_of(offset, 1) == [Share("a", 0, 3, 2_700, 3 * MB)]


def test_tokens_survive_the_checkpoint():
    offset = next_offset(first_offset("x"), {"a" * 40: 1}, 10, MB)
    assert tokens(json.loads(json.dumps(offset))) == tokens(offset) == {"a" * 40: [b"spark/x/1/aaaaaaaa/0"]}
