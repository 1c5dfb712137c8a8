"""Calls: the parts that all gRPC methods share, which are logins, operations and errors.

The login is in the metadata `authorization`, as in HTTP. A refusal becomes the gRPC status from the table of errors.
The trailing metadata have the broker's code in `disque-code`, and `disque-unknown` if the answer was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc

from disque_py.gateway import service
from disque_py.gateway.actions import Action
from disque_py.gateway.actions.calls import Call
from disque_py.gateway.clusters import Clusters
from disque_py.gateway.fields import Octets
from disque_py.gateway.logins.certificates import Certificate
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.logins.x509_names import of_pem
from disque_py.gateway.operations import BY_NAME, Operation
from disque_py.gateway.problems import RefusedError, refusal_of
from disque_py.gateway.rpc import descriptors
from disque_py.gateway.service import LOG, Login, Service
from disque_py.gateway.shapes import as_text

INTERFACE: Final = "grpc"
CLUSTER: Final = "disque-cluster"
# Streams that end if nothing is read for `stream-idle-ms`. A consumer may work for long before it reads again.
IDLE_LIMITED: Final = frozenset(("WatchEvents",))
STATUS: Final = {
    name: getattr(grpc.StatusCode, name)
    for name in (
        "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "FAILED_PRECONDITION", "ABORTED",
        "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN", "UNIMPLEMENTED", "INTERNAL",
    )
}  # fmt: skip


class Caller:
    """One call: its principal, its metadata, and operations in its name."""

    def __init__(
        self,
        service: Service,
        principal: Principal,
        address: str,
        metadata: Mapping[str, str] | None = None,
        login: Login | None = None,
    ) -> None:
        self._metadata = metadata
        self.login = login
        self.service = service
        self.principal = principal
        self.address = address

    def call(self, name: str, args: dict[str, Any]) -> Call:
        """Return a call of an operation with checked arguments. None and empty values are left out."""
        return self._call(BY_NAME[name], args)

    def _call(self, operation: Operation, args: dict[str, Any], *, has_empty: bool = False) -> Call:
        checked = {}
        for key, value in args.items():
            if value is None or (value in ("", {}) and not has_empty):
                continue
            kind = operation.kinds[key]
            checked[key] = value if isinstance(kind, Octets) else kind.read(key, value)
        for name in operation.required:
            if name not in checked:
                raise RefusedError("ERR", f"{name} is missing")
        return self.service.call(self.principal, checked, self._metadata)

    async def ask(self, name: str, **args: Any) -> Any:
        """Execute an operation. Raises RefusedError."""
        return await self.service.perform(BY_NAME[name], self.call(name, args), self.address, INTERFACE)

    async def ask_given(self, name: str, **args: Any) -> Any:
        """Execute an operation whose empty arguments count, because they switch a setting off. Raises RefusedError."""
        operation = BY_NAME[name]
        call = self._call(operation, args, has_empty=True)
        return await self.service.perform(operation, call, self.address, INTERFACE)

    async def ask_by(self, operation: Operation, action: Action, **args: Any) -> Any:
        """Execute an operation with an action of this interface. Raises RefusedError."""
        return await self.service.perform(operation, self._call(operation, args), self.address, INTERFACE, action)


class Methods:
    """The handlers of one service: a method of `target` per call, named as in the definition."""

    def __init__(self, clusters: Clusters, name: str, target: Any) -> None:
        self._clusters = clusters
        handlers = {}
        for method in descriptors.methods(name):
            work = getattr(target, snake(method.name), None)
            if work is None:
                continue
            make = _HANDLERS[method.client_streaming, method.server_streaming]
            is_limited = method.name in IDLE_LIMITED
            run = self._streaming(work, is_limited=is_limited) if method.server_streaming else self._unary(work)
            handlers[method.name] = make(
                run,
                request_deserializer=descriptors.request_class(method).FromString,
                response_serializer=lambda found: found.SerializeToString(),
            )
        self.handler = grpc.method_handlers_generic_handler(name, handlers)

    async def _caller(self, context: Any, request: Any) -> Caller:
        metadata = dict(context.invocation_metadata() or ())
        address = peer_host(context.peer())
        authorization = metadata.get("authorization", "") or scaler_login(request)
        login = Login(authorization, address, certificate_of(context))
        chosen = self._clusters.named(metadata.get(CLUSTER, "") or scaler_words(request).get("cluster", ""))
        principal = await chosen.login(authorization, address, INTERFACE, login.certificate)
        return Caller(chosen, principal, address, metadata, login)

    def _unary(self, work: Callable[[Caller, Any], Awaitable[Any]]) -> Any:
        async def run(request: Any, context: Any) -> Any:
            try:
                return await work(await self._caller(context, request), request)
            except Exception as error:
                await abort(context, error)

        return run

    def _streaming(self, work: Callable[[Caller, Any], AsyncGenerator[Any]], *, is_limited: bool) -> Any:
        async def run(request: Any, context: Any) -> None:
            try:
                caller = await self._caller(context, request)
                caller.service.open_stream(caller.principal)
            except Exception as error:
                await abort(context, error)
                return
            principal = caller.principal
            limit_s = caller.service.settings.stream_idle_ms / 1000 if is_limited else None
            watch = Watch(caller)
            reason: Exception
            try:
                async with contextlib.aclosing(work(caller, request)) as parts:
                    async for found in parts:
                        await _write(context, found, limit_s)
                return
            except asyncio.CancelledError:
                if watch.refused is None:
                    raise
                reason = watch.refused
            except Exception as error:
                reason = error
            finally:
                watch.close()
                caller.service.close_stream(principal)
            await abort(context, reason)  # Last, because it waits for a reader that reads nothing.

        return run


async def _write(context: Any, found: Any, limit_s: float | None) -> None:
    """Send a part of a stream. Raises RefusedError if the reader takes nothing for `limit_s` seconds."""
    try:
        async with asyncio.timeout(limit_s):
            await context.write(found)
    except TimeoutError:
        raise RefusedError("LIMIT", "nothing was read for too long (stream-idle-ms)") from None


class Watch:
    """Repeated checks of the login of a stream. When the login is no longer valid, the stream's task is ended.

    refused   the reason, once the login is not valid
    """

    def __init__(self, caller: Caller) -> None:
        self.refused: RefusedError | None = None
        self._stream = asyncio.current_task()
        self._task = asyncio.create_task(self._run(caller))

    async def _run(self, caller: Caller) -> None:
        assert caller.login is not None
        while True:
            await asyncio.sleep(service.LOGIN_CHECK_S)
            try:
                found = await caller.service.renewed_login(caller.login, caller.principal)
            except RefusedError as error:
                self.refused = error
                if self._stream is not None:
                    self._stream.cancel()
                return
            caller.principal = found

    def close(self) -> None:
        """End the checks."""
        self._task.cancel()


_HANDLERS: Final = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


async def abort(context: Any, error: Exception) -> None:
    """End a call with the status of an error. Always raises."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    refused = refusal_of(error)
    if refused.code == "FAULT":
        LOG.error("a call failed", exc_info=error)
    trailing = [("disque-code", refused.code.lower())]
    if refused.more.get("unknown"):
        trailing.append(("disque-unknown", "true"))
    await context.abort(STATUS[refused.row.grpc], as_text(refused.text), tuple(trailing))


def snake(name: str) -> str:
    """Return a method's name in snake case."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def certificate_of(context: Any) -> Certificate | None:
    """Return the certificate of a call's connection, which TLS has verified; None if it has none."""
    found = context.auth_context().get("x509_pem_cert")
    return of_pem(bytes(found[0])) if found else None


def peer_host(peer: str) -> str:
    """Return the address of a peer as gRPC names it: `ipv4:1.2.3.4:5`, `ipv6:%5B::1%5D:5`."""
    kind, _, rest = peer.partition(":")
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "") if kind in ("ipv4", "ipv6") else peer


def scaler_words(request: Any) -> Mapping[str, str]:
    """Return the scaler's metadata of a request of KEDA; other requests have none."""
    found: Mapping[str, str] = getattr(getattr(request, "scaledObjectRef", request), "scalerMetadata", {})
    return found


def scaler_login(request: Any) -> str:
    """Return the login of a request of KEDA: the token in the scaler's metadata, because KEDA sends no other login."""
    words = scaler_words(request)
    # With `tokenFromEnv`, KEDA sends the value of a variable of the scaled deployment under this name.
    given = [words[name] for name in ("token", "tokenFromEnv") if name in words]
    return f"Bearer {given[0]}" if given else ""
