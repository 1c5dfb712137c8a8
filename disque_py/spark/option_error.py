"""The error of a wrong option, apart from what reads options: `disque-query` must not load a client library for it."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is missing, unknown or makes no sense; the text names it and says what to do."""
