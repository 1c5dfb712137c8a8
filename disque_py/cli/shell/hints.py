"""The rest of a command that is being typed (pure).

A form such as `QSCAN [cursor] [COUNT count] [BUSYLOOP]` is read as parts. Words in capitals are keywords, words in
lower case are values, and brackets mark optional parts. Each typed word consumes a part: an optional part with this
keyword, in any place, else the next part. The parts left over are the hint.
"""

from __future__ import annotations

import re
from typing import Final

from disque_py.cli.shell.command_docs import CommandDoc, CommandDocs

_PARTS: Final = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]|\S+")


def parts_of(form: str) -> list[str]:
    """Return a form's parts without its name; a bracket with its content is one part."""
    return _PARTS.findall(form)[1:]


def remaining_parts(form: str, typed: list[str]) -> list[str] | None:
    """Return the parts that the typed words after the name leave over; None if the words don't fit the form."""
    parts = parts_of(form)
    at = 0
    while at < len(typed):
        keyword = _keyword_part(parts, typed[at])
        if keyword is None:
            part = _next_value(parts)
            if part is None or not _fits(parts[part], typed[at]):
                return None
            at += 1
            if not _may_repeat(parts[part]):
                del parts[part]
            continue
        values = _inside(parts[keyword])[1:]
        at += 1
        given = [word for word in values if word != "..."][: len(typed) - at]
        at += len(given)
        missing = values[len(given) :]
        if "..." not in parts[keyword] or missing not in ([], ["..."]):
            # Parts in front of a required keyword can't be given any more.
            parts = (
                parts[keyword + 1 :] if not parts[keyword].startswith("[") else parts[:keyword] + parts[keyword + 1 :]
            )
            parts = [word for word in missing if word != "..."] + parts
    return parts


def hint(docs: CommandDocs, typed: list[str], *, is_word_over: bool) -> str:
    """Return the rest of the syntax behind the words typed so far; empty if there is none.

    is_word_over: a space follows the last word, so the word is complete.
    """
    doc = docs.get(typed[0].upper()) if typed else None
    if doc is None or not (is_word_over or len(typed) == 1):
        return ""
    rests = [rest for form in doc.forms if (rest := remaining_parts(form, typed[1:])) is not None]
    if len(rests) > 1 and len(typed) == 1 and _has_subcommands(doc):
        return "|".join(dict.fromkeys(rest[0] for rest in rests if rest))
    longest: list[str] = []
    for rest in rests:
        if len(rest) > len(longest):
            longest = rest
    return " ".join(longest)


def next_words(docs: CommandDocs, typed: list[str]) -> list[str]:
    """Return the keywords and choices that may follow complete words; command names after none."""
    if not typed:
        return sorted(docs)
    doc = docs.get(typed[0].upper())
    if doc is None:
        return []
    found: dict[str, None] = {}
    for form in doc.forms:
        for part in remaining_parts(form, typed[1:]) or []:
            for choice in _choices(_inside(part)[0] if _inside(part) else ""):
                found[choice] = None
            if not part.startswith("["):
                break
    return list(found)


def next_values(docs: CommandDocs, typed: list[str]) -> list[str]:
    """Return the values that may follow complete words, as the syntax names them: `queue`, `id`."""
    doc = docs.get(typed[0].upper()) if typed else None
    found: dict[str, None] = {}
    for form in doc.forms if doc is not None else ():
        for part in remaining_parts(form, typed[1:]) or []:
            first = (_inside(part) or [""])[0]
            if first and first != "..." and not _choices(first):
                found[first] = None
            if not part.startswith("["):
                break
    return list(found)


def _has_subcommands(doc: CommandDoc) -> bool:
    return all(parts and parts[0].isupper() and not parts[0].startswith("[") for parts in map(parts_of, doc.forms))


def _keyword_part(parts: list[str], word: str) -> int | None:
    """Return the index of the part whose keyword this word is."""
    for index, part in enumerate(parts):
        first = _inside(part)[:1]
        if first and first[0].isupper() and word.upper() in first[0].split("|"):
            return index
        if not part.startswith("["):
            return None  # A part that must come first.
    return None


def _next_value(parts: list[str]) -> int | None:
    """Return the index of the first part that takes a value without a keyword."""
    for index, part in enumerate(parts):
        first = _inside(part)[:1]
        if first and not first[0].isupper():
            return index
        if not part.startswith("["):
            return None
    return None


def _fits(part: str, word: str) -> bool:
    """Return whether a word fits a part: it is one of the words to choose from, or the part is a value."""
    choices = _choices(_inside(part)[0])
    return not choices or word.lower() in map(str.lower, choices)


def _choices(word: str) -> list[str]:
    """Return the words that may be typed in the place of `word` in a form; none for a value."""
    return word.split("|") if word.isupper() or "|" in word else []


def _may_repeat(part: str) -> bool:
    return part.endswith("...]") or part == "..."


def _inside(part: str) -> list[str]:
    """Return the words of a part, without its brackets."""
    return part.removeprefix("[").removesuffix("]").split() if part.startswith("[") else [part]
