"""core/exclusive_state.py: the state of a node about deliveries under a claim."""

from __future__ import annotations

from disque_py.core.exclusive_state import Running


def test_a_claim_has_the_keys_that_it_needs():
    running = Running(b"q", b"Vv", b"", b"holder", 5, 0, 100, 1)
    assert running.keys == ((b"Vv", 5),)
    both = Running(b"q", b"Vv", b"Jj", b"holder", 5, 6, 100, 1)
    assert both.keys == ((b"Vv", 5), (b"Jj", 6))
