"""The commands and their syntax, for help, hints and completion.

They come from the server's COMMAND DOCS. Without a server, or with one that has no COMMAND DOCS (the original), they
come from commands.json beside this module. A test in tests/house keeps this file in step with the server's table. A
command may have several forms; each starts with the command's name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from disque_py.cli.connection import Connection
from disque_py.cli.shell.replies import BULK, Reply

_BETWEEN_FORMS: Final = re.compile(r"\n| +\| +")  # A bar without spaces separates words to choose from.

GROUPS: Final = ("connection", "server", "cluster", "queues", "jobs")


@dataclass(frozen=True, slots=True)
class CommandDoc:
    """One command: its name in capitals, a sentence, the first version that has it, its group and its forms."""

    name: str
    summary: str
    since: str
    group: str
    forms: tuple[str, ...]


CommandDocs = dict[str, CommandDoc]


class NoHelpError(Exception):
    """There is no help for these words; the text names similar ones."""


def builtin_docs() -> CommandDocs:
    """Return the docs that come with this program, by name in capitals."""
    text = Path(__file__).with_name("commands.json").read_text(encoding="utf-8")
    return {
        name.upper(): _doc(name, row["summary"], row["since"], row["group"], row["syntax"])
        for name, row in json.loads(text).items()
    }


def docs_of(connection: Connection) -> CommandDocs:
    """Return the docs of this server, or the built-in ones if it has none. Raises ConnectionLostError."""
    return docs_from(connection.call("COMMAND", "DOCS")) or builtin_docs()


def docs_from(reply: Reply) -> CommandDocs:
    """Return the docs in a reply to COMMAND DOCS; none if it is an error reply."""
    docs = {}
    if not reply.is_error:
        for name, entry in reply.pairs().items():
            doc = _doc_from(name.decode(errors="replace"), entry)
            docs[doc.name] = doc
    return docs


def _doc_from(name: str, entry: Reply) -> CommandDoc:
    """Return one entry of COMMAND DOCS: name-value pairs, or summary, since, group and forms in this order."""
    pairs = entry.pairs()
    if b"summary" not in pairs:
        texts = [item.text.decode(errors="replace") for item in entry.items]
        summary, since, group = (*texts, "", "", "")[:3]
        return _doc(name, summary, since, group, texts[3:])
    told = {key: pairs[key].text.decode(errors="replace") if key in pairs else "" for key in _FIELDS}
    syntax = pairs.get(b"syntax", Reply(BULK))
    forms = [form.decode(errors="replace") for form in syntax.texts()] or syntax.text.decode(errors="replace")
    return _doc(name, told[b"summary"], told[b"since"], told[b"group"], forms)


_FIELDS: Final = (b"summary", b"since", b"group")


def _doc(name: str, summary: str, since: str, group: str, forms: list[str] | str) -> CommandDoc:
    """Return a CommandDoc. Forms come as a list, or as one text with bars; with or without the command's name."""
    name = name.upper()
    if isinstance(forms, str):
        forms = _BETWEEN_FORMS.split(forms)
    whole = [form if form.upper().split(" ")[0] == name else f"{name} {form}".rstrip() for form in forms]
    return CommandDoc(name, summary, since, group, tuple(whole) or (name,))


def help_text(docs: CommandDocs, words: list[str], *, with_colour: bool) -> str:
    """Return the text of `help <words>`: a command (or its first words), or @group; the overview without words.

    Raises NoHelpError.
    """
    if not words:
        return _OVERVIEW
    wanted = " ".join(words)
    if wanted.startswith("@"):
        group = wanted[1:].lower()
        found = [doc for _, doc in sorted(docs.items()) if doc.group == group]
    else:
        found = [docs[words[0].upper()]] if words[0].upper() in docs else []
    if not found:
        groups = " ".join("@" + group for group in GROUPS)
        raise NoHelpError(f"No help for '{wanted}'.{_meant(docs, words[0])} Groups: {groups}")
    subcommand = words[1].upper() if len(words) > 1 else ""
    return "\n" + "\n".join(_described(doc, subcommand, with_colour=with_colour) for doc in found)


def _meant(docs: CommandDocs, word: str) -> str:
    from disque_py.cli.shell.suggestions import OTHER_PROGRAMS, closest  # That module reads these docs.

    if (program := OTHER_PROGRAMS.get(word.lower())) is not None:
        return f" Did you mean '{program} {word.lower()} --help'?"
    found = closest(word.upper(), docs) if not word.startswith("@") else closest(word, ["@" + name for name in GROUPS])
    return f" Did you mean '{found}'?" if found else ""


def _described(doc: CommandDoc, subcommand: str, *, with_colour: bool) -> str:
    style = _styled if with_colour else _plain
    forms = [form for form in doc.forms if form.upper().split(" ")[1:2] == [subcommand]] if subcommand else []
    lines = []
    for form in forms or doc.forms:
        name, _, rest = form.partition(" ")
        lines.append("  " + style(name, bold=True) + (" " + style(rest, fg="bright_black") if rest else ""))
    for title, text in (("summary", doc.summary), ("since", doc.since), ("group", doc.group)):
        if text:
            lines.append(f"  {style(f'{title}:', fg='yellow')} {text}")
    return "\n".join(lines) + "\n"


def _styled(text: str, **look: Any) -> str:
    from click import style  # Most runs of disque-cli show no help and should not wait for this import.

    return style(text, **look)


def _plain(text: str, **_: Any) -> str:
    return text


_OVERVIEW: Final = f"""
To get help about a command:  help <command>
             about a group:   help @<group>   ({" ".join("@" + group for group in GROUPS)})
To see the next words:        <tab>
To run a command n times:     <n> <command>
To go to another server:      connect <host> <port>
To clear the screen:          clear
To leave:                     quit

History: ~/.disque_history, or the file that DISQUECLI_HISTFILE names.
"""
