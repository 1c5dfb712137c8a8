"""storage/queue_settings_file.py: the settings that count."""

from __future__ import annotations

from disque_py.core.queue_settings import RESET_FIELD
from disque_py.storage.queue_settings_file import QUEUE_SETTINGS

A = b"a" * 20
FIRST = (b"q", b"lease", b"30", 1, A)
SECOND = (b"q", b"colour", b"red", 2, A)


def test_a_rewritten_file_has_only_what_counts():
    reset = (b"q", RESET_FIELD, b"", 3, A)
    other = (b"r", b"lease", b"5", 1, A)
    assert QUEUE_SETTINGS.parse(QUEUE_SETTINGS.rewritten([FIRST, SECOND, reset, other])).items == [reset, other]
