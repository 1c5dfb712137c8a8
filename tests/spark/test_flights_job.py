"""disque_py/cli/demo_spark/flights_job.py: flights as the rows of jobs."""

from __future__ import annotations

from disque_py.cli.demo_spark.flights_job import indexed_events, jobs_of

LINE = (
    '{"row":7,"year":2013,"dep_time":517,"sched_dep_time":515,"carrier":"UA","flight":1545,"tailnum":"N14228",'
    '"origin":"EWR","dest":"IAH","time_hour":"2013-01-01T10:00:00Z"}'
)


def test_a_flight_is_a_job_with_its_departure_as_priority_and_four_words_of_metadata(spark, tmp_path):
    (tmp_path / "flights").write_text(LINE + "\n" + LINE.replace('"N14228"', "null").replace('"row":7', '"row":8'))
    rows = sorted(jobs_of(spark, str(tmp_path / "flights")).collect(), key=lambda row: row.dedupKey)
    assert rows[0].body == LINE
    assert (rows[0].queue, rows[0].dedupKey) == ("UA", "7")
    assert rows[0].priority == 1357035300000  # 2013-01-01 10:15 UTC
    assert rows[0].meta == {"carrier": "UA", "origin": "EWR", "dest": "IAH", "tailnum": "N14228"}
    assert rows[1].meta == {"carrier": "UA", "origin": "EWR", "dest": "IAH"}


def test_indexed_events_are_counted_by_the_numbers_of_the_logs():
    offset = '{"nodes": {"a": {"log": "x", "next": 11}, "b": {"log": "y", "next": 1}}}'
    assert indexed_events({"sources": [{"endOffset": offset}]}) == 10
