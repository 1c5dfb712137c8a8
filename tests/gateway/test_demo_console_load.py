"""The load of bin/demo --console."""

from __future__ import annotations

from disque_py.cli.demo_console.load import LINES, REASONS


def test_the_shop_has_queues_of_each_kind():
    assert any(line.fails for line in LINES)
    assert any(line.delayed for line in LINES)
    assert any(not line.workers for line in LINES)
    assert all(REASONS)
