"""Values as people read them."""

from __future__ import annotations

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
    assert shown.pretty('{"a":1}') == '{\n  "a": 1\n}'
    assert [shown.pretty(text) for text in ("", "5", "{", "[" * 100_000)] == [""] * 4
