"""The error for a wrong option. It has its own module so that `disque-query` need not load the client library."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is missing, unknown or makes no sense; the text names it and says what to do."""
