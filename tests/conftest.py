"""For all tests: some look inside in ways that compiled modules don't allow."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from disque_py.server.process import BUILD

# A shell starts what it leaves in the background with SIGINT ignored; all that tests start would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine takes as long as it takes for an example: neither that nor drawing it is a failure of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `plain` change modules from outside; compiled ones don't notice (CONTRIBUTING.md)."""
    if BUILD == "compiled":
        skip = pytest.mark.skip(reason="needs the pure Python build")
        for item in items:
            if item.get_closest_marker("plain") is not None:
                item.add_marker(skip)
