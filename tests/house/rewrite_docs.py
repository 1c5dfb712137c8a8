"""Bring the parts of the documents that derive from the commands into step: `python tests/house/rewrite_docs.py`.

The table of commands in README.md and the syntax in each section of docs/commands.md come from
disque_py/cli/commands.json, which is what `disque-cli help` shows. test_docs.py compares; this rewrites, and the
difference is reviewed like any other. The prose of a section is written by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("jobs", "queues", "cluster", "connection", "server")
TABLE = re.compile(r"(?<=\n)\| Jobs \| \|\n(?:\|.*\n)+")

Commands = dict[str, dict[str, Any]]


def commands_of_help() -> Commands:
    """Name to summary, group and syntax of every command."""
    found: Commands = json.loads((ROOT / "disque_py/cli/commands.json").read_text(encoding="utf-8"))
    return found


def readme_in_step(text: str, commands: Commands) -> str:
    """README.md with its table of commands written anew."""
    lines: list[str] = []
    for group in GROUPS:
        lines += ["| Jobs | |", "|---|---|"] if not lines else [f"| **{group.capitalize()}** | |"]
        lines += [f"| `{name.upper()}` | {row['summary']} |" for name, row in commands.items() if row["group"] == group]
    return TABLE.sub(lambda _: "\n".join(lines) + "\n", text, count=1)


def reference_in_step(text: str, commands: Commands) -> str:
    """docs/commands.md with summary and syntax of every section written anew; sections are not added."""
    for name, row in commands.items():
        head = f"### {name.upper()}\n\n"
        fresh = f"{head}{row['summary']}.\n\n```\n" + "\n".join(row["syntax"]) + "\n```\n"
        text = re.sub(
            re.escape(head) + r"[^\n]*\n\n```\n.*?\n```\n", lambda _, fresh=fresh: fresh, text, flags=re.DOTALL
        )
    return text


def main() -> None:
    """Rewrite both."""
    commands = commands_of_help()
    for name, in_step in (("README.md", readme_in_step), ("docs/commands.md", reference_in_step)):
        path = ROOT / name
        path.write_text(in_step(path.read_text(encoding="utf-8"), commands), encoding="utf-8")


if __name__ == "__main__":
    main()
