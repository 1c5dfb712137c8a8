"""Trace: a hash of all events, and text on demand."""

from __future__ import annotations

from disque_py.simulator.trace import FAULT, Trace


def test_the_hash_depends_on_moment_place_and_bytes():
    """Any difference changes the hash."""
    digests = set()
    for at_ms, label, data in ((1, b"ab", b"x"), (2, b"ab", b"x"), (1, b"ba", b"x"), (1, b"ab", b"y")):
        trace = Trace()
        trace.add(at_ms, label, data)
        digests.add(trace.digest())
    assert len(digests) == 4


def test_observing_a_run_changes_no_hash():
    """A failing seed is played again for its text. It must be the same run."""
    digests = []
    for is_read in (False, True):
        trace = Trace(is_read=is_read)
        trace.add(1, b"a", b"x")
        trace.tell(2, "a fault")
        trace.write(3, "for people")
        digests.append(trace.digest())
    assert digests[0] == digests[1]


def test_lines_around_a_word_come_with_the_faults():
    """The words are the jobs and nodes that a broken rule names."""
    trace = Trace(is_read=True)
    for text in ("a → b  SETACK j1", "a → b  SETACK j2", f"{FAULT} 0: kill a", "b → a  GOTACK j1"):
        trace.tell(0, text)
    assert len(trace.around(["j1"], 10)) == 3
    assert len(trace.around([], 10)) == 4
    assert len(trace.around([], 2)) == 2
    assert Trace().around([], 5) == []


def test_heartbeats_are_left_out_where_no_word_is_looked_for():
    """A frame with other messages beside heartbeats is shown."""
    trace = Trace(is_read=True)
    for text in ("a → b  PING", "b → a  PONG; MEET", "a → b  PONG; QUEUED j1", "a  listens"):
        trace.tell(0, text)
    assert [line.strip() for line in trace.around([], 10)] == ["0.000  a → b  PONG; QUEUED j1", "0.000  a  listens"]


def test_a_long_story_is_shown_with_its_beginning():
    """A job's first lines show where it came from."""
    trace = Trace(is_read=True)
    for at in range(100):
        trace.tell(at, f"line {at} of j1")
    shown = [line.split()[2] for line in trace.around(["j1"], 9)]
    assert shown == ["0", "1", "2", "left", "94", "95", "96", "97", "98", "99"]
