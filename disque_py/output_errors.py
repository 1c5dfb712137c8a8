"""The end of a program whose output can't be written: a full disk behind `> file`, or a closed pipe.

All programs end with one sentence on standard error and status 1. After a closed pipe there is no sentence, because its
reader has read enough. disque-server and disque-cli call `end_output` themselves; the other programs are click commands
with `SafeOutput`.

This module is a leaf without click, which disque-server and disque-cli don't load.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

FAILURE: Final = 1
# The errors of write(2) for a file, a pipe or a terminal.
_WRITING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE})


def is_output_error(error: OSError) -> bool:
    """Return whether an error came from writing to a stream. The error of a file that was opened has its name."""
    return error.errno in _WRITING and error.filename is None


def end_output(error: OSError) -> int:
    """Tell the user that the output can't be written, and drop the rest of it. Return the exit status."""
    if not isinstance(error, BrokenPipeError):
        with suppress(OSError):  # Standard error may be the same full disk.
            sys.stderr.write(f"Error: the output can't be written: {error.strerror}\n")
            sys.stderr.flush()
    # Otherwise Python would try again at exit, and print another error.
    with suppress(OSError, ValueError, AttributeError):  # It may be closed, or no file.
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)
    return FAILURE


@contextmanager
def naming(file: os.PathLike[str] | str) -> Iterator[None]:
    """Add a file's name to the errors of writing it, in which Python has none."""
    try:
        yield
    except OSError as error:
        if not is_output_error(error):
            raise
        raise OSError(error.errno, error.strerror, str(file)) from error


class SafeOutput:
    """The first base of a click command or group that is a whole program."""

    def main(self, *args: Any, **words: Any) -> Any:
        """Run the program, as click does. click itself handles a closed pipe only."""
        try:
            try:
                return super().main(*args, **words)  # type: ignore[misc]
            except SystemExit:
                if sys.stdout is not None:
                    sys.stdout.flush()  # Python flushes after this, where no sentence can be printed.
                raise
        except OSError as error:
            if not is_output_error(error):
                raise
            sys.exit(end_output(error))
