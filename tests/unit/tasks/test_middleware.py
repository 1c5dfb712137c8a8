"""Middleware when tasks are added. See test_runner.py for middleware when tasks run."""

from __future__ import annotations

import asyncio

from disque_py.tasks import App, Context, Middleware


class Tenant(Middleware):
    """Adds a tenant's name to each task."""

    def adding(self, message):
        message.options["meta"] = {**message.options.get("meta", {}), "tenant": "ada"}


def test_a_message_may_be_changed():
    app = App(middleware=[Tenant()])
    task = app.task(meta={"a": "b"})(lambda: None)
    assert task.call().message().options["meta"] == {"a": "b", "tenant": "ada"}


def test_a_middleware_without_methods_changes_nothing():
    async def proceed():
        return 42

    assert asyncio.run(Middleware().running(Context(), proceed)) == 42
