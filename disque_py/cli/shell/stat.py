"""--stat: the activity of a node, one line per second.

The numbers come from INFO. If the node goes away, the program prints a line and waits for it, so that people can watch
restarts, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError, Connection, ConnectionLostError
from disque_py.cli.visible import visible
from disque_py.client import results
from disque_py.resp.sizes import human_bytes

EVERY_S_DEFAULT: Final = 1.0
HEADER_EVERY_LINES: Final = 20
HEADER: Final = "jobs       queues     mem      clients blocked requests            connections"


def stat_row(fields: Mapping[str, str | int | float], requests_before: int | None) -> dict[str, Any]:
    """Return one look at a node by name: numbers of INFO, and the requests since the previous look."""
    number = {name: value for name, value in fields.items() if isinstance(value, int)}
    requests = number.get("total_commands_processed", 0)
    # After a restart or CONFIG RESETSTAT the count starts again from zero.
    more = requests - requests_before if requests_before is not None and requests >= requests_before else 0
    return {
        "jobs": number.get("registered_jobs", 0),
        "queues": number.get("registered_queues", 0),
        "memory": number.get("used_memory", 0),
        "clients": number.get("connected_clients", 0),
        "blocked": number.get("blocked_clients", 0),
        "requests": requests,
        "new_requests": more,
        "connections": number.get("total_connections_received", 0),
    }


def stat_line(row: Mapping[str, Any]) -> str:
    """Return a row as a line of the display."""
    line = "{:<10} {:<10} {:<8} {:<7} {:<7} {:<19} {:<11}".format(
        row["jobs"],
        row["queues"],
        human_bytes(row["memory"]),
        row["clients"],
        row["blocked"],
        f"{row['requests']} (+{row['new_requests']})",
        row["connections"],
    )
    return line.rstrip()


def watch(target: Target, every_s: float | None, lines: int, *, as_json: bool = False) -> bool:
    """Print `lines` lines (negative: for ever). Return False if an error reply ended it.

    as_json   each line is an object; without a connection it has only the member `error`

    Raises ConnectError if the first connection can't be made.
    """
    connection: Connection | None = Connection.open(target)
    requests: int | None = None
    printed = 0
    row: dict[str, Any]
    try:
        while printed != lines:
            if printed:
                time.sleep(every_s or EVERY_S_DEFAULT)
            try:
                connection = connection or Connection.open(target)
                reply = connection.call("INFO")
            except (ConnectError, ConnectionLostError) as error:
                if connection is not None:
                    connection.close()
                connection = None
                row = {"error": str(error)}
            else:
                if reply.is_error:
                    refusal = reply.text.decode(errors="replace")
                    print(json.dumps({"error": refusal}) if as_json else visible(refusal), flush=True)
                    return False
                row = stat_row(results.info(reply.text), requests)
                requests = row["requests"]
            if as_json:
                print(json.dumps(row), flush=True)
            else:
                if printed % HEADER_EVERY_LINES == 0:
                    print(HEADER)
                print(row.get("error") or stat_line(row), flush=True)
            printed += 1
    finally:
        if connection is not None:
            connection.close()
    return True
