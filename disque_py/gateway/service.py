"""The service: every interface executes operations here.

A call passes these checks, in this order: the rate of the principal, read-only, the arguments, the permission. Then its
action runs. A change is audited, whatever its outcome is. The duration of each call is counted by interface, operation
and code.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry

from disque_py.client import DisqueConnectionError, DisqueError, commands
from disque_py.client.options import make_options, settings_of_url
from disque_py.gateway import actions
from disque_py.gateway.actions import Action
from disque_py.gateway.actions.calls import Call, check_known, check_other_names, forbidden
from disque_py.gateway.audit import Audit
from disque_py.gateway.board import Board
from disque_py.gateway.bulk_operations import BulkOperations
from disque_py.gateway.logins.authentication import Logins
from disque_py.gateway.logins.certificates import Certificate
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.logins.oidc import Issuer
from disque_py.gateway.metrics.cluster_metrics import ClusterMetrics
from disque_py.gateway.metrics.durations import Durations
from disque_py.gateway.operations import Operation
from disque_py.gateway.problems import RefusedError, refusal_of
from disque_py.gateway.rates import Rates, group_of
from disque_py.gateway.settings import Settings
from disque_py.gateway.trace_context import trace_of

NAME: Final = "disque-gateway"
LOG: Final = logging.getLogger(NAME)
# A stream's login is checked again after this time, because tokens expire, users are removed, and files change.
LOGIN_CHECK_S: Final = 10.0
# Jobs in a pipeline that asks for their queues. SHOW returns bodies, too, and thousands of them must not come together.
SHOWS: Final = 50


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials of a stream, which are checked at intervals."""

    authorization: str
    address: str
    certificate: Certificate | None = None


