"""Completion, hints and history of the interactive mode, in prompt_toolkit's terms.

candidates.py and hints.py know the words; this module shows them in the line editor. The history file has the format of
the original, a command per line, so both programs can share one. Passwords are kept out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from disque_py.cli.shell.candidates import LOCAL_WORDS, Names, keywords_for, names_for, split_typed
from disque_py.cli.shell.command_docs import CommandDocs
from disque_py.cli.shell.hints import hint
from disque_py.cli.shell.words import UnbalancedQuotesError, split_line

HISTORY_LINES_MAX: Final = 1000
# Rules of ACL SETUSER with a password or its hash.
SECRET_RULES: Final = (">", "<", "#", "!")
SECRET_DIRECTIVES: Final = frozenset({"requirepass", "cluster-secret", "tls-key-file-pass"})


class CommandCompleter(Completer):
    """Completes commands, keywords, queues and directives when TAB is pressed."""

    def __init__(self, docs: Callable[[], CommandDocs], names: Names = lambda kind: ()) -> None:
        self._docs = docs
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions of the word before the cursor. The line editor calls it."""
        complete, begun = split_typed(document.text_before_cursor)
        docs = self._docs()
        for word in keywords_for(docs, complete, begun, local=LOCAL_WORDS):
            yield Completion(word, start_position=-len(begun))
        for word in names_for(docs, complete, begun, self._names):
            yield Completion(word, start_position=-len(begun))


class HintProcessor(Processor):
    """Shows the rest of the syntax in grey after the cursor. It is never part of the line."""

    def __init__(self, docs: Callable[[], CommandDocs]) -> None:
        self._docs = docs

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return the line as the editor draws it, followed by the hint."""
        document = transformation_input.document
        fragments = transformation_input.fragments
        is_last = transformation_input.lineno == document.line_count - 1
        # After Enter, the line on the screen is the line that was typed, without a hint.
        is_typing = is_last and document.is_cursor_at_the_end and not get_app().is_done
        if is_typing and (text := self._hint(document.text)):
            fragments = [*fragments, ("class:auto-suggestion", text)]
        return Transformation(fragments)

    def _hint(self, text: str) -> str:
        complete, begun = split_typed(text)
        rest = hint(self._docs(), [*complete, begun] if begun else complete, is_word_over=not begun)
        return rest if not rest or not begun else " " + rest


class PlainHistory(History):
    """The history file: one command per line, the newest last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__()

    def load_history_strings(self) -> Iterable[str]:
        """Return the commands, newest first; none if there is no file."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return []
        return lines[: -HISTORY_LINES_MAX - 1 : -1]

    def store_string(self, string: str) -> None:
        """Add a command. If the file can't be written, the history is lost, and the shell goes on."""
        if is_secret(string):
            return
        try:
            self._path.touch(mode=0o600)
            with self._path.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(string.replace("\n", " ") + "\n")
        except OSError:
            return


def is_secret(line: str) -> bool:
    """Return whether a command carries a password."""
    try:
        words = [word.decode("utf-8", "replace").lower() for word in split_line(line)]
    except UnbalancedQuotesError:
        words = line.lower().split()
    if words[:1] and words[0].isdigit():
        words = words[1:]
    return (
        words[:1] == ["auth"]
        or (words[:1] == ["hello"] and "auth" in words)
        or (words[:2] == ["acl", "setuser"] and any(word.startswith(SECRET_RULES) for word in words[3:]))
        or (words[:2] == ["acl", "dryrun"] and is_secret(" ".join(words[3:])))
        or (words[:2] == ["config", "set"] and not SECRET_DIRECTIVES.isdisjoint(words))
    )
