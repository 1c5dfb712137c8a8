"""Session: runs commands one after another, over a connection that is opened again when it has broken.

A command is sent a second time only if the connection was already open before it, because that connection may have
died unnoticed (a restart, `timeout`). If a connection that was opened for this command breaks, the loss is reported
instead, because the command may have run. Even so, a command that is sent again may run twice; docs/cli.md warns of it.

Three commands do not have exactly one reply: MONITOR never ends, SHUTDOWN has none, and CLIENT REPLY turns replies off.
"""

from __future__ import annotations

import sys
import time
from typing import BinaryIO, Final

from disque_py.cli.address import Target
from disque_py.cli.connection import Connection, ConnectionLostError
from disque_py.cli.shell.command_docs import CommandDocs, builtin_docs, docs_of
from disque_py.cli.shell.formats import Style
from disque_py.cli.shell.replies import PUSH, Reply
from disque_py.cli.shell.suggestions import suggestion
from disque_py.client import Address

# Commands that may change the user of a connection.
LOGINS: Final = (b"AUTH", b"HELLO", b"RESET")
_REPLIES_ON: Final = 0
_REPLIES_OFF: Final = 1
_REPLIES_SKIP: Final = 2  # No reply to the next command.


class Session:
    """Runs commands and prints their replies in a style. After a `ConnectError` it has no connection.

    user   the user of the connection, known after `ask_for_docs`; empty: unknown
    """

    def __init__(self, target: Target, style: Style, out: BinaryIO) -> None:
        self.target = target
        self.style = style
        self.connection: Connection | None = None
        self.user = ""
        self._docs: CommandDocs | None = None
        self._is_asking_user = False
        self._out = out
        self._replies = _REPLIES_ON

    @property
    def docs(self) -> CommandDocs:
        """The commands of the server if they are known, else the built-in ones."""
        if self._docs is None:
            self._docs = builtin_docs()
        return self._docs

    def ask_for_docs(self) -> None:
        """Connect if there is no connection, and read the server's docs. Raises ConnectError, ConnectionLostError."""
        self._is_asking_user = True  # The prompt shows it.
        self._docs = docs_of(self.connect())

    def _ask_for_user(self, connection: Connection) -> None:
        """Note the user of the connection, for the prompt. It stays unknown without users or without a login."""
        reply = connection.call("ACL", "WHOAMI")
        self.user = "" if reply.is_error else reply.text.decode(errors="replace")

    def connect(self) -> Connection:
        """Return the connection; open it if there is none. Raises ConnectError."""
        if self.connection is None:
            self.connection = Connection.open(self.target)
            self._replies = _REPLIES_ON
            for warning in self.connection.warnings:
                print(f"Warning: {warning}", file=sys.stderr)
            if self._is_asking_user:
                self._ask_for_user(self.connection)
        return self.connection

    def move(self, address: Address) -> None:
        """Use another address from now on. The next command connects to it."""
        self.drop()
        self.target = self.target.at(address)

    def drop(self) -> None:
        """Close the connection. The next command opens a new one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def run_repeatedly(self, words: list[bytes], repeat: int, interval_s: float) -> bool:
        """Run a command `repeat` times (negative: for ever), with pauses. Return whether none failed."""
        is_good = True
        while repeat:
            is_good &= self.run(words)
            repeat -= 1
            if repeat and interval_s:
                time.sleep(interval_s)
        return is_good

    def run(self, words: list[bytes]) -> bool:
        """Run a command and print its reply. Return False after an error reply.

        Raises ConnectError or ConnectionLostError if no reply came.
        """
        was_open = self.connection is not None
        try:
            return self._run_once(words)
        except ConnectionLostError:
            self.drop()
            if words[0].upper() == b"SHUTDOWN":
                return True
            if not was_open:
                raise
        try:
            return self._run_once(words)
        except ConnectionLostError:
            self.drop()
            raise

    def _run_once(self, words: list[bytes]) -> bool:
        connection = self.connect()
        connection.send(words)
        if not self._has_reply(words):
            return True
        reply = connection.read()
        while reply.kind is PUSH:
            self._print(words, reply)
            reply = connection.read()
        self._print(words, reply)
        if reply.is_error:
            if self._is_asking_user and words[0].upper() in LOGINS:
                self._ask_for_user(connection)
            self._suggest(words, reply)
            return False
        if self._is_asking_user and words[0].upper() in LOGINS:
            self._ask_for_user(connection)
        if words[0].upper() == b"MONITOR":
            self._stream(connection)
        return True

    def _has_reply(self, words: list[bytes]) -> bool:
        """Return whether this command gets a reply. CLIENT REPLY is tracked here as on the server."""
        upper = [word.upper() for word in words]
        asked = upper[2] if upper[:2] == [b"CLIENT", b"REPLY"] and len(upper) == 3 else b""
        if asked == b"ON":
            self._replies = _REPLIES_ON
        elif asked == b"OFF":
            self._replies = _REPLIES_OFF
        elif asked == b"SKIP" and self._replies is _REPLIES_ON:
            self._replies = _REPLIES_SKIP
            return False
        elif self._replies is _REPLIES_SKIP:
            self._replies = _REPLIES_ON
            return False
        return self._replies is _REPLIES_ON

    def _stream(self, connection: Connection) -> None:
        """Print the replies to MONITOR until interrupted. The connection can't be used for commands afterwards."""
        try:
            while True:
                self._print([b"MONITOR"], connection.read())
        except KeyboardInterrupt:
            self.drop()

    def _suggest(self, words: list[bytes], reply: Reply) -> None:
        """Print the word that was probably meant, if a word was misspelled."""
        if (text := suggestion(self.docs, words, reply.text.decode(errors="replace"))) is not None:
            print(text, file=sys.stderr, flush=True)

    def _print(self, words: list[bytes], reply: Reply) -> None:
        self._out.write(self.style.render(words, reply))
        self._out.flush()
