"""The gateway's page of metrics: the cluster, from the picture that all viewers share, and the gateway itself.

The picture has every queue. At most `metrics-max-queues` of them have labels, and the jobs of the others are summed
under one name. Events are read from the first scrape on, so a gateway that is never scraped reads none.

Pages are made in a thread of their own, one at a time, because a page of many queues takes milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from prometheus_client import CollectorRegistry

from disque_py.client import ClientOptions
from disque_py.gateway.board import Board, Picture
from disque_py.gateway.metrics.exposition import Page
from disque_py.gateway.metrics.families import add_nodes
from disque_py.gateway.metrics.followers import Followers, reader_name
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.transitions import Tally
from disque_py.gateway.settings import Settings

PORT_DEFAULT: Final = 8711


class ClusterMetrics:
    """The page of one gateway.

    settings   of the gateway
    options    options of connections to the nodes
    registry   the gateway's own metrics
    """

    def __init__(self, settings: Settings, options: ClientOptions, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._selection = Selection(limit=settings.metrics_max_queues)
        self._tally = Tally(self._selection)
        self._followers: Followers | None = None
        if settings.metrics_events:
            name = reader_name(settings.listen.port or PORT_DEFAULT)
            self._followers = Followers(options, name, self._tally)
        self._nodes: set[str] = set()
        self._thread = ThreadPoolExecutor(1, "metrics-page")

    async def page(self, board: Board, picture: Picture, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type: OpenMetrics if the header `accept` asks for it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._text, board, picture, accept)

    def _text(self, board: Board, picture: Picture, accept: str) -> tuple[bytes, str]:
        page = Page(accept)
        names = {str(seen.address) for seen in picture.nodes}
        for gone in self._nodes - names:
            self._selection.forget(gone)
        self._nodes = names
        add_nodes(page, picture.nodes, self._selection)
        if self._followers is not None:
            self._followers.follow(board.watches())
            self._tally.add_to(page, time.monotonic())
        return page.text(self._registry), page.content_type

    def close(self) -> None:
        """Stop reading events and making pages."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._followers is not None:
            self._followers.close()
