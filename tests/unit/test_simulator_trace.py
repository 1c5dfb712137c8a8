"""Trace: a hash of all that happened, and text on demand."""

from __future__ import annotations

from disque_py.simulator.trace import FAULT, Trace


def test_the_hash_depends_on_moment_place_and_bytes():
    """Any difference shows."""
    digests = set()
    for at_ms, label, data in ((1, b"ab", b"x"), (2, b"ab", b"x"), (1, b"ba", b"x"), (1, b"ab", b"y")):
        trace = Trace()
        trace.add(at_ms, label, data)
        digests.add(trace.digest())
    assert len(digests) == 4


def test_reading_along_changes_no_hash():
    """A failing seed is played again to be read: it must be the same run."""
    digests = []
    for is_read in (False, True):
        trace = Trace(is_read=is_read)
        trace.add(1, b"a", b"x")
        trace.tell(2, "a fault")
        trace.write(3, "for people")
        digests.append(trace.digest())
    assert digests[0] == digests[1]


def test_lines_around_a_word_come_with_the_faults():
    """What a broken rule names, and the weather it broke in."""
    trace = Trace(is_read=True)
    for text in ("a → b  SETACK j1", "a → b  SETACK j2", f"{FAULT} 0: kill a", "b → a  GOTACK j1"):
        trace.tell(0, text)
    assert len(trace.around(["j1"], 10)) == 3
    assert len(trace.around([], 10)) == 4
    assert len(trace.around([], 2)) == 2
    assert Trace().around([], 5) == []
