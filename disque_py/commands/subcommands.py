"""Commands made of subcommands: CLUSTER, CLIENT, CONFIG, DEBUG, LATENCY, SLOWLOG.

Each lists its forms, `name -> Form`. The handler of the command looks the form up. If there is none, it replies with an
error text of its own, because these texts differ between commands.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_py.core.command_entry import Handler

ANY: Final = 1 << 30


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


def text_of(word: bytes) -> str:
    """Return an argument as text. All bytes come back unchanged in an error reply."""
    return word.decode("utf-8", "surrogateescape")
