"""Values as people read them."""

from __future__ import annotations

import pytest

from disque_py.gateway.console import shown


def test_durations_have_two_units_at_most():
    assert [shown.span(ms) for ms in (None, 0, 999, 61_000, 3_660_000, 90_000_000)] == [
        "–", "0 ms", "999 ms", "1 min 1 s", "1 h 1 min", "1 d 1 h",
    ]  # fmt: skip


def test_moments_are_utc_and_nonsense_does_no_harm():
    assert shown.moment(1_795_418_823_491) == "2026-11-23 07:27:03 UTC"
    assert (shown.moment(None), shown.moment(10**30)) == ("–", str(10**30))


def test_numbers_and_sizes_can_be_read():
    assert [shown.number(1234567).replace("\u202f", " "), shown.number(1.25), shown.number(None)] == [
        "1 234 567",
        "1.2",
        "–",
    ]
    assert [shown.size(5), shown.size(1536), shown.size("x")] == ["5 B", "1.5 KiB", "–"]


def test_a_long_text_is_cut():
    assert shown.short("a  b\nc" * 3, 8) == "a b ca …"


def test_a_body_is_shown_in_hexadecimal():
    assert shown.hexdump(b"a\0") == f"00000000  {'61 00':<47}  a."
    assert shown.hexdump(b"x" * 5000).endswith("904 more bytes")


def test_json_is_indented_and_anything_else_is_not_json():
    assert shown.pretty(b'{"a":1}') == '{\n  "a": 1\n}'
    assert [shown.pretty(body) for body in (b"", b"5", b"{", b"[" * 100_000, b'["\xff"]')] == [""] * 5


def test_a_long_body_is_shown_in_part():
    """A page of hundreds of megabytes would stop the gateway, and no browser could show it."""
    assert shown.beginning("é".encode()) == "é"
    assert shown.beginning(b"x" * 300_000).endswith("x\n… 37856 more bytes")
    deep = b"[" * 900 + b"1," * 100_000 + b"1" + b"]" * 900
    assert shown.pretty(deep) == ""
    assert len(shown.pretty(b"[" + b"1," * 50_000 + b"1]")) > 200_000


@pytest.mark.parametrize(
    ("name", "text"),
    [("mail", "mail"), ("  ", '"\u2423\u2423"'), ("\n\t", r'"\n\t"'), ("\u200b", r'"\u200b"'), ("\udce9", "\udce9")],
)
def test_a_name_has_something_to_see(name, text):
    assert shown.named(name) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("\u202eliam", r"\u202eliam"),
        ("ma\u200bil", r"ma\u200bil"),
        ("mail\n", r"mail\n"),
        ("a\udce9\0", "a\udce9\\x00"),
    ],
)
def test_no_name_looks_like_another_one(name, text):
    """A producer could otherwise make a queue that an operator takes for another one, and purges."""
    assert shown.named(name) == text


def test_a_field_with_bytes_that_are_not_utf_8_is_escaped_and_read_again():
    assert shown.field('a"b', "queue") == 'name="queue" value="a&#34;b"'
    assert shown.field("a\udce9%", "queue") == 'name="queue%" value="a%E9%25"'
    assert shown.without_escapes({"queue%": ["a%E9%25"], "to": ["%E9"]}) == {"queue": ["a\udce9%"], "to": ["%E9"]}


def test_bytes_that_are_not_utf_8_are_shown_by_their_number():
    assert shown.encoded("\u00e9 \udce9 \ud800") == "\u00e9 \\xe9 \ufffd".encode()
