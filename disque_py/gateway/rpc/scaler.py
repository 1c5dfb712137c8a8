"""KEDA's external scaler: the number of jobs in a queue, and the number for each replica.

Metadata of a trigger: `queue` or `match`, `states` (`pending,running`), `jobsPerReplica` (5), `oldestAgeSeconds`,
`activation` (0), `where` (`name:value`), `cluster`, and `token` or `tokenFromEnv` if the gateway requires a login.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from disque_py.gateway.fields import Pairs
from disque_py.gateway.operations import STATUSES
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.rpc.calls import INTERFACE, Caller
from disque_py.gateway.rpc.descriptors import message

JOBS: Final = "jobs"
OLDEST: Final = "oldestAgeSeconds"
JOBS_PER_REPLICA: Final = 5
LOOK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Trigger:
    """The metadata of one scaled object, checked."""

    queue: str
    match: str
    states: tuple[str, ...]
    jobs_per_replica: int
    oldest_age_s: int
    activation: int
    where: dict[str, str]


def trigger_of(reference: Any) -> Trigger:
    """Return the trigger of a request. Raises RefusedError."""
    words = dict(reference.scalerMetadata)
    queue, match = words.get("queue", ""), words.get("match", "")
    if bool(queue) == bool(match):
        raise RefusedError("ERR", "give queue or match")
    states = tuple({state.strip(): None for state in words.get("states", "pending,running").split(",")})
    if not set(states) <= set(STATUSES):
        raise RefusedError("ERR", f"states must be some of {', '.join(STATUSES)}")
    where = words.get("where", "")
    if where and match:
        raise RefusedError("ERR", "where needs queue")
    pair = Pairs().read_text("where", where) if where else {}
    return Trigger(
        queue,
        match,
        states,
        _number(words, "jobsPerReplica", JOBS_PER_REPLICA, 1),
        _number(words, OLDEST, 0, 0),
        _number(words, "activation", 0, 0),
        pair,
    )


def _number(words: dict[str, str], name: str, default: int, least: int) -> int:
    text = words.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least or len(text) > 15:
        raise RefusedError("ERR", f"{name} must be a whole number of {least} or more")
    return int(text)


async def figures(caller: Caller, trigger: Trigger) -> tuple[int, int]:
    """Return the number of jobs, and the age of the oldest pending one in seconds. Raises RefusedError."""
    picture = await caller.service.board.picture()
    rows = picture.queues
    if trigger.queue:
        found = await caller.ask("depth", queue=trigger.queue, where=trigger.where)
        row = rows.get(trigger.queue)
        oldest_ms = row.oldest_ms if row is not None else None
        return sum(found[state] for state in trigger.states), (oldest_ms or 0) // 1000
    caller.service.check_lists(caller.principal, caller.address, INTERFACE)
    picture.check()
    chosen = [
        row for row in rows.values() if fnmatchcase(row.name, trigger.match) and caller.principal.may("read", row.name)
    ]
    jobs = sum(getattr(row, state) for row in chosen for state in trigger.states)
    return jobs, max((row.oldest_ms or 0 for row in chosen), default=0) // 1000


class Scaler:
    """The methods of ExternalScaler."""

    async def is_active(self, caller: Caller, request: Any) -> Any:
        """Return whether there are more jobs than `activation`."""
        trigger = trigger_of(request)
        jobs, _ = await figures(caller, trigger)
        return message("externalscaler.IsActiveResponse")(result=jobs > trigger.activation)

    async def stream_is_active(self, caller: Caller, request: Any) -> AsyncGenerator[Any]:
        """Send the current value of `is_active`, and each change."""
        last = None
        while True:
            found = await self.is_active(caller, request)
            if found.result != last:
                last = found.result
                yield found
            await asyncio.sleep(LOOK_S)

    async def get_metric_spec(self, caller: Caller, request: Any) -> Any:
        """Return the names of the figures, and their targets per replica."""
        trigger = trigger_of(request)
        spec = message("externalscaler.MetricSpec")
        specs = [spec(metricName=JOBS, targetSize=trigger.jobs_per_replica, targetSizeFloat=trigger.jobs_per_replica)]
        if trigger.oldest_age_s:
            specs.append(spec(metricName=OLDEST, targetSize=trigger.oldest_age_s, targetSizeFloat=trigger.oldest_age_s))
        return message("externalscaler.GetMetricSpecResponse")(metricSpecs=specs)

    async def get_metrics(self, caller: Caller, request: Any) -> Any:
        """Return the figure with this name."""
        trigger = trigger_of(request.scaledObjectRef)
        jobs, oldest_s = await figures(caller, trigger)
        # KEDA may put a prefix in front of the name.
        value = oldest_s if request.metricName.endswith(OLDEST) else jobs
        made = message("externalscaler.MetricValue")(
            metricName=request.metricName, metricValue=value, metricValueFloat=value
        )
        return message("externalscaler.GetMetricsResponse")(metricValues=[made])
