"""QSCAN and JSCAN: the words and the reply of a page, and the pages of a scan."""

from __future__ import annotations

from disque_py.client import scans
from request_words import words_of


def test_each_page_is_asked_for_with_the_options_of_the_scan():
    """States may come from a generator, but every page has to name them."""
    page = scans.jscan(count=2, queue="q", states=(state for state in ("queued",)))
    assert [b" ".join(page(cursor).argv) for cursor in (0, 7)] == [
        b"JSCAN 0 COUNT 2 QUEUE q STATE queued",
        b"JSCAN 7 COUNT 2 QUEUE q STATE queued",
    ]
    assert scans.jscan_info()(3).argv == (b"JSCAN", b"3", b"REPLY", b"all")
    assert scans.qscan(minlen=1)(0).argv == (b"QSCAN", b"0", b"MINLEN", b"1")


def test_arguments_become_words():
    """Spec R8."""
    queues = scans.qscan_page(7, count=1, busyloop=True, minlen=2, maxlen=3, importrate=4)
    jobs = scans.jscan_page(queue="q", states=["active", "queued"])
    assert words_of(queues) == "QSCAN 7 COUNT 1 BUSYLOOP MINLEN 2 MAXLEN 3 IMPORTRATE 4"
    assert words_of(jobs) == "JSCAN 0 QUEUE q STATE active STATE queued"
    assert words_of(scans.jscan_info_page(1, busyloop=True)) == "JSCAN 1 BUSYLOOP REPLY all"
    errored = scans.jscan_page(statuses=["errored"], where={"a": "b"}, counted=True)
    assert words_of(errored) == "JSCAN 0 STATUS errored WHERE a b COUNTED"


def test_a_page_is_a_cursor_and_names_or_jobs():
    assert scans.qscan_page().read([b"0", [b"q"]]) == (0, ["q"])
    assert scans.jscan_info_page().read([b"5", [[b"id", b"i", b"state", b"active"]]])[1][0].id == "i"
