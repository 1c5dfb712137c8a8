"""The process: uvicorn on the HTTP address, gRPC on its own address, TLS for both.

SIGTERM and SIGINT stop it: it takes no more requests, and running ones have a few seconds to finish. Requests that wait
for jobs, and event streams, end at once. The TLS files are read again when they change, and after SIGHUP.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn
import uvloop

from disque_py.gateway.clusters import Clusters
from disque_py.gateway.console.app import Console
from disque_py.gateway.http.api import Api, Mounted
from disque_py.gateway.http.dyno import Dyno
from disque_py.gateway.http.protocol import Protocol
from disque_py.gateway.rpc.listener import Listener
from disque_py.gateway.service import LOG, Service
from disque_py.gateway.settings import Settings
from disque_py.gateway.tls import Tls, TlsError

END_S: Final = 5
FILES_S: Final = 5.0


class StartError(Exception):
    """The gateway can't start. The text is for people."""


class Gateway:
    """One gateway, in the running event loop.

    settings   its settings
    port       the HTTP port, after the start; it differs from the settings if they have port 0
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        try:
            self._tls = Tls(settings) if settings.tls_cert else None
            self.clusters = Clusters(settings)
        except (OSError, ValueError) as error:
            raise StartError(str(error)) from error
        self.service = self.clusters.main
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.rpc: Listener | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen. After a StartError nothing is left open."""
        try:
            await self._start()
        except OSError as error:
            if self.rpc is not None:
                await self.rpc.close()
            await self.clusters.close()
            raise StartError(str(error)) from error

    async def _start(self) -> None:
        if self._settings.grpc_listen is not None:
            self.rpc = Listener(self.clusters)
            await self.rpc.start()
        listener = self._listener()
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._api(),
            access_log=False,
            log_config=None,
            lifespan="off",
            server_header=False,
            http=Protocol,
            limit_concurrency=self._settings.connections_max,
            timeout_graceful_shutdown=END_S,
            proxy_headers=False,
            ws="none",
        )
        config.load()
        if self._tls is not None:
            config.ssl = self._tls.context
            self._watching = asyncio.create_task(self._watch_files())
        self._server = _QuietServer(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        self.clusters.start()

    def _listener(self) -> socket.socket:
        listen = self._settings.listen
        try:
            family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
            return socket.create_server((listen.host, listen.port), family=family, backlog=1024)
        except OSError as error:
            raise OSError(f"can't listen on {listen}: {error.strerror or error}") from error

    def _api(self) -> Api:
        """Return the application of all clusters."""
        links = [(name, service.path) for name, service in self.clusters.by_name.items()]
        clusters = {name: Api(each, self._mounts(each, links)) for name, each in self.clusters.by_name.items()}
        return Api(self.service, self._mounts(self.service, links), clusters)

    def _mounts(self, service: Service, links: list[tuple[str, str]]) -> dict[str, Mounted]:
        """Return the interfaces of a cluster that have their own paths."""
        mounts: dict[str, Mounted] = {"/dyno/": Dyno(service).serve}
        if self._settings.console:
            mounts["/console/"] = Console(service, links).serve
        return mounts

    async def close(self) -> None:
        """Finish running requests, and stop."""
        if self._watching is not None:
            self._watching.cancel()
        self.clusters.begin_end()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving
        if self.rpc is not None:
            await self.rpc.close()
        await self.clusters.close()

    def reload_certificate(self) -> None:
        """Read the TLS files again. If they are invalid, log that and keep the old ones in force."""
        if self._tls is None:
            return
        try:
            self._tls.reload()
        except TlsError as error:
            LOG.error("the certificate was not read again: %s", error)

    async def _watch_files(self) -> None:
        """Read the TLS files again when they change."""
        while self._tls is not None:
            await asyncio.sleep(FILES_S)
            if self._tls.has_changed():
                self.reload_certificate()


class _QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers, because the process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Handle no signal."""
        yield


def serve(settings: Settings, started: Callable[[Gateway], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartError."""
    uvloop.run(_serve(settings, started))


async def _serve(settings: Settings, started: Callable[[Gateway], None] | None) -> None:
    gateway = Gateway(settings)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload_certificate)
    await gateway.start()
    scheme = "https" if settings.tls_cert else "http"
    host = f"[{settings.listen.host}]" if ":" in settings.listen.host else settings.listen.host
    LOG.info("serving %s://%s:%d%s/", scheme, host, gateway.port, settings.base_path)
    if started is not None:
        started(gateway)
    await ended.wait()
    await gateway.close()
