"""Arguments that several groups of commands share."""

from __future__ import annotations

from disque_py.client.arguments import REASON_BYTES_MAX, add_pair, of_status, short_reason, where_words


def test_a_filter_is_a_where_for_each_pair():
    """Names and values may be text or bytes. Without a filter, no word is added."""
    assert where_words({"a": b"b", "c": "d"}) == (b"WHERE", b"a", b"b", b"WHERE", b"c", b"d")
    assert where_words(None) == ()


def test_an_option_without_a_value_is_left_out():
    argv = [b"QSCAN"]
    add_pair(argv, b"COUNT", None)
    add_pair(argv, b"MINLEN", 3)
    assert argv == [b"QSCAN", b"MINLEN", b"3"]


def test_a_status_comes_before_the_choice_of_the_cluster():
    assert of_status((b"QLEN",), "running", cluster=True) == (b"QLEN", b"STATUS", b"running", b"CLUSTER")
    assert of_status((b"QLEN",), None, cluster=False) == (b"QLEN",)


def test_a_long_reason_is_cut_between_two_characters():
    """NACK refuses a reason that is too long."""
    cut = short_reason("x" + "é" * REASON_BYTES_MAX)
    assert len(cut) == REASON_BYTES_MAX - 1
    assert cut.decode().endswith("é")
