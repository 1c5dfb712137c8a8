"""The interactive mode, and commands from standard input when nobody sits there.

Local commands: help, ?, connect, clear, quit, exit, and `<n> <command>`. Everything else goes to the
server. Nothing that a command does ends the mode but quit and the end of input: errors are printed,
a broken connection is made again with the next command.

Spec: disque/cli.md, section 1.5.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.shortcuts import clear

from disque_py.cli.address import Address, parse_port
from disque_py.cli.command_docs import CommandDocs, builtin_docs, docs_of, help_text
from disque_py.cli.completion import CommandCompleter, HintProcessor, PlainHistory
from disque_py.cli.connection import ConnectError, ConnectionLostError
from disque_py.cli.formats import FORMATTED
from disque_py.cli.session import Session
from disque_py.cli.words import UnbalancedQuotesError, split_repeat, split_words

# Commands that take longer are followed by their time.
SLOW_S: Final = 0.5


class Shell:
    """Lines in, their effect out; `line` says whether to go on. Knows no terminal."""

    def __init__(self, session: Session, interval_s: float) -> None:
        self.session = session
        self.docs: CommandDocs = builtin_docs()
        self.failed = False
        self._interval_s = interval_s

    @property
    def prompt(self) -> str:
        """`host:port> `, or that there is no connection."""
        if self.session.connection is None:
            return "not connected> "
        return f"{self.session.target.address.prompt}> "

    def connect(self) -> None:
        """Connect if there is no connection, and ask the server for its docs; print what goes wrong."""
        try:
            self.docs = docs_of(self.session.connect())
        except (ConnectError, ConnectionLostError) as error:
            self.session.drop()
            self._complain(str(error))

    def line(self, text: str) -> bool:
        """Do what one line says. False when it says to leave."""
        try:
            repeat, words = split_repeat(split_words(text))
        except UnbalancedQuotesError as error:
            self._complain(str(error))
            return True
        if not words:
            return True
        name = words[0].lower()
        if name in (b"quit", b"exit"):
            return False
        if name in (b"help", b"?"):
            topic = [word.decode(errors="replace") for word in words[1:]]
            print(help_text(self.docs, topic, with_colour=self.session.style.format is FORMATTED), flush=True)
        elif name == b"clear":
            clear()
        elif name == b"connect":
            self._move(words[1:])
        else:
            self._run(words, repeat)
        return True

    def _move(self, words: list[bytes]) -> None:
        if len(words) != 2:
            self._complain("Usage: connect <host> <port>")
            return
        try:
            address = Address(words[0].decode(errors="replace"), parse_port(words[1].decode(errors="replace")))
        except ValueError as error:
            self._complain(str(error))
            return
        self.session.move(address)
        self.connect()

    def _run(self, words: list[bytes], repeat: int) -> None:
        started = time.monotonic()
        try:
            is_good = self.session.run_repeatedly(words, repeat, self._interval_s)
        except (ConnectError, ConnectionLostError) as error:
            self._complain(str(error) if isinstance(error, ConnectError) else f"Error: {error}")
            return
        except KeyboardInterrupt:
            # The reply may still come; on a new connection it can't be taken for another's.
            self.session.drop()
            self._complain("(interrupted)")
            self.connect()
            return
        self.failed |= not is_good
        elapsed = time.monotonic() - started
        if elapsed >= SLOW_S and self.session.style.format is FORMATTED:
            print(f"({elapsed:.2f}s)")

    def _complain(self, text: str) -> None:
        self.failed = True
        print(text, file=sys.stderr, flush=True)


def history_path() -> Path:
    """Where the history is kept."""
    named = os.environ.get("DISQUECLI_HISTFILE")
    return Path(named) if named else Path.home() / ".disque_history"


def converse(session: Session, interval_s: float) -> int:
    """Talk to the person at the terminal until they leave. The exit status."""
    shell = Shell(session, interval_s)
    shell.connect()
    editor: PromptSession[str] = PromptSession(
        history=PlainHistory(history_path()),
        completer=ThreadedCompleter(CommandCompleter(lambda: shell.docs)),
        complete_while_typing=False,
        input_processors=[HintProcessor(lambda: shell.docs)],
    )
    while True:
        try:
            text = editor.prompt(shell.prompt)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        if not shell.line(text):
            return 0


def obey(session: Session, lines: Iterable[bytes], interval_s: float) -> int:
    """Run commands that come from a pipe or a file, one per line. Exit status 1 if one failed."""
    shell = Shell(session, interval_s)
    for line in lines:
        if not shell.line(line.decode("utf-8", "surrogateescape")):
            break
    return 1 if shell.failed else 0
