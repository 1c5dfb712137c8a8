"""Suggestions for misspelled words: commands, their options and subcommands, options of disque-cli (pure).

session.py asks after an error reply, options.py after an unknown option. Only words in the docs are suggested. If the
server has docs, they are used, so renamed commands are suggested by their new names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from disque_py.cli.shell.command_docs import CommandDoc, CommandDocs

# The least similarity of a suggestion, where 1.0 is equal. In a word of four letters or more, one letter may be
# missing, wrong or swapped.
SIMILARITY_MIN: Final = 0.7
# Keywords of a form.
_KEYWORD: Final = re.compile(r"[A-Z][A-Z-]+|\b[a-z]+(?:\|[a-z]+)+")
# Error replies about the form of a command. Others (no such job, out of memory) are not caused by a misspelling.
_FORM_ERRORS: Final = re.compile(r"syntax error|subcommand|number of arguments", re.IGNORECASE)


# Commands of the other programs, which a user may try here (spec X5).
OTHER_PROGRAMS: Final = {
    "job": "disque-admin",
    "task": "disque-admin",
    "start": "disque-cluster",
    "stop": "disque-cluster",
    "status": "disque-cluster",
    "check": "disque-cluster",
    "create": "disque-cluster",
    "add-node": "disque-cluster",
    "remove-node": "disque-cluster",
    "backup": "disque-cluster",
    "restore": "disque-cluster",
}


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most like the word, or None if none is like it."""
    from difflib import get_close_matches  # Most commands are spelled correctly and don't need it.

    found = get_close_matches(word, candidates, n=1, cutoff=SIMILARITY_MIN)
    return found[0] if found else None


def suggestion(docs: CommandDocs, words: Sequence[bytes], error_text: str) -> str | None:
    """Return `Did you mean '…'?` for a command that was refused; None if no known word is similar."""
    if "did you mean" in error_text.lower():
        return None
    texts = [word.decode("utf-8", "replace") for word in words]
    doc = docs.get(texts[0].upper())
    if doc is None:
        if (program := OTHER_PROGRAMS.get(texts[0].lower())) is not None:
            return _question(f"{program} {texts[0].lower()}")
        name = closest(texts[0].upper(), docs)
        return None if name is None else _question(name)
    if not _FORM_ERRORS.search(error_text):
        return None
    keywords = _keywords(doc)
    for text in texts[1:]:
        if text.upper() in keywords:
            continue
        if (keyword := closest(text.upper(), keywords)) is not None:
            return _question(keywords[keyword])
    return None


def _question(word: str) -> str:
    return f"Did you mean '{word}'?"


def _keywords(doc: CommandDoc) -> dict[str, str]:
    """Return the keywords of all forms: from the keyword in capitals to the keyword as it is written."""
    found = {}
    for form in doc.forms:
        for match in _KEYWORD.findall(form.partition(" ")[2]):
            found.update({word.upper(): word for word in match.split("|")})
    return found
