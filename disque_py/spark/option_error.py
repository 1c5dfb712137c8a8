"""The error for a wrong option. It has its own module so that `disque-query` doesn't load the client library."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is missing, unknown or has a wrong value. The text names the option and says what to do."""
