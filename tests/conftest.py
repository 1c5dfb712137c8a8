"""For all tests: some look inside in ways that compiled modules don't allow."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from disque_py.server.process import BUILD

# A shell starts what it leaves in the background with SIGINT ignored; all that tests start would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

with suppress(ImportError):  # Some environments have fewer tests, and no Hypothesis.
    from hypothesis import HealthCheck, settings

    # On a busy machine an example may take any time.
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `plain` change modules from outside; compiled ones don't notice (CONTRIBUTING.md)."""
    if BUILD == "compiled":
        skip = pytest.mark.skip(reason="needs the pure Python build")
        for item in items:
            if item.get_closest_marker("plain") is not None:
                item.add_marker(skip)
