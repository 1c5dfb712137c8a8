"""conf/disque.conf, generated from the table of directives.

Run `python -m disque_py.config.sample > conf/disque.conf` after a change of the table; a test compares the two. All
lines are comments and show the defaults, so the file as delivered changes nothing. `#name value` without a blank is a
directive, `# text` is prose.
"""

from __future__ import annotations

import sys
import textwrap
from typing import Final

from disque_py.config.directives import INCLUDE, INCLUDE_HELP, MANAGED, NEVER, SECTIONS, Directive
from disque_py.resp.words import quote_text

WIDTH: Final = 98

INTRODUCTION: Final = """\
# Configuration of a disque-py node
#
#     disque-server disque.conf
#     disque-server disque.conf --port 7712 --bind 127.0.0.1
#
# A line that starts with # but no blank shows the default of a directive, or an example if there is no default.
# Remove the # to set it. Environment variables (DISQUE_TCP_BACKLOG=100) override this file, and directives on the
# command line override both. If a directive is repeated, the last line wins.
# Amounts of memory: 1k is 1000 bytes, 1kb is 1024; also m, mb, g, gb, case-insensitive. Quotes and escapes ("\\n",
# "\\x41") work as in commands. Values marked (live) can be changed with CONFIG SET and saved with CONFIG REWRITE.
"""


def render() -> str:
    """Return the whole file."""
    parts = [INTRODUCTION, "\n", _prose(INCLUDE_HELP), f"#{INCLUDE} /etc/disque/shared.conf\n"]
    for section in SECTIONS:
        parts.append(f"\n# {'=' * 10} {section.title} {'=' * (WIDTH - len(section.title) - 14)}\n")
        parts.extend(_entry(directive) for directive in section.directives)
    return "".join(parts)


def _entry(directive: Directive) -> str:
    if directive.rewriting == NEVER:
        return "\n" + _prose(f"{directive.name}: {directive.help}")
    lines = [" ".join(map(quote_text, words)) for words in directive.kind.lines(directive.default)]
    if directive.example:
        lines = [directive.example]
    live = " (live)" if directive.is_live and directive.rewriting == MANAGED else ""
    return "\n" + _prose(directive.help + live) + "".join(f"#{directive.name} {line}\n" for line in lines)


def _prose(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, WIDTH, break_on_hyphens=False))


if __name__ == "__main__":
    sys.stdout.write(render())
