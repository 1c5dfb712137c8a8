"""Commands made of subcommands: each lists its forms, `name -> Form`.

QUEUE, SCHEDULE, TOPIC, BATCH, LOCK and QTASK leave the rest to `run_form`. It refuses a request with the word that is
wrong. CLUSTER, CLIENT, CONFIG, DEBUG, LATENCY and SLOWLOG have error texts of their own, as in Disque. They look the
form up with `form_of`, and so do commands like them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from disque_py.core.command_entry import Handler
from disque_py.core.errors import SYNTAX, CommandError

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client

# `words_max` of a form that takes any number of words.
ANY: Final = 1 << 30
# A word in an error is cut to a readable length.
SHOWN_BYTES_MAX: Final = 128


class Form(NamedTuple):
    """A subcommand's handler and its number of words, command and subcommand included."""

    handler: Handler
    words_min: int
    words_max: int

    def accepts(self, argv: list[bytes]) -> bool:
        """Return whether a request has the right number of words."""
        return self.words_min <= len(argv) <= self.words_max


def form_of(forms: dict[bytes, Form], argv: list[bytes]) -> Form | None:
    """Return the form of a request; None for an unknown subcommand or a wrong number of words."""
    if len(argv) < 2:
        return None
    form = forms.get(argv[1].lower())
    return form if form is not None and form.accepts(argv) else None


def run_form(forms: dict[bytes, Form], broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """Execute a subcommand. CommandError names the subcommand if it is unknown, else the word that is too much."""
    form = forms.get(argv[1].lower())
    if form is None:
        raise syntax_error(argv[1])
    if not form.accepts(argv):
        raise syntax_error(argv[-1])
    return form.handler(broker, client, argv)


def syntax_error(word: bytes) -> CommandError:
    """Return the error about a word of a request that is wrong."""
    return CommandError(f"{SYNTAX}: '{text_of(word[:SHOWN_BYTES_MAX])}'")


def text_of(word: bytes) -> str:
    """Return an argument as text. All bytes come back unchanged in an error reply."""
    return word.decode("utf-8", "surrogateescape")
