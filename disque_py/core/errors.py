"""Errors in replies to clients.

`CommandError(text)` becomes the reply `-<text>`. The first word of the text is the code that programs match on. This
module has the texts that several commands share (spec R8).
"""

from __future__ import annotations

from typing import Final


class CommandError(Exception):
    """A command was refused and changed nothing. `text` is the reply without the leading dash."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


PAUSED: Final = "PAUSED Queue paused in input, try later"
SYNTAX: Final = "ERR syntax error"
NOT_AN_INTEGER: Final = "ERR value is not an integer or out of range"
BAD_ID: Final = "BADID Invalid Job ID format."
LEAVING: Final = "LEAVING This node is leaving the cluster, please connect to a different one"
OOM: Final = "OOM command not allowed when used memory > 'maxmemory'."
NOAUTH: Final = "NOAUTH Authentication required."
MISCONF: Final = "MISCONF Errors writing to the AOF file: "
IN_MULTI: Final = "EXECABORT Not executed: it follows a MULTI, which is not supported. DISCARD ends the transaction"
EXEC_ABORT: Final = "EXECABORT Nothing of the transaction was executed: MULTI is not supported"
LOADING: Final = "LOADING Disque is loading the dataset in memory"
