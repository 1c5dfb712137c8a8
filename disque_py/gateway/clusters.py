"""The clusters of a gateway: the first one, and others below their own paths.

The cluster of `url` has the paths of the gateway itself. Each cluster, including this one, has the same paths below
`/clusters/{name}`: HTTP, the console, dyno-queues, metrics. In gRPC the metadata `disque-cluster` chooses the cluster,
and in KEDA the field `cluster` of the scaler's metadata. Rates, streams and the audit log belong to the gateway, not to
a cluster.
"""

from __future__ import annotations

from typing import Final

from disque_py.gateway.audit import Audit
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.service import Service
from disque_py.gateway.settings import Settings

PREFIX: Final = "/clusters/"


class Clusters:
    """The services of a gateway, by the names of clusters; `main` is the service of `url`."""

    def __init__(self, settings: Settings, audit: Audit | None = None) -> None:
        self.main = Service(settings, audit)
        self.by_name = {settings.cluster_name: self.main}
        for name in settings.clusters:
            self.by_name[name] = Service(settings, cluster=name, main=self.main)

    def named(self, name: str) -> Service:
        """Return the service of a cluster; without a name, that of the first one. Raises RefusedError."""
        found = self.by_name.get(name) if name else self.main
        if found is None:
            raise RefusedError("NOTFOUND", "this gateway has no such cluster")
        return found

    def start(self) -> None:
        """Begin to look at the nodes of all clusters at intervals, and learn their addresses."""
        for each in self.by_name.values():
            each.start()

    def begin_end(self) -> None:
        """End requests that wait, and event streams: the gateway takes no more requests."""
        if not self.main.ending.done():
            self.main.ending.set_result(None)

    async def close(self) -> None:
        """Close all connections to nodes."""
        for each in reversed(self.by_name.values()):
            await each.close()
