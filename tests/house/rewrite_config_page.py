"""Bring docs/config.md into step with the table of directives: `python tests/house/rewrite_config_page.py`.

The tables after MARK come from disque_py/config/directives.py. The introduction before it is written by hand.
test_config_page.py compares the page with the table, and this program rewrites it. Review the difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from disque_py.config import kinds
from disque_py.config.directives import INCLUDE, INCLUDE_HELP, KEPT, NEVER, SECTIONS, Directive
from disque_py.config.memory_units import BYTES_MAX, memory_text
from disque_py.resp.words import quote_text

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/config.md"
MARK = "<!-- What follows is written by tests/house/rewrite_config_page.py. -->\n"


def in_step(text: str) -> str:
    """Return the page with new tables."""
    introduction, mark, _ = text.partition(MARK)
    return introduction + mark + tables()


def tables() -> str:
    """Return a section for each section of the configuration."""
    parts = []
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n\n| directive | values | default | live | |\n|---|---|---|---|---|\n")
        parts += [row(directive) for directive in section.directives]
    parts.append(f"\n## include\n\n`{INCLUDE} <path>`: {INCLUDE_HELP}\n")
    return "".join(parts)


def row(directive: Directive) -> str:
    """Return one directive as a line of a table."""
    mark = "°" if directive.rewriting == KEPT else ""
    live = "only" if directive.rewriting == NEVER else "yes" if directive.is_live else "no"
    cells = (f"`{directive.name}`{mark}", values_of(directive.kind), default_of(directive), live, directive.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def default_of(directive: Directive) -> str:
    """Return a directive's default as in a config file."""
    lines = [" ".join(map(quote_text, words)) for words in directive.kind.lines(directive.default)]
    return "<br>".join(f"`{line}`" for line in lines if line and line != '""') or "none"


def values_of(kind: kinds.Kind) -> str:
    """Return a description of a directive's values. Raises LookupError for a kind of values without a description."""
    for known, text in VALUES:
        if isinstance(kind, known):
            words: str = text(kind) if callable(text) else text
            return words
    raise LookupError(f"no words for values of kind {type(kind).__name__}")


def _integer(kind: kinds.Integer) -> str:
    unit = f"{kind.unit}, " if kind.unit else ""
    if kind.high == BYTES_MAX:
        return f"{unit}{'any integer' if kind.low < 0 else f'{kind.low} or more'}"
    return f"{unit}{kind.low} to {kind.high}" + (", others become the nearest" if kind.is_clamped else "")


def _memory(kind: kinds.Memory) -> str:
    bounds = [f"from {memory_text(kind.low)}"] if kind.low else []
    if kind.high != BYTES_MAX:
        bounds.append(f"to {memory_text(kind.high)}")
    return " ".join(["memory", *bounds])


# The first class that fits counts, so special kinds come before the kind that they refine.
VALUES: tuple[tuple[type[kinds.Kind], Any], ...] = (
    (kinds.Flag, "yes, no"),
    (kinds.KeepAlive, lambda kind: f"seconds, 0 to {kind.high}; no, yes"),
    (kinds.Integer, _integer),
    (kinds.Memory, _memory),
    (kinds.Octal, "octal, 0 to 777"),
    (kinds.Choice, lambda kind: ", ".join(kind.words)),
    (kinds.FileName, "file name"),
    (kinds.Text, lambda kind: f"text up to {kind.bytes_max} bytes"),
    (kinds.Addresses, "1 to 16 addresses"),
    (kinds.Seeds, "any number of host:port or host:port@bus-port"),
    (kinds.OutputLimitGroups, "normal or stream, memory, memory, seconds"),
    (kinds.Renames, "command, name"),
)


if __name__ == "__main__":
    PAGE.write_text(in_step(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
