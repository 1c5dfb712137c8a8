"""DEBUG: commands for tests and drills. Spec R8.

`broker.host` does the work on the process. In production, `rename-command DEBUG ""` removes the command.
"""

from __future__ import annotations

import math
from typing import Final

from disque_py import event_format
from disque_py.commands.options import read_integer
from disque_py.commands.subcommands import Form, form_of, text_of
from disque_py.core import deferred_reply, events, pausing
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import NOT_AN_INTEGER, CommandError
from disque_py.core.job import JOB_BYTES
from disque_py.core.queue import QUEUE_BYTES
from disque_py.core.reset import flush
from disque_py.log_lines import tell
from disque_py.resp.replies import OK, bulk, error

SLEEP_SECONDS_MAX: Final = 86_400.0
NOT_SECONDS: Final = "ERR value is not a valid float"
RESTART_FAILED: Final = "ERR failed to restart the server. Check server logs."


def debug(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DEBUG subcommand [argument]."""
    form = form_of(FORMS, argv)
    if form is None:
        raise CommandError(f"ERR Unknown DEBUG subcommand or wrong number of arguments for '{text_of(argv[1])}'")
    return form.handler(broker, client, argv)


def _flushall(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    paused = list(broker.pauses.versions)
    count = flush(broker)
    pausing.ask(broker, paused)
    events.of_node(broker, event_format.FLUSHED, "DEBUG FLUSHALL")
    tell(broker.host, "flushall", client=client.addr, jobs=count)
    return OK


def _loadaof(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LOADAOF: forget all jobs and read them back from the journal."""
    try:
        return deferred_reply.begin(broker, client, broker.host.reload_journal, _loaded)
    except LookupError as reason:
        raise CommandError(f"ERR {reason}") from None


def _loaded(failure: OSError | None) -> bytes:
    if failure is not None:
        raise CommandError(f"ERR Error trying to load the AOF: {failure}")
    return OK


def _sleep(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """SLEEP seconds: block the whole server."""
    try:
        seconds = float(argv[2])
    except ValueError:
        raise CommandError(NOT_SECONDS) from None
    if not (math.isfinite(seconds) and 0 <= seconds <= SLEEP_SECONDS_MAX):
        raise CommandError(NOT_SECONDS)
    broker.host.sleep(seconds)
    return OK


def _error(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """ERROR text: reply with this error."""
    return error(text_of(argv[2]))


def _structsize(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """STRUCTSIZE: the accounted memory of a job without its body, and of a queue without its name."""
    return bulk(f"bits:64 job:{JOB_BYTES} queue:{QUEUE_BYTES} ")


def _restart(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """RESTART [ms] after an orderly shutdown, CRASH-AND-RECOVER [ms] without; no reply, the connection ends.

    RESTART saves the configuration first.
    """
    delay_ms = read_integer(argv[2]) if len(argv) == 3 else 0
    if delay_ms < 0:
        raise CommandError(NOT_AN_INTEGER)
    is_graceful = argv[1].lower() == b"restart"

    def restart(failure: OSError | None) -> None:
        try:
            if failure is not None:
                raise failure
            broker.host.restart(delay_ms, graceful=is_graceful)
        except (LookupError, OSError) as reason:
            tell(broker.host, "debug-failed", command=text_of(argv[1]), reason=str(reason))
            raise CommandError(RESTART_FAILED) from None

    if is_graceful and broker.host.has_config_file():
        return deferred_reply.begin(broker, client, broker.host.rewrite_config, restart)
    restart(None)
    return None


def _crash(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SEGFAULT, ASSERT, OOM: end the process, each in its own way."""
    how = text_of(argv[1]).lower()
    tell(broker.host, "debug-death", how=how.upper(), client=client.addr)
    broker.host.crash(how)
    return None


FORMS: Final = {
    b"flushall": Form(_flushall, 2, 2),
    b"loadaof": Form(_loadaof, 2, 2),
    b"sleep": Form(_sleep, 3, 3),
    b"error": Form(_error, 3, 3),
    b"structsize": Form(_structsize, 2, 2),
    b"restart": Form(_restart, 2, 3),
    b"crash-and-recover": Form(_restart, 2, 3),
    b"segfault": Form(_crash, 2, 2),
    b"assert": Form(_crash, 2, 2),
    b"oom": Form(_crash, 2, 2),
}
