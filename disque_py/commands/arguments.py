"""Arguments of commands: the syntax as people read it becomes the tree that COMMAND DOCS shows to programs.

The table has each form as text: `queue [COUNT n] [STATE state ...] [REPLY id|all]`. Words in capitals stand for
themselves, and so do words between bars. Other words are values. Brackets mark optional parts, dots mark repeated ones.
redis-cli and editors want the same as nested maps, in the vocabulary of Redis 7
(https://redis.io/docs/latest/develop/reference/command-arguments/). These are derived here, so the syntax is written
once.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

STRING: Final = "string"
INTEGER: Final = "integer"
DOUBLE: Final = "double"
PURE_TOKEN: Final = "pure-token"
ONEOF: Final = "oneof"
BLOCK: Final = "block"
OPTIONAL: Final = "optional"
MULTIPLE: Final = "multiple"

DOTS: Final = "..."
NUMBERS: Final = {"seconds": DOUBLE} | dict.fromkeys(
    ("bus-port", "client-id", "count", "cursor", "index", "milliseconds", "ms", "ms-timeout", "n", "port", "sec"),
    INTEGER,
)
_PARTS: Final = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]|\S+")


class Argument(NamedTuple):
    """One argument.

    name    unique among its siblings
    kind    STRING, INTEGER, DOUBLE, PURE_TOKEN (a word that stands for itself), or ONEOF, BLOCK (of `parts`)
    text    the value's name for people; empty for ONEOF and BLOCK
    token   the word in front of the value, or the word itself
    flags   OPTIONAL, MULTIPLE
    """

    name: str
    kind: str
    text: str = ""
    token: str = ""
    flags: tuple[str, ...] = ()
    parts: tuple[Argument, ...] = ()

    def with_flag(self, flag: str) -> Argument:
        """Return the same argument, but optional or repeated."""
        return self._replace(flags=(*self.flags, flag))


def arguments_of(form: str) -> tuple[Argument, ...]:
    """Return the arguments of one form, without the command's name."""
    found: list[Argument] = []
    parts = _PARTS.findall(form)
    at = 0
    while at < len(parts):
        part = parts[at]
        at += 1
        if part.startswith("["):
            _add_optional(found, part[1:-1])
        elif part == DOTS:
            found[-1] = found[-1].with_flag(MULTIPLE)
        elif _is_token(part) and at < len(parts) and _is_value(parts[at]):
            found.append(_value(parts[at], part))
            at += 1
        else:
            found.append(_word(part))
    return tuple(found)


def _add_optional(found: list[Argument], inside: str) -> None:
    words = inside.split()
    if words == [DOTS] or (words[-1] == DOTS and found and words[:-1] == [found[-1].text]):
        found[-1] = found[-1].with_flag(MULTIPLE)  # `name [name ...]`
        return
    parts = arguments_of(inside)
    first, *rest = parts
    if not rest:
        # Named after their words, because several may take a `count`.
        found.append(first._replace(name=first.token.lower() or first.name).with_flag(OPTIONAL))
    elif first.token and first.kind != PURE_TOKEN:
        # `AUTH username password`: the first word introduces all others.
        block = (first._replace(token=""), *rest)
        found.append(Argument(first.token.lower(), BLOCK, token=first.token, flags=(OPTIONAL,), parts=block))
    elif first.kind == PURE_TOKEN and len(rest) == 1:
        # `REPLY id|all`
        found.append(rest[0]._replace(name=first.name, token=first.token).with_flag(OPTIONAL))
    else:
        found.append(Argument("-".join(part.name for part in parts), BLOCK, flags=(OPTIONAL,), parts=parts))


def choice_of(forms: list[str]) -> tuple[Argument, ...]:
    """Return several forms of one command as one argument. It is optional if one of the forms is empty."""
    trees = [arguments_of(form) for form in forms if form]
    if len(forms) == 1:
        return trees[0] if trees else ()
    parts = tuple(
        tree[0]._replace(
            name=tree[0].token.lower() or tree[0].name, flags=tuple(flag for flag in tree[0].flags if flag != OPTIONAL)
        )
        if len(tree) == 1
        else Argument(f"form{number}", BLOCK, parts=tree)
        for number, tree in enumerate(trees, 1)
    )
    flags = (OPTIONAL,) if "" in forms else ()
    return (Argument("form", ONEOF, flags=flags, parts=parts),)


def subcommands_of(forms: list[str]) -> dict[str, list[str]]:
    """Return name in lower case -> the rest of its form, for each subcommand; empty if there are none.

    An empty form, of a command that works without arguments, is no subcommand.
    """
    if len(forms) < 2:
        return {}
    found: dict[str, list[str]] = {}
    for form in forms:
        word, _, rest = form.partition(" ")
        if form and (not _is_token(word) or word.startswith("[")):
            return {}
        if form:
            found.setdefault(word.lower(), []).append(rest)
    return found


def _is_token(word: str) -> bool:
    return word.isupper() and "|" not in word and not word.startswith("[")


def _is_value(word: str) -> bool:
    return not word.isupper() and "|" not in word and not word.startswith(("[", DOTS))


def _value(text: str, token: str = "") -> Argument:
    return Argument(text, NUMBERS.get(text, STRING), text, token)


def _word(part: str) -> Argument:
    if "|" in part:
        words = tuple(Argument(word.lower(), PURE_TOKEN, word, word) for word in part.split("|"))
        return Argument("-or-".join(word.name for word in words), ONEOF, parts=words)
    if _is_token(part):
        return Argument(part.lower(), PURE_TOKEN, part, part)
    return _value(part)
