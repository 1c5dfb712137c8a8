"""Words that may come at the end of a line that is being typed (pure).

The interactive mode and the completion scripts of shells use it. hints.py knows the syntax; this module adds the local
commands. It gets names that only the node knows (queues, directives) from a function of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from disque_py.cli.shell.command_docs import GROUPS, CommandDocs
from disque_py.cli.shell.formats import quoted
from disque_py.cli.shell.hints import next_values, next_words

LOCAL_WORDS: Final = ("help", "connect", "clear", "quit", "exit")
QUEUES: Final = "queues"
DIRECTIVES: Final = "directives"

# Returns the names of a kind that a node knows.
Names = Callable[[str], Iterable[bytes]]

# The kind of names that a value of the syntax takes.
_KINDS: Final = {"queue": QUEUES, "directive": DIRECTIVES}
# Values whose kind of names depends on the words before.
_KINDS_BEHIND: Final = {("CONFIG", "GET"): DIRECTIVES, ("QUEUE",): QUEUES}
_PLAIN_NAME: Final = re.compile(rb"[!#-&(-\[\]-~]+")


def split_typed(text: str) -> tuple[list[str], str]:
    """Return the complete words before the cursor, a repeat count left out, and the word being typed."""
    words = text.split(" ")
    complete = [word for word in words[:-1] if word]
    if complete and complete[0].isdigit():
        complete = complete[1:]
    return complete, words[-1]


def keywords_for(docs: CommandDocs, complete: Sequence[str], begun: str, *, local: Sequence[str]) -> list[str]:
    """Return the commands and keywords that may follow, in lower case if the typed word begins in lower case."""
    if complete and complete[0].lower() in ("help", "?"):
        candidates = [*sorted(docs), *(f"@{group}" for group in GROUPS)] if len(complete) == 1 else []
    else:
        candidates = next_words(docs, list(complete))
        if not complete:
            candidates += local
    found = [word for word in candidates if word.lower().startswith(begun.lower())]
    return [word.lower() for word in found] if begun.islower() else found


def names_for(docs: CommandDocs, complete: Sequence[str], begun: str, names: Names) -> list[str]:
    """Return the queues or directives that may follow, quoted where a command line needs it."""
    kind = _kind_of_names(docs, complete)
    if kind is None:
        return []
    shown = {_as_typed(name) for name in names(kind)}
    return sorted(text for text in shown if text.startswith(begun))


def _kind_of_names(docs: CommandDocs, complete: Sequence[str]) -> str | None:
    if not complete:
        return None
    values = next_values(docs, list(complete))
    for value in values:
        if value in _KINDS:
            return _KINDS[value]
    upper = [word.upper() for word in complete]
    behind = (kind for before, kind in _KINDS_BEHIND.items() if tuple(upper[-len(before) :]) == before)
    return next(behind, None) if values else None


def _as_typed(name: bytes) -> str:
    return (name if _PLAIN_NAME.fullmatch(name) else quoted(name)).decode()
