"""Middleware at the adding of tasks; test_runner.py has their running."""

from __future__ import annotations

import asyncio

from disque_py.tasks import App, Context, Middleware


class Tenant(Middleware):
    """Sends a name along."""

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
