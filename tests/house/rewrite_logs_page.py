"""Bring docs/logs.md into step with the table of messages: `python tests/house/rewrite_logs_page.py`.

The tables behind MARK come from disque_py/log_lines.py; the introduction before it is written by hand.
test_logs_page.py compares; this rewrites, and the difference is reviewed like any other.
"""

from __future__ import annotations

from pathlib import Path

from disque_py.log_lines import SECTIONS, Message

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/logs.md"
HEAD = "| message | level | text | meaning | what to do |\n|---|---|---|---|---|\n"
MARK = "<!-- What follows is written by tests/house/rewrite_logs_page.py. -->\n"


def in_step(text: str) -> str:
    """The page with its tables written anew."""
    introduction, mark, _ = text.partition(MARK)
    return introduction + mark + tables()


def tables() -> str:
    """A section for each of the table's."""
    parts = []
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n\n{HEAD}")
        parts += [row(message) for message in section.messages]
    return "".join(parts)


def row(message: Message) -> str:
    """One message as a line of a table."""
    cells = (f"`{message.name}`", message.level, f"`{message.template}`", message.meaning, message.advice)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(in_step(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
