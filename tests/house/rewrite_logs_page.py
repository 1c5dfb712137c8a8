"""Bring docs/logs.md into step with the table of messages: `python tests/house/rewrite_logs_page.py`.

The tables after MARK come from disque_py/log_lines.py. The introduction before it is written by hand.
test_logs_page.py compares the page with the table, and this program rewrites it. Review the difference.
"""

from __future__ import annotations

from pathlib import Path

from disque_py.log_lines import SECTIONS, Message

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/logs.md"
HEAD = "| message | level | text | meaning | what to do |\n|---|---|---|---|---|\n"
MARK = "<!-- What follows is written by tests/house/rewrite_logs_page.py. -->\n"


def in_step(text: str) -> str:
    """Return the page with new tables."""
    introduction, mark, _ = text.partition(MARK)
    return introduction + mark + tables()


def tables() -> str:
    """Return a section for each section of the table."""
    parts = []
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n\n{HEAD}")
        parts += [row(message) for message in section.messages]
    return "".join(parts)


def row(message: Message) -> str:
    """Return one message as a line of a table."""
    cells = (f"`{message.name}`", message.level, f"`{message.template}`", message.meaning, message.advice)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(in_step(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
