"""Bring the parts of the documents that derive from the commands into step: `python tests/house/rewrite_docs.py`.

disque_py/cli/shell/commands.json (what `disque-cli help` falls back on) comes from disque_py/commands/table.py; the table of
commands in README.md and the syntax in each section of docs/commands.md come from both. test_docs.py compares; this
rewrites, and the difference is reviewed like any other. The prose of a section is written by hand.
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
HELP = ROOT / "disque_py/cli/shell/commands.json"


def help_of_table() -> Commands:
    """What disque_py/cli/shell/commands.json has to say, by commands/table.py: the client may not import the server."""
    from disque_py.commands.table import COMMANDS

    found: Commands = {}
    for command in sorted(COMMANDS, key=lambda each: each.name):
        forms = command.syntax.split("\n")
        found[command.name] = {
            "summary": command.summary,
            "since": command.since,
            "group": command.group,
            "syntax": forms[0] if len(forms) == 1 else forms,
        }
    return found


def commands_of_help() -> Commands:
    """Name to summary, group and syntax of every command."""
    found: Commands = json.loads(HELP.read_text(encoding="utf-8"))
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
        forms = [row["syntax"]] if isinstance(row["syntax"], str) else row["syntax"]
        syntax = "\n".join(f"{name.upper()} {form}".strip() for form in forms)
        fresh = f"{head}{row['summary']}\n\n```\n{syntax}\n```\n"
        text = re.sub(
            re.escape(head) + r"[^\n]*\n\n```\n.*?\n```\n", lambda _, fresh=fresh: fresh, text, flags=re.DOTALL
        )
    return text


def main() -> None:
    """Rewrite all three."""
    commands = help_of_table()
    HELP.write_text(json.dumps(commands, indent=2) + "\n", encoding="utf-8")
    for name, in_step in (("README.md", readme_in_step), ("docs/commands.md", reference_in_step)):
        path = ROOT / name
        path.write_text(in_step(path.read_text(encoding="utf-8"), commands), encoding="utf-8")


if __name__ == "__main__":
    main()
