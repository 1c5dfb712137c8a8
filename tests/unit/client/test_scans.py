"""QSCAN and JSCAN as iterators of both clients."""

from __future__ import annotations

from disque_py.client import scans


def test_each_page_is_asked_for_with_the_options_of_the_scan():
    """States may come from a generator, although every page names them."""
    page = scans.jscan(count=2, queue="q", states=(state for state in ("queued",)))
    assert [b" ".join(page(cursor).argv) for cursor in (0, 7)] == [
        b"JSCAN 0 COUNT 2 QUEUE q STATE queued",
        b"JSCAN 7 COUNT 2 QUEUE q STATE queued",
    ]
    assert scans.jscan_info()(3).argv == (b"JSCAN", b"3", b"REPLY", b"all")
    assert scans.qscan(minlen=1)(0).argv == (b"QSCAN", b"0", b"MINLEN", b"1")
