"""A uvloop server that answers only PING: the lower bound of the cost of a server in Python.

It counts the requests in the bytes that it received, and writes as many answers in one write. A broker in Python can't
be faster, because it reads and writes the same bytes and has other work to do. Run as `python -m
disque_py.cli.bench.floor PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, cast

import uvloop

REQUEST: Final = b"*1\r\n$4\r\nPING\r\n"
REPLY: Final = b"+PONG\r\n"


class Ping(asyncio.Protocol):
    """One connection. A request may arrive in pieces; only complete requests count."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete now."""
        count, self._rest = divmod(self._rest + len(data), len(REQUEST))
        if count and self._transport is not None:
            self._transport.write(REPLY * count)


async def serve(port: int) -> None:
    """Listen on a loopback port until cancelled."""
    server = await asyncio.get_running_loop().create_server(Ping, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


def main(argv: list[str]) -> int:
    """Serve the port that the command line names."""
    try:
        uvloop.run(serve(int(argv[0])))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
