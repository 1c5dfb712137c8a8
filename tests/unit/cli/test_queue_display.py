"""queue_display.py: the table of queues."""

from __future__ import annotations

import io

import pytest

from disque_py.cli.queue_display import age_text, cells_of, columns_for, console_for, footer, queue_table, screen
from disque_py.cli.queue_view import Look, QueueRow


def row(**changes):
    fields = {
        "queue": "mail", "pending": 1234, "running": 0, "invisible": 0, "errored": 0, "oldest_ms": None,
        "rate_in": None, "rate_out": 2.5, "paused": "none", "settings": {"attempts": "5"}, **changes,
    }  # fmt: skip
    return QueueRow(**fields)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(340, "340ms"), (12_000, "12.0s"), (185_000, "3m05s"), (7_800_000, "2h10m"), (367_200_000, "4d06h")],
)
def test_an_age_has_two_units(milliseconds, text):
    assert age_text(milliseconds) == text


def test_a_row_has_these_cells():
    assert cells_of(row()) == ["mail", "1,234", "0", "0", "0", "-", "-", "2.5", "", "attempts=5"]
    assert cells_of(row(paused="in", rate_in=1200.4, oldest_ms=5))[5:9] == ["5ms", "1,200", "2.5", "in"]


def test_the_name_of_a_queue_is_shown_as_it_is():
    out = io.StringIO()
    console_for(out).print(queue_table(Look(0, [row(queue="user:key:1"), row(queue="[b]\x1b[2J")])))
    assert "user:key:1" in out.getvalue()
    assert "[b]\\x1b[2J" in out.getvalue()


def test_a_narrow_terminal_has_fewer_columns():
    """The name of the queue, its jobs and their age stay."""
    assert columns_for(None)[-1] == "settings"
    assert "settings" not in columns_for(70)
    assert columns_for(30) == ["queue", "pending", "errored", "oldest"]


def test_the_footer_counts_what_is_not_shown():
    look = Look(0, [row(), row()], missing=["b" * 40], left_out=3)
    text = footer(look, rows_max=1)
    assert text.startswith("2 queues, 2,468 jobs pending · shorter queues not shown: 1 · queues left out: 3")
    assert text.endswith("without 1 node that did not answer: bbbbbbbb")
    assert footer(Look(0, [row(pending=1)])) == "1 queue, 1 job pending"


def test_a_pipe_gets_whole_lines():
    """This holds however many settings a queue has."""
    out = io.StringIO()
    console_for(out).print(queue_table(Look(0, [row(settings={f"name-{n}": "value" for n in range(8)})])))
    assert "name-7=value" in out.getvalue()
    console_for(out).print(screen(Look(0, [row()]), 5, 80, "title"))
    assert "title" in out.getvalue()
