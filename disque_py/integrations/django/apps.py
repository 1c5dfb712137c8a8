"""The Django application that provides `manage.py disque_worker`."""

from __future__ import annotations

from django.apps import AppConfig


class DisqueConfig(AppConfig):
    """An application without models."""

    name = "disque_py.integrations.django"
    label = "disque"
    verbose_name = "Disque"
