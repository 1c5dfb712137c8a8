"""Schedules: calls of tasks at the times of a cron expression, or at regular intervals.

    @app.schedule("*/5 * * * *")
    @app.task
    def clean_up() -> None: ...

The program declares them, and the cluster keeps and fires them (docs/schedules.md). So no process has to run for them.
A worker installs the schedules of its app when it starts. Setting a schedule again would start its ticks again. So the
worker asks first, and does not touch a schedule that is as declared. Any number of workers may start at the same time.

The names of an app's schedules begin with the app's name and a colon. A schedule with such a name that the program no
longer declares is reported. It is removed only with `--prune`, because during a deployment workers of the older program
still declare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from disque_py.client import commands, schedule_commands
from disque_py.client.aio import AsyncDisque
from disque_py.client.dialect import NOT_WHILE, is_misunderstood
from disque_py.client.errors import AuthError, NoPermissionError, ReplyError
from disque_py.client.protocol import text
from disque_py.client.request import Request
from disque_py.client.schedule_commands import Catchup, Overlap, ScheduleInfo
from disque_py.client.spans import Seconds, milliseconds, seconds

if TYPE_CHECKING:
    from disque_py.tasks.task import BaseTask

# Options that a schedule does not take, because they concern a single call.
REFUSED: Final = ("key", "window", "batch", "zones", "replace")


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule as the program declares it. The fields are those of `App.schedule`."""

    name: str
    task: BaseTask[..., Any]
    cron: str | None = None
    every: Seconds | None = None
    time_zone: str = "UTC"
    catchup: Catchup = "last"
    overlap: Overlap = "allow"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise ValueError("a schedule needs either a cron expression or `every`")
        self.task.bind(self.args, self.kwargs)
        refused = [name for name in REFUSED if name in self._options()[2]]
        if refused:
            raise ValueError(f"a schedule does not support {', '.join(refused)}")
        self.request()  # A span that no command takes is an error of the declaration, too.

    def _options(self) -> tuple[str, bytes, dict[str, Any]]:
        """Return queue, body and options of its jobs."""
        message = self.task.message(self.args, self.kwargs)
        return message.queue, message.body, message.options

    def request(self) -> Request[str]:
        """Return SCHEDULE SET."""
        queue, body, options = self._options()
        return schedule_commands.schedule(
            self.name,
            queue,
            body,
            cron=self.cron,
            every=self.every,
            time_zone=self.time_zone,
            catchup=self.catchup,
            overlap=self.overlap,
            **options,
        )

    def is_installed(self, info: ScheduleInfo | None) -> bool:
        """Return whether the cluster has exactly this schedule."""
        if info is None:
            return False
        queue, body, options = self._options()
        wanted = sorted(text(word) for word in commands.add_options(**options))
        return (
            (info.cron, _span(info.every), info.time_zone) == (self.cron, _span(self.every), self.time_zone)
            and (info.catchup, info.overlap) == (self.catchup, self.overlap)
            and (info.queue, info.body, sorted(info.options)) == (queue, body, wanted)
        )


def _span(every: Seconds | None) -> int | None:
    """Return the milliseconds between two ticks."""
    if every is None:
        return None
    return milliseconds("every", every) if isinstance(every, timedelta) else 1000 * seconds("every", every)


@dataclass(frozen=True, slots=True)
class Installed:
    """The outcome of an installation: names of schedules.

    changed    schedules that were set
    leftover   schedules of the app that it does not declare
    removed    leftover schedules that were removed
    refused    schedules that the cluster refuses, and the reason of each
    """

    changed: list[str]
    leftover: list[str]
    removed: list[str]
    refused: dict[str, str] = field(default_factory=dict)


def is_final(error: ReplyError) -> bool:
    """Return whether a refusal does not pass by itself."""
    if isinstance(error, (AuthError, NoPermissionError)):
        return True
    return is_misunderstood(error) and not str(error).startswith(NOT_WHILE)


async def install(client: AsyncDisque, app_name: str, plans: Mapping[str, Plan], *, prune: bool = False) -> Installed:
    """Install the schedules of an app in the cluster.

    prune   remove schedules of the app that it does not declare

    A schedule that is refused for good does not keep the others out. Raises ReplyError for a refusal that may pass, and
    the errors of every command.
    """
    outcome = Installed([], [], [])
    for name, plan in plans.items():
        try:
            if not plan.is_installed(await client.schedule_info(name)):
                await client.run(plan.request())
                outcome.changed.append(name)
        except ReplyError as error:
            if not is_final(error):
                raise
            outcome.refused[name] = str(error)
    for name in await client.schedules(f"{glob_of(app_name)}:*"):
        if name not in plans:
            if prune and await client.delete_schedule(name):
                outcome.removed.append(name)
            else:
                outcome.leftover.append(name)
    return outcome


def glob_of(name: str) -> str:
    """Return a pattern that matches this name only."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in name)


def tick_of(meta: Mapping[str, str]) -> datetime | None:
    """Return the planned time of a schedule's job; None for other jobs."""
    found = meta.get("x-disque-tick", "")
    return datetime.fromtimestamp(int(found) / 1000, UTC) if found.isdigit() else None
