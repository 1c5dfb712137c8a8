"""resp/requests.py: the protocol's limits and errors. The fast parser returns the careful parser's result, or none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disque_py.resp.requests import (
    ARGUMENTS_MAX,
    INLINE_BYTES_MAX,
    IS_COMPILED,
    RequestError,
    RequestParser,
    whole_requests,
)

BULK_MAX = 64 * 1024 * 1024
TOO_LONG = "ERR Protocol error: invalid bulk length, at most %d bytes (proto-max-bulk-len)"


def encode(*argv):
    return b"*%d\r\n" % len(argv) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in argv)


def parse(*chunks, bulk_max=BULK_MAX):
    """Return the requests and the error after these chunks."""
    parser = RequestParser(bulk_max)
    requests = []
    for chunk in chunks:
        requests += parser.feed(chunk)
    return requests, parser.error


def parse_carefully(data, bulk_max=BULK_MAX):
    """Return the requests as the careful parser reads them."""
    parser = RequestParser(bulk_max)
    requests = []
    try:
        parser._careful(data, 0, requests, is_one=False)
    except RequestError as error:
        return requests, error.text
    return requests, ""


# -- requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "requests"),
    [
        (encode(b"PING"), [[b"PING"]]),
        (encode(b"PING") + encode(b"QLEN", b"q"), [[b"PING"], [b"QLEN", b"q"]]),
        (encode(b"ADDJOB", b"q", b"", b"0"), [[b"ADDJOB", b"q", b"", b"0"]]),
        (encode(b"a\r\n$3\r\nb"), [[b"a\r\n$3\r\nb"]]),
        (b"*0\r\n" + encode(b"PING"), [[b"PING"]]),
        (b"*-1\r\n" + encode(b"PING"), [[b"PING"]]),
        (b"*+2\r\n$04\r\nQLEN\r\n$+1\r\nq\r\n", [[b"QLEN", b"q"]]),
        (b"*1\r\n$\r\n\r\n", [[b""]]),
        (b"PING\r\n", [[b"PING"]]),
        (b"PING\n", [[b"PING"]]),
        (b"PING\nPING\n", [[b"PING"], [b"PING"]]),
        (b"\r\n\n  \r\nPING\r\n", [[b"PING"]]),
        (b"  QLEN \t q  \r\n", [[b"QLEN", b"q"]]),
        (b'ADDJOB q "a b" 0\r\n', [[b"ADDJOB", b"q", b"a b", b"0"]]),
        (b'ADDJOB q "" 0\r\n', [[b"ADDJOB", b"q", b"0"]]),
        (rb'X "\n\r\t\b\a\\\"\x41\q"' + b"\r\n", [[b"X", b'\n\r\t\b\a\\"Aq']]),
        (rb"X 'it\'s \n'" + b"\r\n", [[b"X", rb"it's \n"]]),
        (b"PING\r\n" + encode(b"QLEN", b"q") + b"PING\r\n", [[b"PING"], [b"QLEN", b"q"], [b"PING"]]),
        (b"$4\r\nPING\r\n", [[b"$4"], [b"PING"]]),
        (b"", []),
    ],
)  # fmt: skip
def test_requests_are_arrays_or_lines(data, requests):
    assert parse(data) == (requests, "")
    assert parse(*[data[at : at + 1] for at in range(len(data))]) == (requests, "")


def test_an_unfinished_request_waits_for_its_rest():
    data = encode(b"ADDJOB", b"q", b"x" * 1000, b"0")
    parser = RequestParser(BULK_MAX)
    assert parser.feed(data[:500]) == []
    assert 500 <= parser.pending_bytes <= 800  # Includes the overhead of each argument.
    assert parser.feed(data[500:]) == [[b"ADDJOB", b"q", b"x" * 1000, b"0"]]
    assert parser.pending_bytes == 0


@pytest.mark.parametrize("cut", range(41))
def test_a_complete_request_before_an_incomplete_one_is_read(cut):
    """A chunk may end anywhere, also between two arguments: many clients write header and arguments separately."""
    data = encode(b"PING") + encode(b"QLEN", b"queue")
    assert parse(data[:cut], data[cut:]) == ([[b"PING"], [b"QLEN", b"queue"]], "")


def test_a_large_argument_in_many_pieces():
    body = bytes(range(256)) * 4096
    data = encode(b"ADDJOB", b"q", body, b"0") + encode(b"PING")
    chunks = [data[at : at + 65_536] for at in range(0, len(data), 65_536)]
    assert parse(*chunks) == ([[b"ADDJOB", b"q", body, b"0"], [b"PING"]], "")


def test_many_requests_at_once():
    data = encode(b"ADDJOB", b"q", b"x" * 300, b"0") * 1000
    requests, error = parse(data)
    assert (len(requests), error) == (1000, "")


# -- limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"x" * (INLINE_BYTES_MAX + 1), "too big inline request"),
        (b"x" * (INLINE_BYTES_MAX + 1) + b"\r\n", "too big inline request"),
        (b'PING "a\r\n', "unbalanced quotes in request"),
        (b'PING "a"b\r\n', "unbalanced quotes in request"),
        (b"PING 'a\r\n", "unbalanced quotes in request"),
        (b"*" + b"1" * (INLINE_BYTES_MAX + 1), "too big mbulk count string"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1.5\r\n", "invalid multibulk length"),
        (b"* 1\r\n", "invalid multibulk length"),
        (b"*%d\r\n" % (ARGUMENTS_MAX + 1), "invalid multibulk length"),
        (b"*99999999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$" + b"1" * (INLINE_BYTES_MAX + 1), "too big bulk count string"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$%d\r\n" % (BULK_MAX + 1), "invalid bulk length, at most 67108864 bytes (proto-max-bulk-len)"),
    ],
)  # fmt: skip
def test_bytes_that_are_not_a_request_are_a_protocol_error(data, text):
    """Spec R1."""
    expected = f"ERR Protocol error: {text}"
    assert parse(data) == ([], expected)
    assert parse(encode(b"PING") + data) == ([[b"PING"]], expected)
    assert parse(encode(b"PING"), data) == ([[b"PING"]], expected)


def test_after_an_error_nothing_more_is_read():
    assert parse(b"*x\r\n" + encode(b"PING"), encode(b"PING")) == ([], "ERR Protocol error: invalid multibulk length")


def test_lines_and_counts_at_their_limit_are_right():
    line = b"x" * INLINE_BYTES_MAX
    assert parse(line + b"\n") == ([[line]], "")
    parser = RequestParser(BULK_MAX)
    assert parser.feed(b"*%d\r\n" % ARGUMENTS_MAX) == []
    assert parser.error == ""


@pytest.mark.parametrize("pieces", [1, 2])
def test_an_argument_may_be_as_long_as_configured_and_no_longer(pieces):
    """proto-max-bulk-len may be as small as 1024. Spec B5."""
    for size, is_right in ((1024, True), (1025, False)):
        data = encode(b"ADDJOB", b"q", b"x" * size, b"0")
        cut = len(data) // pieces
        requests, error = parse(data[:cut], data[cut:], bulk_max=1024)
        assert (bool(requests), error) == (is_right, "" if is_right else TOO_LONG % 1024)


def test_a_huge_declared_count_reserves_nothing():
    """hiredis would reserve memory for any declared length."""
    parser = RequestParser(BULK_MAX)
    for _ in range(50):
        parser.feed(b"*1000000\r\n")
        assert parser.error in ("", "ERR Protocol error: expected '$', got '*'")
    assert parser.pending_bytes < 1000


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (b"*2\r\n=6\r\n\r\n$:ab\r\n$2\r\nhi\r\n", "="),
        (b"*2\r\n(12\r\n$2\r\nhi\r\n", "("),
        (b"*2\r\n$2\r\nhi\r\n+hi\r\n", "+"),
        (b"*1\r\n+a\r\n*2\r\n$1\r\na\r\n$9\r\n$1\r\na\r\n*1", "+"),
    ],
)
def test_bytes_from_hiredis_are_an_argument_only_if_they_were_a_bulk_string(data, got):
    """hiredis also returns bytes for other text types. A verbatim string could even hide a header in its name."""
    assert parse(data) == ([], f"ERR Protocol error: expected '$', got '{got}'")


def test_where_a_cut_request_begins_is_not_guessed_from_unusual_lengths():
    """hiredis accepts `$01` too. The computed length of the bytes that it has read would then be wrong."""
    data = b"*1\r\n$0000000009\r\nECHO ECHO\r\n*1\r\n$4\r\nPI"
    assert parse(data, b"NG\r\n") == ([[b"ECHO ECHO"], [b"PING"]], "")


def test_a_simple_string_is_not_an_argument_even_if_the_length_fits():
    """Here a dollar at the start of a line in a body makes up for the missing dollar."""
    data = b"*2\r\n+PING\r\n$3\r\n\n$a\r\n"
    assert parse(data) == parse_carefully(data) == ([], "ERR Protocol error: expected '$', got '+'")


# -- both parsers agree ------------------------------------------------------------------------------------

# Bodies with a dollar after a line feed are left out: test_a_simple_string… has them.
words = st.sampled_from((b"", b"a", b"\r\n", b"$1\r\n", b"*1\r\n", b"x" * 20, b"\n*", b"0", b"\xff\0", b"%1\r\n"))
good = st.lists(words, min_size=1, max_size=4).map(lambda argv: encode(*argv))
bits = st.sampled_from(
    (b"*1\r\n", b"*2\r\n", b"*0\r\n", b"*-1\r\n", b"$1\r\n", b"$-1\r\n", b"$0\r\n\r\n", b":1\r\n", b"+OK\r\n",
     b"-E\r\n", b"_\r\n", b"#t\r\n", b",1\r\n", b"%1\r\n", b"~1\r\n", b">1\r\n", b"|1\r\n", b"(1\r\n",
     b"=5\r\ntxt:a\r\n", b"a\r\n", b"PING\r\n", b"\r\n", b"\n", b"\r", b"$", b"*", b"x", b'"', b"*+1\r\n$01\r\na\r\n",
     b"*1000000\r\n", b"*9\r\n")
)  # fmt: skip
streams = st.lists(good | good | bits, max_size=6).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(data=streams, cuts=st.lists(st.integers(0, 80), max_size=4))
@example(data=encode(b"a") + b"*", cuts=[])
@example(data=encode(b"a") + b"*1\r\n", cuts=[])
def test_any_bytes_in_any_pieces_are_parsed_as_by_the_reference_parser(data, cuts):
    """Bytes are fed whole, in a few pieces, and one by one.

    The request at the end shows whether the parser kept leftover bytes.
    """
    data += encode(b"PING")
    expected = parse_carefully(data)
    assert parse(*[data[at : at + 1] for at in range(len(data))]) == expected
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert parse(*[data[start:end] for start, end in pairwise(edges)]) == expected
    assert parse(data) == expected


@settings(max_examples=200, deadline=None)
@given(requests=st.lists(st.lists(words, min_size=1, max_size=4), max_size=5), tail=st.integers(0, 40))
def test_requests_come_through_whole_with_a_tail_of_the_next(requests, tail):
    data = b"".join(encode(*argv) for argv in requests)
    following = encode(b"ADDJOB", b"queue", b"body of the next one", b"0")
    cut = min(tail, len(following) - 1)
    parser = RequestParser(BULK_MAX)
    assert parser.feed(data + following[:cut]) == requests
    assert parser.error == ""
    assert parser.feed(following[cut:]) == [[b"ADDJOB", b"queue", b"body of the next one", b"0"]]


def test_whole_requests_are_read_at_once():
    data = encode(b"PING") + encode(b"ADDJOB", b"q", b"$1\r\n*", b"0")
    assert whole_requests(encode(b"PING")) == [[b"PING"]]
    assert whole_requests(data) == ([[b"PING"], [b"ADDJOB", b"q", b"$1\r\n*", b"0"]] if IS_COMPILED else None)


@pytest.mark.parametrize(
    "tail",
    [b"*", b"*1\r\n", b"PING\r\n", b"*0\r\n", b"*01\r\n$1\r\na\r\n", b"*1\r\n$2\r\nab\n\r", b"*2000000\r\n$1\r\na\r\n"],
)
def test_a_parser_looks_at_requests_that_are_cut_or_unusual(tail):
    assert whole_requests(encode(b"PING") + tail) is None
    assert whole_requests(tail) is None
