"""The command `manage.py disque_worker`."""

from __future__ import annotations

import pytest


def test_errors_in_the_command_are_named(site):
    from django.core.management import CommandError, call_command

    with pytest.raises(CommandError, match="no queue unknown"):
        call_command("disque_worker", queues="unknown")
    with pytest.raises(CommandError, match="at least 1"):
        call_command("disque_worker", threads=0)
