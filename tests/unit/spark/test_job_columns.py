"""job_columns.py: rows become exactly the commands that a client would send."""

from __future__ import annotations

import hiredis
import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark import job_columns
from disque_py.spark.job_columns import ADD_OPTIONS, SchemaError, add_words, check_columns, encode, rows_refused
from disque_py.spark.options import OptionError, Options

META = pa.map_(pa.string(), pa.string())


def commands(columns: dict, prefix: str = "", first_row: int = 0, **options: str) -> list[list[bytes]]:
    """The commands of a batch, as a node would read them."""
    reader = hiredis.Reader()
    for part in encode(pa.record_batch(columns), add_words(Options("disque", options, ADD_OPTIONS)), prefix, first_row):
        for payload, _ in part.chunks(0):
            reader.feed(payload)
    found = []
    while (argv := reader.gets()) is not False:
        found.append(argv)
    return found


def test_a_body_and_a_queue_are_enough():
    assert commands({"body": ["a", "é"], "queue": ["q1", "q2"]}) == [
        [b"ADDJOB", b"q1", b"a", b"5000"],
        [b"ADDJOB", b"q2", "é".encode(), b"5000"],
    ]


def test_options_are_for_all_rows_and_columns_win_where_they_have_a_value():
    columns = {"body": [b"\x00", b""], "retry": pa.array([None, 7], pa.int32())}
    assert commands(columns, queue="q", retry="5", ttl="60", maxlen="9", timeoutMs="0", **{"async": "true"}) == [
        [b"ADDJOB", b"q", b"\x00", b"0", b"MAXLEN", b"9", b"ASYNC", b"RETRY", b"5", b"TTL", b"60"],
        [b"ADDJOB", b"q", b"", b"0", b"MAXLEN", b"9", b"ASYNC", b"RETRY", b"7", b"TTL", b"60"],
    ]


def test_metadata_keys_and_words_that_only_some_rows_have():
    columns = {
        "body": ["a", "b", "c"],
        "queue": ["q", "q", "q"],
        "delay": pa.array([None, 2, None], pa.int64()),
        "meta": pa.array([[("k", "v"), ("l", "w")], None, []], META),
        "dedupKey": ["x", None, "z"],
    }
    assert [argv[4:] for argv in commands(columns)] == [
        [b"META", b"k", b"v", b"META", b"l", b"w", b"KEY", b"x"],
        [b"DELAY", b"2"],
        [b"KEY", b"z"],
    ]


def test_a_slice_of_a_batch_has_its_own_rows():
    columns = {"body": ["a", "b", "c"], "meta": pa.array([[("k", "1")], [("k", "2")], [("k", "3")]], META)}
    batch = pa.record_batch(columns).slice(1, 1)
    assert commands({name: batch.column(name) for name in columns}, queue="q") == [
        [b"ADDJOB", b"q", b"b", b"5000", b"META", b"k", b"2"]
    ]


def test_keys_are_made_of_the_place_of_the_row_when_asked_for():
    columns = {"body": ["a", "b"], "dedupKey": [None, "own"]}
    found = commands(columns, "query/3/0", 10, queue="q", autoKey="true")
    assert [argv[-1] for argv in found] == [b"query/3/0/10", b"own"]


def test_large_batches_are_encoded_in_parts(monkeypatch):
    monkeypatch.setattr(job_columns, "SLICE_BYTES", 100)
    bodies = [f"{number:050d}" for number in range(20)]
    assert [argv[2].decode() for argv in commands({"body": bodies}, queue="q")] == bodies


def test_rows_that_cannot_be_jobs_are_returned_with_their_reason():
    metas = [[("k", None), ("l", None)], [("k", None)], [], [("k", "v"), ("l", None)]]
    batch = pa.record_batch({"body": ["a", None, "c", "d"], "meta": pa.array(metas, META)})
    words = add_words(Options("disque", {"queue": "q"}, ADD_OPTIONS))
    body, value = "the column body is null", "a value in the column meta is null"
    assert rows_refused(batch, words) == {0: value, 1: body, 3: value}
    assert rows_refused(batch.slice(1), words) == {0: body, 2: value}
    assert rows_refused(batch.slice(2, 1), words) == {}


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"queue": "string"}, "the column body is missing"),
        ({"body": "string"}, "there is no column queue and no option queue"),
        ({"body": "double", "queue": "string"}, "column body is double, but must be string or binary"),
        ({"body": "string", "queue": "string", "ttl": "string"}, "column ttl is string"),
        ({"body": "string", "queue": "string", "meta": "map<string,int>"}, "column meta is map<string,int>"),
        ({"body": "string", "queue": "string", "id": "long"}, "the sink has no column 'id'"),
    ],
)
def test_columns_are_checked_by_name_and_type(columns, text):
    with pytest.raises(SchemaError, match=text):
        check_columns(list(columns.items()), has_queue_option=False)
    check_columns([("BODY", "binary"), ("dedupkey", "string"), ("priority", "integer")], has_queue_option=True)


def test_two_columns_of_one_name_are_refused():
    """Spark compares names without case, and a DataFrame may have a name twice."""
    with pytest.raises(SchemaError, match="there are two columns body; leave one out"):
        check_columns([("body", "string"), ("BODY", "string")], has_queue_option=True)


def test_replicate_0_is_refused():
    with pytest.raises(OptionError, match="replicate must be at least 1"):
        add_words(Options("disque", {"replicate": "0"}, ADD_OPTIONS))
