"""docs/journal.md agrees with the code: kinds, flags, version, and the example byte by byte."""

from __future__ import annotations

import re

import pytest

from disque_py.core.id_sets import entry_of, pack_id
from persistence import journal, layouts, records
from persistence.journal import CLEAN_NAME
from persistence.layouts import HEADER
from persistence.records import BATCH, DROPPED, GONE, IS_ALWAYS, JOB, KEY, KIND_NAMES, PAUSE, RESULT, STATE, TOKEN, Part
from persistence.recovery import RESTORED_NAME
from persistence.reserved_segment import RESERVE_BYTES, RESERVE_NAME
from rewrite_docs import ROOT

NODE = bytes.fromhex("8217133a4d20b29f0da48a9cd432e6b7eecfc8d7")
JOB_ID = b"D-8217133a-dugKieT4OhbFaCkbzcCg+cdF-05a1"
WALL_MS = 1_700_000_000_000
HEX = re.compile(r"^(?:[0-9a-f]{2})+$")


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs/journal.md").read_text(encoding="utf-8")


def bytes_of(page, name):
    """Return the bytes of an example: from each line the hexadecimal words up to the first other word."""
    found = bytearray()
    for line in re.search(rf"<!-- {name} -->\n```\n(.*?)\n```", page, re.DOTALL).group(1).splitlines():
        shown = re.split(r" {3,}(?=\D*[A-Za-z])|(?<=\S) {3,}", line.strip())[0]
        assert all(HEX.match(word) for word in shown.split()), line
        found += bytes.fromhex(shown)
    return bytes(found)


def rows(page, heading):
    """Return the cells of the table with these headings."""
    table = page.partition(heading)[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_example_of_a_header_is_what_is_written(page):
    data = records.encode_header(2, 0, 498, [Part(1, 0, 0, 498)], NODE, WALL_MS)
    shown = bytes_of(page, "header")
    assert shown == data[: len(shown)]
    assert data[len(shown) :].strip(b"\0") == b""
    assert f"multiple of {records.HEADER_ALIGN}" in page


def test_the_example_of_a_block_is_what_is_written(page):
    """The example has one record of each kind, as core/journaling.py packs it."""
    header = HEADER.pack(WALL_MS * 1_000_000, 86_400_000, 300_000, 0, 1, 0, 0, 0)
    base = layouts.BASE_STATE.pack(layouts.IS_QUEUED | layouts.WAS_QUEUED, -1)
    state = layouts.STATE_FIELDS.pack(layouts.IS_DELIVERED | layouts.IS_LEASED, 300_000, 1, 0, 0, 2)
    runs = [
        [GONE, (JOB_ID, 1)],
        [JOB, (JOB_ID, header, b"mail", b"Dear Ada", NODE, base)],
        [STATE, (JOB_ID, state, None)],
        [PAUSE, (b"mail", 2, 0, b"")],
        [DROPPED, 1],
        [TOKEN, (b"pay-1", 0, [(JOB_ID, 1)])],
        [KEY, (JOB_ID, 86_400_000)],
        [RESULT, (JOB_ID, b"sent", 3_600_000, 3, NODE)],
        [BATCH, (b"day", 4, 2, entry_of(pack_id(JOB_ID), 0, 1))],
    ]
    assert bytes_of(page, "block").hex() == records.encode_block(runs, 498, 498, WALL_MS + 250, IS_ALWAYS).hex()
    assert {run[0] for run in runs} == set(KIND_NAMES)


def test_kinds_are_those_of_the_code(page):
    assert {int(row[0]): row[1] for row in rows(page, "| kind | name |")} == KIND_NAMES


def test_flags_are_those_of_the_code(page):
    named = {name.removeprefix("IS_").replace("_", " ").lower(): getattr(layouts, name) for name in dir(layouts)
             if re.fullmatch(r"IS_[A-Z]+|WAS_QUEUED", name)}  # fmt: skip
    assert {row[1]: int(row[0]) for row in rows(page, "| flag | name |")} == named


def test_numbers_and_names_are_those_of_the_code(page):
    """These are version, sizes, limits and names of files."""
    page = " ".join(page.split())
    assert f"version of the format: {records.VERSION}." in page
    assert f"*base state* ({layouts.BASE_STATE.size} bytes)" in page
    assert f"*state* ({layouts.STATE_FIELDS.size} bytes)" in page
    assert f"*header* ({HEADER.size} bytes)" in page
    assert f"segments of {journal.SEGMENT_BYTES >> 20} MiB" in page
    assert f"a file of {RESERVE_BYTES >> 20} MiB" in page
    assert f"{journal.UNWRITTEN_BYTES_MAX >> 20} MiB of unwritten records" in page
    assert f"older than {journal.LATE_MS // 1000} seconds" in page
    assert f"after {journal.REFUSE_MS // 1000} seconds writes are refused" in page
    for name in (
        CLEAN_NAME,
        RESERVE_NAME,
        RESTORED_NAME,
        records.file_name(12),
        records.file_name(12, 1),
    ):
        assert f"`{name}`" in page
