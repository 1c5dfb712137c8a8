"""Put figures into docs/performance.md: python tests/benchmarks/document.py <results file> [<document>]

The document has a table between two markers for each benchmark. The newest full run of that benchmark in the results
file replaces the table. Runs with --quick are skipped, and so are benchmarks that the file does not have.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from catalogue import BENCHMARKS
from figures import Past, Row, Value, markdown_table, read_results
from machine import ROOT, in_words

DOCUMENT = ROOT / "docs" / "performance.md"


def main(argv: list[str]) -> int:
    """Rewrite the document. Return 1 if there are no figures for it."""
    if not 1 <= len(argv) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    path = Path(argv[1]) if len(argv) == 2 else DOCUMENT
    try:
        past = read_results(Path(argv[0]), with_quick=False)
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"document.py: {error}", file=sys.stderr)
        return 1
    if not past.rows:
        print(f"document.py: {argv[0]} has no figures of a full run", file=sys.stderr)
        return 1
    path.write_text(with_figures(text, past), encoding="utf-8")
    return 0


def with_figures(text: str, past: Past) -> str:
    """Return the document with its tables replaced."""
    for benchmark in BENCHMARKS:
        if benchmark.name in past.rows:
            rows = [Row(name, values) for name, values in past.rows[benchmark.name].items()]
            text = replaced(text, benchmark.name, markdown_table(benchmark, rows), past.machines[benchmark.name])
    return text


def replaced(text: str, name: str, table: str, machine: Mapping[str, Value]) -> str:
    """Return the document with a new table between the markers of a name, and the machine below it."""
    told = f"\nOn {in_words(dict(machine))}.\n" if machine else ""
    start, end = f"<!-- figures: {name} -->\n", "<!-- end -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{start}{table}{told}{end}", text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
