"""`disque-cli events --follow`: the events of jobs on a node, as they happen.

In a pipe each line is one JSON object; on a terminal lines are short. Events are read by number (EVENTS READ), so none
is left out while the node runs. A gap in the events is reported on standard error, and following goes on. If the node
goes away, the program waits for it, as --stat does, and then goes on with the next event.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError, Connection, ConnectionLostError
from disque_py.cli.visible import visible

BLOCK_MS: Final = 1_000
AGAIN_S: Final = 1.0


class RefusedError(Exception):
    """The node replied with an error, and waiting would not help; the text is the line to print."""


def follow(target: Target, write: Callable[[str], object], tell: Callable[[str], object], *, is_short: bool) -> None:
    """Write events until interrupted. Raises ConnectError if the first connection can't be made; RefusedError."""
    connection: Connection | None = Connection.open(target)
    place: tuple[bytes, int] | None = None
    try:
        while True:
            try:
                connection = connection or Connection.open(target)
                place = _step(connection, place, write, tell, is_short)
            except (ConnectError, ConnectionLostError) as error:
                tell(str(error))
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(AGAIN_S)
    finally:
        if connection is not None:
            connection.close()


def _step(
    connection: Connection,
    place: tuple[bytes, int] | None,
    write: Callable[[str], object],
    tell: Callable[[str], object],
    is_short: bool,
) -> tuple[bytes, int] | None:
    """Read once. Return (log, next number), or None if the place must be looked up again."""
    if place is None:
        reply = connection.call("EVENTS", "INFO")
        if reply.is_error:
            raise RefusedError(_refusal(reply.text))
        fields = reply.pairs()
        return fields[b"log-id"].text, int(fields[b"next-seq"].text)
    log, next_seq = place
    reply = connection.call("EVENTS", "READ", log, str(next_seq), "BLOCK", str(BLOCK_MS))
    if not reply.is_error:
        lines = reply.text.decode("ascii", "replace").splitlines()
        for line in lines:
            write(short(json.loads(line)) if is_short else line)
        return log, next_seq + len(lines)
    code, _, rest = reply.text.decode(errors="replace").partition(" ")
    if code == "TRIMMED":
        tell(f"events {next_seq} to {int(rest) - 1} are gone")
        return log, int(rest)
    if code == "NOLOG" and rest != "none":
        tell(f"the node has a new log of events, {rest}; events after {next_seq - 1} of the old one are gone")
        return rest.encode(), 1
    if code == "ERR" and "behind the end of the log" in rest:
        tell(f"the log of events ends before event {next_seq}: it was cut, and all its events follow again")
        return log, 1
    if code in ("NOLOG", "LOADING"):
        time.sleep(AGAIN_S)
        return None if code == "NOLOG" else place
    raise RefusedError(_refusal(reply.text))


def _refusal(text: bytes) -> str:
    refusal = text.decode(errors="replace")
    return "this node keeps no log of events (CONFIG SET events yes)" if refusal.startswith("NOLOG") else refusal


def short(event: dict[str, Any]) -> str:
    """Return an event as a short line: time, job, queue, change of state."""
    seconds, ms = divmod(event["ts"], 1000)
    when = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{ms:03d}"
    if event["job_id"] is None:
        return visible(f"{when}  {event['event']}: {event.get('reason', '')}")
    states = f"{event['from_state'] or 'new'} → {event['to_state']}"
    more = [f"attempt {event['attempt']}"] if event["attempt"] else []
    if event["since"] is not None:
        more.append(f"after {(event['ts'] - event['since']) / 1000:.3f} s")
    if event["error"]:
        more.append(event["error"])
    return visible(
        f"{when}  {event['job_id']}  {event['queue']}  {event['event']:<9}  {states}  {', '.join(more)}".rstrip()
    )
