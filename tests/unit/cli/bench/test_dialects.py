"""disque_py/cli/bench/dialects.py: requests as bytes, and counted replies."""

from __future__ import annotations

import hiredis
import pytest

from disque_py.cli.bench.dialects import BEANSTALKD, DIALECTS, DISQUE, REDIS_LIST, REDIS_STREAM, Floor

ID = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
JOB = b"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n" + ID + b"\r\n$3\r\nabc\r\n"
ENTRY = b"*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n7-0\r\n*2\r\n$1\r\nb\r\n$3\r\nabc\r\n"
RESERVED = b"RESERVED 7 3\r\nabc\r\n"


def words_of(data):
    """Return all commands in some bytes of RESP."""
    reader = hiredis.Reader()
    reader.feed(data)
    return list(iter(reader.gets, False))


@pytest.mark.parametrize(
    ("dialect", "reply", "ids"),
    [
        (DISQUE, JOB, [ID]),
        (REDIS_LIST, b"$3\r\nabc\r\n", [b""]),
        (REDIS_STREAM, ENTRY, [b"7-0"]),
        (BEANSTALKD, RESERVED, [b"7"]),
    ],
)
def test_a_reply_to_get_has_the_line_feeds_and_the_id_that_the_dialect_knows(dialect, reply, ids):
    assert reply.count(b"\n") == dialect.get("q").marks
    assert list(dialect.ids(reply * 3)) == ids * 3
    assert dialect.trouble not in reply * 2


def test_disque_jobs_are_added_with_copies_and_delay():
    assert words_of(DISQUE.add("q", b"abc", delay_s=2, replicate=3).data) == [
        [b"ADDJOB", b"q", b"abc", b"5000", b"REPLICATE", b"3", b"DELAY", b"2"]
    ]
    assert words_of(DISQUE.add("q", b"abc").data) == [[b"ADDJOB", b"q", b"abc", b"0"]]


def test_acknowledgements_are_one_request_for_each_id():
    assert words_of(DISQUE.acks("q", b"abc", [ID, ID])) == [[b"ACKJOB", ID]] * 2
    assert words_of(REDIS_LIST.acks("q", b"abc", [b"", b""])) == [[b"LREM", b"q.taken", b"1", b"abc"]] * 2
    assert words_of(REDIS_STREAM.acks("q", b"abc", [b"7-0"])) == [[b"XACK", b"q", b"g", b"7-0"]]
    assert BEANSTALKD.acks("q", b"abc", [b"7", b"8"]) == b"delete 7\r\ndelete 8\r\n"


def test_only_a_blocking_get_waits():
    assert b"NOHANG" in DISQUE.get("q").data
    assert b"NOHANG" not in DISQUE.get("q", is_blocking=True).data
    assert words_of(REDIS_LIST.get("q", is_blocking=True).data)[0][0] == b"BLMOVE"
    assert b"BLOCK" in REDIS_STREAM.get("q", is_blocking=True).data
    assert BEANSTALKD.get("q", is_blocking=True).data == b"reserve\r\n"


def test_beanstalkd_counts_the_bytes_of_a_body():
    assert BEANSTALKD.add("q", b"abc", delay_s=2).data == b"put 1024 2 600 3\r\nabc\r\n"


def test_a_dialect_without_jobs_says_so():
    with pytest.raises(LookupError, match="floor has no jobs"):
        Floor().add("q", b"")


def test_every_dialect_has_a_name_and_a_ping():
    assert all(dialect.name == name and dialect.ping().marks == 1 for name, dialect in DIALECTS.items())


def test_a_login_is_one_request_and_the_protocol_itself_stays_without_one():
    assert words_of(DISQUE.with_login("", "secret").login.data) == [[b"AUTH", b"secret"]]
    assert words_of(REDIS_LIST.with_login("ann", "x").login.data) == [[b"AUTH", b"ann", b"x"]]
    assert DISQUE.login is None
    assert BEANSTALKD.with_login("ann", "x").login is None
