"""TIME, SHUTDOWN, BGREWRITEAOF. Spec: disque/commands.md, section 6.

This version keeps jobs in memory only, and says so where the original would touch its journal.
"""

from __future__ import annotations

from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.resp import bulk_array

NO_JOURNAL: Final = "ERR persistence is not available in this version"


def time(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """TIME → unix seconds and microseconds, as of this turn (so in steps of a millisecond)."""
    seconds, ms = divmod(broker.wall_ms, 1000)
    return bulk_array((str(seconds), str(ms * 1000)))


def shutdown(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SHUTDOWN [REWRITE-AOF]: stop; no reply, the connection ends."""
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() != b"rewrite-aof"):
        raise CommandError(SYNTAX)
    if len(argv) == 2:
        broker.host.log("warning", "SHUTDOWN REWRITE-AOF refused: there is no journal that could be rewritten")
        raise CommandError("ERR Errors trying to SHUTDOWN. Check logs.")
    broker.host.log("warning", f"SHUTDOWN by client {client.addr}")
    broker.host.shutdown()
    return None


def bgrewriteaof(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """BGREWRITEAOF: there is no journal to rewrite."""
    raise CommandError(NO_JOURNAL)
