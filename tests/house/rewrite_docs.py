"""Bring the parts of the documents that derive from the commands into step: `python tests/house/rewrite_docs.py`.

disque_py/cli/shell/commands.json comes from disque_py/commands/table.py, so that `disque-cli help` needs no node. The
overview at the head of docs/commands.md, the syntax in each of its sections, and the table of categories in
docs/users.md come from both. The prose of a section is written by hand. test_docs.py compares the files, and this
program rewrites them. Review the difference.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("jobs", "queues", "cluster", "connection", "server")
CATEGORIES_TABLE = re.compile(r"(<!-- categories -->\n).*?(<!-- end of categories -->)", re.DOTALL)
TABLE = re.compile(r"(?<=\n)\| Jobs \| \|\n(?:\|.*\n)+")

Commands = dict[str, dict[str, Any]]
HELP = ROOT / "disque_py/cli/shell/commands.json"


def help_of_table() -> Commands:
    """Return the contents of disque_py/cli/shell/commands.json. The client may not import the server's table."""
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
    """Return name to summary, group and syntax of every command."""
    found: Commands = json.loads(HELP.read_text(encoding="utf-8"))
    return found


def overview_in_step(text: str, commands: Commands) -> str:
    """Return docs/commands.md with a new table of all commands."""
    lines: list[str] = []
    for group in GROUPS:
        lines += ["| Jobs | |", "|---|---|"] if not lines else [f"| **{group.capitalize()}** | |"]
        rows = [(name, row["summary"]) for name, row in commands.items() if row["group"] == group]
        lines += [f"| [`{name.upper()}`](#{name}) | {summary} |" for name, summary in rows]
    return TABLE.sub(lambda _: "\n".join(lines) + "\n", text, count=1)


def reference_in_step(text: str, commands: Commands) -> str:
    """Return docs/commands.md with new summaries and syntax in every section. No sections are added."""
    for name, row in commands.items():
        head = f"### {name.upper()}\n\n"
        forms = [row["syntax"]] if isinstance(row["syntax"], str) else row["syntax"]
        syntax = "\n".join(f"{name.upper()} {form}".strip() for form in forms)
        fresh = f"{head}{row['summary']}\n\n```\n{syntax}\n```\n"
        text = re.sub(
            re.escape(head) + r"[^\n]*\n\n```\n.*?\n```\n", lambda _, fresh=fresh: fresh, text, flags=re.DOTALL
        )
    return text


def categories_in_step(text: str) -> str:
    """Return docs/users.md with a new table of units and their categories."""
    from disque_py.commands.table import COMMANDS
    from disque_py.core.users import CATEGORIES

    lines = ["", "| category | commands |", "|---|---|"]
    for category in CATEGORIES:
        units = sorted(unit.name for each in COMMANDS for unit in each.access.units if category in unit.categories)
        shown = ", ".join(
            f"`{name}`" if "|" not in name else f"<code>{name.replace('|', '&#124;')}</code>" for name in units
        )
        lines.append(f"| `@{category}` | {shown} |")
    table = "\n".join([*lines, "", ""])
    return CATEGORIES_TABLE.sub(lambda found: f"{found[1]}{table}{found[2]}", text, count=1)


def main() -> None:
    """Rewrite the files."""
    users = ROOT / "docs/users.md"
    users.write_text(categories_in_step(users.read_text(encoding="utf-8")), encoding="utf-8")
    commands = help_of_table()
    HELP.write_text(json.dumps(commands, indent=2) + "\n", encoding="utf-8")
    path = ROOT / "docs/commands.md"
    text = overview_in_step(path.read_text(encoding="utf-8"), commands)
    path.write_text(reference_in_step(text, commands), encoding="utf-8")


if __name__ == "__main__":
    main()
