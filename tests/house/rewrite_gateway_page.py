"""Bring docs/gateway.md into step with its tables: `python tests/house/rewrite_gateway_page.py`.

The parts after MARK come from disque_py/gateway: settings, errors, operations, answers. The text before it is written
by hand. test_gateway_page.py compares the page with the tables, and this program rewrites it. Review the difference.
"""

from __future__ import annotations

import re
from pathlib import Path

from disque_py.gateway import answers, operations, problems, settings
from disque_py.gateway.answers import Record
from disque_py.gateway.logins.grants import ROLES
from disque_py.gateway.operations import Operation

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/gateway.md"
MARK = "<!-- What follows is written by tests/house/rewrite_gateway_page.py. -->\n"


def in_step(text: str) -> str:
    """Return the page with new tables."""
    introduction, mark, _ = text.partition(MARK)
    return introduction + mark + tables()


def tables() -> str:
    """Return settings, roles, errors, a section per operation, and one per record of answers."""
    return "".join(
        [
            "\n## Settings\n\n| setting | default | meaning |\n|---|---|---|\n",
            *(
                line(f"`{each.name}`", f"`{each.default}`" if each.default else "", each.help)
                for each in settings.TABLE
            ),
            "\n## Roles\n\n| role | allows |\n|---|---|\n",
            *(line(f"`{role}`", text) for role, text in ROLES.items()),
            "\n## Errors\n\n| code | HTTP | gRPC | meaning |\n|---|---|---|---|\n",
            *(line(codes(row.codes), str(row.http), row.grpc, row.meaning) for row in problems.TABLE),
            f"\nEvery operation can have: {codes(operations.COMMON_ERRORS)}.\n",
            "\n## Operations\n\n| operation | method and path | role | does |\n|---|---|---|---|\n",
            *(
                line(f"[{each.name}](#{each.name})", f"`{each.verb} {each.path}`", f"`{each.role}`", each.summary)
                for each in operations.TABLE
            ),
            *map(section, operations.TABLE),
            "\n## Answers\n",
            *map(record_section, answers.RECORDS),
        ]
    )


def section(operation: Operation) -> str:
    """Return the section of one operation."""
    head = f"\n### {operation.name}\n\n`{operation.verb} {operation.path}`: {operation.summary}\n\n"
    facts = f"Role `{operation.role}`, command {operation.command}, status {operation.status}."
    facts += f" Answer: {linked(answers.answer_text(operation))}."
    if operation.errors:
        facts += f" Errors: {codes(operation.errors)}."
    if not operation.arguments:
        return f"{head}{facts}\n"
    rows = "".join(
        line(f"`{each.name}`", f"{each.place}{', required' if each.required else ''}", each.help)
        for each in operation.arguments
    )
    return f"{head}{facts}\n\n| argument | in | meaning |\n|---|---|---|\n{rows}"


def record_section(record: Record) -> str:
    """Return the section of one record of answers."""
    rows = "".join(
        line(
            f"`{each.name}`",
            linked(answers.type_text(each.schema)),
            "always" if each.is_always else "sometimes",
            each.help,
        )
        for each in record.fields
    )
    more = " A node may add fields." if record.is_open else ""
    head = f"\n### {record.name} (answer)\n\n{record.help}{more}\n\n"
    return f"{head}| field | type | given | meaning |\n|---|---|---|---|\n{rows}"


def linked(text: str) -> str:
    """Return a text in which each name of a record is a link to its section."""
    words = (
        f"[{word}](#{word.lower()}-answer)" if word in answers.BY_NAME else word for word in re.split(r"(\w+)", text)
    )
    return "".join(words)


def codes(names: tuple[str, ...]) -> str:
    """Return codes separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def line(*cells: str) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(in_step(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
