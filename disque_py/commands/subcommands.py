"""Commands made of subcommands: CLUSTER, CLIENT, CONFIG, DEBUG, LATENCY, SLOWLOG.

Each lists its forms, `name -> Form`; the handler of the command looks the form up and answers with its own error text
when there is none, because every one of these commands words that differently.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_py.core.command_entry import Handler

ANY: Final = 1 << 30


class Form(NamedTuple):
    """What a subcommand does, and with how many words, command and subcommand included."""

    handler: Handler
    words_min: int
    words_max: int

    def accepts(self, argv: list[bytes]) -> bool:
        """Whether a request has the right number of words."""
        return self.words_min <= len(argv) <= self.words_max


def form_of(forms: dict[bytes, Form], argv: list[bytes]) -> Form | None:
    """The form that a request asks for, None if there is no such subcommand or it has other words."""
    if len(argv) < 2:
        return None
    form = forms.get(argv[1].lower())
    return form if form is not None and form.accepts(argv) else None


def text_of(word: bytes) -> str:
    """An argument as text; whatever bytes it has come back unchanged in an error reply."""
    return word.decode("utf-8", "surrogateescape")