class Service:
    """One cluster of a gateway: its logins, its figures, its limits. Made in the event loop that uses it.

    settings   of the gateway
    audit      the audit log; by default that of the settings
    cluster    name of a further cluster; empty: the cluster of `url`
    main       the service of `url`, whose limits and audit log apply to all clusters
    ending     done when the gateway begins to end, so that requests that wait end, too
    """

    def __init__(
        self, settings: Settings, audit: Audit | None = None, cluster: str = "", main: Service | None = None
    ) -> None:
        self.settings = settings
        self.cluster = cluster or settings.cluster_name
        self.path = settings.base_path + (f"/clusters/{cluster}" if cluster else "")
        self._is_main = main is None
        self.ending: asyncio.Future[None] = main.ending if main else asyncio.get_running_loop().create_future()
        # A gateway of one cluster leaves its name out of the audit log.
        self.cluster_shown = self.cluster if settings.clusters else ""
        try:
            nodes, words = settings_of_url(settings.clusters[cluster] if cluster else settings.url)
            words.setdefault("name", NAME)
            self.options = make_options(nodes, words)
        except (OSError, ValueError) as error:
            raise ValueError(f"{f'cluster {cluster}' if cluster else 'url'}: {error}") from error
        self.issuer: Issuer | None = main.issuer if main else Issuer(settings) if settings.oidc_issuer else None
        failures = main.logins.failures if main else None
        self.logins: Logins = Logins(settings, self.options, self.cluster, self.issuer, failures)
        self.logins.access()
        self.board = Board(self.options, settings.poll_ms / 1000)
        self.bulk_operations = BulkOperations()
        self._meeting: asyncio.Task[None] | None = None
        self.audit: Audit = main.audit if main else audit or Audit(settings.audit_log)
        self._rates: Rates = main._rates if main else Rates(settings.rate)
        self._address_rates: Rates = main._address_rates if main else Rates(settings.address_rate)
        self._streams: dict[str, int] = main._streams if main else {}
        self.registry = CollectorRegistry()
        self._durations = Durations()
        self.registry.register(self._durations)
        self.metrics = ClusterMetrics(settings, self.options, self.registry)

    def start(self) -> None:
        """Begin to look at the nodes at intervals, and connect to one, which names the others.

        Otherwise the first request would do so, and could not if the only node of the URL has failed by then.
        """
        self.board.start()
        self._meeting = asyncio.create_task(self._meet())

    async def _meet(self) -> None:
        with contextlib.suppress(DisqueError):  # The board logs the reason.
            await self.logins.client.hello()

    async def close(self) -> None:
        """Close all connections to nodes."""
        if self._meeting is not None:
            self._meeting.cancel()
            await asyncio.gather(self._meeting, return_exceptions=True)
        await self.bulk_operations.close()
        self.metrics.close()
        await self.board.close()
        await self.logins.close()
        if self._is_main:
            self.audit.close()
            if self.issuer is not None:
                self.issuer.close()

    async def login(
        self,
        authorization: str,
        address: str,
        interface: str,
        certificate: Certificate | None = None,
        *,
        is_console: bool = False,
    ) -> Principal:
        """Return the principal of a request. Raises RefusedError."""
        self.check_rate(address)
        try:
            return await self.logins.principal(authorization, address, certificate, is_console=is_console)
        except RefusedError as error:
            if error.code != "NOAUTH":
                self.audit_login(address, interface, error.code)
            raise
        except Exception as error:
            raise self.refusal(error, "login") from error

    def check_rate(self, address: str) -> None:
        """Count a request of this address, before it is known who sent it. Raises RefusedError above `address-rate`."""
        if not self._address_rates.take(group_of(address), time.monotonic()):
            raise RefusedError("LIMIT", "too many requests from this address (address-rate)")

    def audit_login(self, address: str, interface: str, code: str) -> None:
        """Audit a refused login."""
        self.audit.line(time.time(), "", address, interface, "login", {}, code, self.cluster_shown)

    def call(self, principal: Principal, args: dict[str, Any], headers: Mapping[str, str] | None = None) -> Call:
        """Return a call with these arguments. The request's `headers` may have a trace context."""
        return Call(
            principal, args, self.settings, self.board, trace_of(headers) if headers else {}, self.bulk_operations
        )

    async def perform(
        self, operation: Operation, call: Call, address: str, interface: str, action: Action | None = None
    ) -> Any:
        """Execute an operation with its own action, or with `action`. Raises RefusedError."""
        started = time.perf_counter()
        code = "OK"
        try:
            await self.admit(operation, call)
            return await (action or actions.ACTIONS[operation.name])(call)
        except asyncio.CancelledError:
            code = "GONE"
            raise
        except Exception as error:
            refused = self.refusal(error, operation.name)
            code = refused.code
            raise refused from error
        finally:
            self.record(operation, call, address, interface, code, time.perf_counter() - started)

    def audit_refused(
        self, principal: Principal, address: str, interface: str, name: str, args: dict[str, Any]
    ) -> None:
        """Audit a refused permission of a request, or of a part of it, that `perform` does not execute."""
        self.audit.line(time.time(), principal.name, address, interface, name, args, "NOPERM", self.cluster_shown)

    def record(self, operation: Operation, call: Call, address: str, interface: str, code: str, seconds: float) -> None:
        """Count a call, and audit it if it changes something or was forbidden."""
        self._durations.observe(interface, operation.name, code, seconds)
        if code == "NOPERM" or (operation.changes and operation.role in ("operate", "admin")):
            self.audit.line(
                time.time(),
                call.principal.name,
                address,
                interface,
                operation.name,
                call.args,
                code,
                self.cluster_shown,
            )

    async def admit_stream(self, operation: Operation, call: Call, address: str, interface: str) -> None:
        """Check a stream, which `perform` does not execute, and audit a refused permission. Raises RefusedError."""
        try:
            await self.admit(operation, call)
        except RefusedError as error:
            if error.code == "NOPERM":
                self.audit_refused(call.principal, address, interface, operation.name, call.args)
            raise

    def check_lists(self, principal: Principal, address: str, interface: str) -> None:
        """Refuse the lists of this gateway to a caller without the role, and audit it. Raises RefusedError."""
        try:
            check_known(principal)
        except RefusedError:
            self.audit_refused(principal, address, interface, "list_queues", {})
            raise

    async def admit(self, operation: Operation, call: Call) -> None:
        """Check rate, read-only and permission. Raises RefusedError."""
        principal = call.principal
        if not self._rates.take(principal.name, time.monotonic()):
            raise RefusedError("LIMIT", "too many requests (rate)")
        if operation.changes and self.settings.read_only:
            raise RefusedError("NOPERM", "this gateway is read-only (read-only)")
        if principal.asks_broker:
            if operation.form == "events":  # The answer begins before the broker checks anything.
                await self._ask_for_events(call)
            return
        role, scope = operation.role, operation.scope
        if scope == "queue":
            if not principal.may(role, call.queue):
                raise forbidden(principal, role, call.queue if principal.may_somewhere(role) else "")
        elif not principal.may_somewhere(role):
            raise forbidden(principal, role)
        elif scope == "name":
            if not principal.may(role, call.args["name"]):
                raise forbidden(principal, role, call.args["name"])
        elif scope == "all":
            if not principal.may_everywhere(role):
                raise forbidden(principal, role)
        elif scope == "job" and not principal.may_everywhere(role):
            await self._check_jobs(call, role)
        check_other_names(principal, role, call.args)

    async def _ask_for_events(self, call: Call) -> None:
        """Refuse a user of the broker without permission for events. Raises RefusedError."""
        try:
            await call.client.events_info()
        except DisqueError as error:
            refused = self.refusal(error, "watch_events")
            if refused.code == "NOPERM":
                raise refused from error

    async def _check_jobs(self, call: Call, role: str) -> None:
        """Refuse jobs in queues on which the caller lacks the role. Let the id of an unknown job pass."""
        ids = call.args["ids"] if "ids" in call.args else [call.args["id"]]
        for start in range(0, len(ids), SHOWS):
            pipeline = call.client.pipeline()
            for job_id in ids[start : start + SHOWS]:
                pipeline.add(commands.show(job_id, cluster=True))
            for found in await pipeline.execute():
                # Nothing is known about the job, and the operation itself may reach a node that has it.
                if isinstance(found, DisqueConnectionError):
                    raise RefusedError("NONODE", f"the queue of a job can't be checked: {found}") from found
                if isinstance(found, Exception):
                    raise found
                if found is not None and found.queue is not None and not call.principal.may(role, found.queue):
                    raise forbidden(call.principal, role, found.queue)

    async def renewed_login(self, login: Login, principal: Principal) -> Principal:
        """Return the current principal of a stream's login; the known one if nodes or the issuer don't answer.

        Raises RefusedError if the login is no longer valid. Then the stream must end.
        """
        try:
            return await self.logins.principal(login.authorization, login.address, login.certificate)
        except Exception as error:
            refused = self.refusal(error, "login")
            if refused.row.http == 401:
                raise refused from error
            return principal

    def open_stream(self, principal: Principal) -> None:
        """Count a stream of a principal. Raises RefusedError."""
        count = self._streams.get(principal.name, 0)
        if count >= self.settings.streams_max:
            raise RefusedError("LIMIT", "too many streams at a time (streams-max)")
        self._streams[principal.name] = count + 1

    def close_stream(self, principal: Principal) -> None:
        """Count the end of a stream."""
        self._streams[principal.name] -= 1
        if not self._streams[principal.name]:
            del self._streams[principal.name]

    def refusal(self, error: Exception, operation: str) -> RefusedError:
        """Return the refusal for an error of an operation, and log an error of the gateway."""
        refused = refusal_of(error)
        if refused.code == "FAULT":
            LOG.error("%s failed", operation, exc_info=error)
        return refused
