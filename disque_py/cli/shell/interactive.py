"""The interactive mode: a line editor with history, completion and hints in front of lines.py.

The commands quit and exit end it, and the end of input. Spec X3.
"""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import ThreadedCompleter

from disque_py.cli.shell.completion import CommandCompleter, HintProcessor, PlainHistory
from disque_py.cli.shell.lines import Shell
from disque_py.cli.shell.names import NodeNames
from disque_py.cli.shell.session import Session


def history_path() -> Path:
    """Return the path of the history file."""
    named = os.environ.get("DISQUECLI_HISTFILE")
    return Path(named) if named else Path.home() / ".disque_history"


def converse(session: Session, interval_s: float) -> int:
    """Run lines from the terminal until the user leaves. Return the exit status."""
    shell = Shell(session, interval_s)
    shell.connect()
    editor: PromptSession[str] = PromptSession(
        history=PlainHistory(history_path()),
        completer=ThreadedCompleter(CommandCompleter(lambda: shell.docs, NodeNames(lambda: session.target))),
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
        try:
            if not shell.line(text):
                return 0
        except KeyboardInterrupt:
            shell.interrupted()
