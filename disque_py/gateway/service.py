"""The service: every door executes operations here.

A call passes these checks, in this order: the rate of the principal, read-only, the arguments, the permission, and then
its action runs. A change is audited, whatever comes of it. The duration of each call is counted, by door, operation and
code.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram

from disque_py.client import commands
from disque_py.client.options import make_options, settings_of_url
from disque_py.gateway import actions
from disque_py.gateway.actions.calls import Call
from disque_py.gateway.audit import Audit
from disque_py.gateway.board import Board
from disque_py.gateway.grants import Principal
from disque_py.gateway.logins import Logins
from disque_py.gateway.metrics.cluster_metrics import ClusterMetrics
from disque_py.gateway.metrics.table import REQUEST_SECONDS
from disque_py.gateway.operations import Operation
from disque_py.gateway.problems import RefusedError, refusal_of
from disque_py.gateway.rates import Rates
from disque_py.gateway.settings import Settings
from disque_py.gateway.trace_context import trace_of

NAME: Final = "disque-gateway"
LOG: Final = logging.getLogger(NAME)
BUCKETS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


class Service:
    """One gateway: its cluster, its logins, its limits. Made in the event loop that uses it."""

    def __init__(self, settings: Settings, audit: Audit | None = None) -> None:
        self.settings = settings
        nodes, words = settings_of_url(settings.url)
        words.setdefault("name", NAME)
        self.options = make_options(nodes, words)
        self.logins = Logins(settings, self.options)
        self.logins.access()
        self.board = Board(self.options, settings.poll_ms / 1000)
        self.audit = audit or Audit(settings.audit_log)
        self._rates = Rates(settings.rate)
        self._address_rates = Rates(settings.address_rate)
        self._streams: dict[str, int] = {}
        self.registry = CollectorRegistry()
        self._durations = Histogram(
            REQUEST_SECONDS.name,
            REQUEST_SECONDS.help,
            REQUEST_SECONDS.labels,
            registry=self.registry,
            buckets=BUCKETS,
        )
        self.metrics = ClusterMetrics(settings, self.options, self.registry)

    async def close(self) -> None:
        """Close all connections to nodes."""
        self.metrics.close()
        await self.board.close()
        await self.logins.close()
        self.audit.close()

    async def login(self, authorization: str, address: str, door: str) -> Principal:
        """Return the principal of a request. Raises RefusedError."""
        if not self._address_rates.take(address, time.monotonic()):
            raise RefusedError("LIMIT", "too many requests from this address (address-rate)")
        try:
            return await self.logins.principal(authorization, address)
        except RefusedError as error:
            if error.code != "NOAUTH":
                self.audit.line(time.time(), "", address, door, "login", {}, error.code)
            raise
        except Exception as error:
            raise self._refusal(error, "login") from error

    def call(self, principal: Principal, args: dict[str, Any], headers: Mapping[str, str] | None = None) -> Call:
        """Return a call with these arguments. `headers` of the request may have its trace context."""
        return Call(principal, args, self.settings, self.board, trace_of(headers) if headers else {})

    async def perform(self, operation: Operation, call: Call, address: str, door: str) -> Any:
        """Execute an operation. Raises RefusedError."""
        started = time.perf_counter()
        code = "OK"
        try:
            await self.admit(operation, call)
            return await actions.ACTIONS[operation.name](call)
        except asyncio.CancelledError:
            code = "GONE"
            raise
        except Exception as error:
            refused = self._refusal(error, operation.name)
            code = refused.code
            raise refused from error
        finally:
            self.record(operation, call, address, door, code, time.perf_counter() - started)

    def record(self, operation: Operation, call: Call, address: str, door: str, code: str, seconds: float) -> None:
        """Count a call, and audit it if it changes something or was forbidden."""
        self._durations.labels(door, operation.name, code).observe(seconds)
        if code == "NOPERM" or (operation.changes and operation.role in ("operate", "admin")):
            self.audit.line(time.time(), call.principal.name, address, door, operation.name, call.args, code)

    async def admit(self, operation: Operation, call: Call) -> None:
        """Check rate, read-only and permission. Raises RefusedError."""
        principal = call.principal
        if not self._rates.take(principal.name, time.monotonic()):
            raise RefusedError("LIMIT", "too many requests (rate)")
        if operation.changes and self.settings.read_only:
            raise RefusedError("NOPERM", "this gateway is read-only (read-only)")
        if principal.asks_broker:
            return
        role, scope = operation.role, operation.scope
        if not principal.may_somewhere(role):
            raise _forbidden(principal, role)
        if scope == "name":
            if not principal.may(role, call.args["name"]):
                raise _forbidden(principal, role, call.args["name"])
        elif scope == "queue":
            if not principal.may(role, call.queue):
                raise _forbidden(principal, role, call.queue)
            if "to" in call.args and not principal.may(role, call.args["to"]):
                raise _forbidden(principal, role, call.args["to"])
        elif scope == "all":
            if not principal.may_everywhere(role):
                raise _forbidden(principal, role)
        elif scope == "job" and not principal.may_everywhere(role):
            await self._check_jobs(call, role)

    async def _check_jobs(self, call: Call, role: str) -> None:
        """Refuse jobs of queues without the role. An id of an unknown job was given to the caller, so it may pass."""
        ids = call.args["ids"] if "ids" in call.args else [call.args["id"]]
        pipeline = call.client.pipeline()
        for job_id in ids:
            pipeline.add(commands.show(job_id, cluster=True))
        for found in await pipeline.execute():
            queue = getattr(found, "queue", None)
            if queue is not None and not call.principal.may(role, queue):
                raise _forbidden(call.principal, role, queue)

    def open_stream(self, principal: Principal) -> None:
        """Count a stream of a principal. Raises RefusedError."""
        count = self._streams.get(principal.name, 0)
        if count >= self.settings.streams_max:
            raise RefusedError("LIMIT", "too many streams at once (streams-max)")
        self._streams[principal.name] = count + 1

    def close_stream(self, principal: Principal) -> None:
        """Count the end of a stream."""
        self._streams[principal.name] -= 1
        if not self._streams[principal.name]:
            del self._streams[principal.name]

    def _refusal(self, error: Exception, operation: str) -> RefusedError:
        refused = refusal_of(error)
        if refused.code == "FAULT":
            LOG.error("%s failed", operation, exc_info=error)
        return refused


def _forbidden(principal: Principal, role: str, queue: str = "") -> RefusedError:
    place = f" on {queue!r}" if queue else ""
    return RefusedError("NOPERM", f"{principal.name} has no role {role}{place}")
