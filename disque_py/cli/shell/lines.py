"""The commands of the shell, line by line, from a person or a file.

Local commands are help, ?, connect, clear, quit, exit, and `<n> <command>`. All others go to the server. An error does
not end the shell: it is printed, and the next command opens a broken connection again. `obey` reads lines from standard
input; interactive.py has the line editor, which takes long to load.

Spec X3.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Final

from disque_py.cli.address import parse_port, prompt_of
from disque_py.cli.connection import ConnectError, ConnectionLostError
from disque_py.cli.shell.command_docs import CommandDocs, NoHelpError, help_text
from disque_py.cli.shell.formats import FORMATTED
from disque_py.cli.shell.session import Session
from disque_py.cli.shell.words import UnbalancedQuotesError, split_line, split_repeat
from disque_py.client import Address

CLEAR: Final = "\x1b[2J\x1b[H"  # ECMA-48: erase the page, cursor home.
# Commands that take longer are followed by their time.
SLOW_S: Final = 0.5


class Shell:
    """An interpreter of lines, which knows no terminal. `line` returns whether to go on."""

    def __init__(self, session: Session, interval_s: float) -> None:
        self.session = session
        self.failed = False
        self._interval_s = interval_s

    @property
    def docs(self) -> CommandDocs:
        """The commands that help, hints and completion know."""
        return self.session.docs

    @property
    def prompt(self) -> str:
        """The prompt: `host:port> `, after the user's name unless that is `default`; or `not connected> `."""
        if self.session.connection is None:
            return "not connected> "
        user = self.session.user
        named = f"{user}@" if user not in ("", "default") else ""
        return f"{named}{prompt_of(self.session.target.address)}> "

    def connect(self) -> None:
        """Connect if there is no connection, and read the server's docs; print an error if that fails."""
        try:
            self.session.ask_for_docs()
        except (ConnectError, ConnectionLostError) as error:
            self.session.drop()
            self._complain(str(error))

    def line(self, text: str) -> bool:
        """Run one line. Return False for a line that ends the shell."""
        try:
            repeat, words = split_repeat(split_line(text))
        except UnbalancedQuotesError as error:
            self._complain(str(error))
            return True
        if not words:
            return True
        name = words[0].lower()
        if name in (b"quit", b"exit"):
            return False
        if name in (b"help", b"?"):
            self._help([word.decode(errors="replace") for word in words[1:]])
        elif name == b"clear":
            print(CLEAR, end="", flush=True)
        elif name == b"connect":
            self._move(words[1:])
        else:
            self._run(words, repeat)
        return True

    def interrupted(self) -> None:
        """Give up the line that Ctrl-C has interrupted; the shell goes on."""
        # The reply may still come. On a new connection it can't be mistaken for the reply to another command.
        self.session.drop()
        self._complain("(interrupted)")
        try:
            self.connect()
        except KeyboardInterrupt:
            self.session.drop()  # The server does not answer; the prompt says so.

    def _help(self, wanted: list[str]) -> None:
        try:
            print(help_text(self.docs, wanted, with_colour=self.session.style.format is FORMATTED), flush=True)
        except NoHelpError as error:
            self._complain(str(error))

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
        self.failed |= not is_good
        elapsed = time.monotonic() - started
        if elapsed >= SLOW_S and self.session.style.format is FORMATTED:
            print(f"({elapsed:.2f}s)")

    def _complain(self, text: str) -> None:
        self.failed = True
        print(text, file=sys.stderr, flush=True)


def obey(session: Session, lines: Iterable[bytes], interval_s: float) -> int:
    """Run commands that come from a pipe or a file, one per line. Exit status 1 if one failed.

    Ctrl-C ends the whole run, because later lines may depend on the interrupted one.
    """
    shell = Shell(session, interval_s)
    for line in lines:
        if not shell.line(line.decode("utf-8", "surrogateescape")):
            break
    return 1 if shell.failed else 0
