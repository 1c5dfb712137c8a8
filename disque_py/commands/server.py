"""TIME, SHUTDOWN, BGREWRITEAOF and JOURNAL. Spec R8. JOURNAL is our own.

The process does the work, through `broker.host`. JOURNAL BACKUP and SHUTDOWN REWRITE-AOF wait for files to be written,
and meanwhile the node serves other clients (core/deferred_reply.py). SHUTDOWN is refused if it would lose jobs, and the
log then has the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_py.commands.subcommands import Form, form_of, text_of
from disque_py.core import deferred_reply
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.log_lines import tell
from disque_py.resp.replies import array, bulk, bulk_array, integer
from persistence.backup import is_name


def time(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """TIME → Unix seconds and microseconds of this turn, in steps of a millisecond."""
    seconds, ms = divmod(broker.wall_ms, 1000)
    return bulk_array((str(seconds), str(ms * 1000)))


def shutdown(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SHUTDOWN [REWRITE-AOF]: stop. There is no reply, the connection ends. Refused if it would lose jobs."""
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() != b"rewrite-aof"):
        raise CommandError(SYNTAX)
    reason = broker.host.shutdown_refusal()
    if reason:
        raise _refused(broker, reason)
    if len(argv) == 2 and not broker.is_loading:  # While a node loads, its journal has more than its memory.
        return deferred_reply.begin(
            broker, client, broker.host.rewrite_for_shutdown, partial(_rewritten, broker, client)
        )
    _stop(broker, client)
    return None


def _rewritten(broker: Broker, client: Client, failure: OSError | None) -> None:
    if failure is not None:
        raise _refused(broker, str(failure))
    _stop(broker, client)


def _stop(broker: Broker, client: Client) -> None:
    tell(broker.host, "shutdown", client=client.addr)
    broker.host.shutdown()


def _refused(broker: Broker, reason: str) -> CommandError:
    tell(broker.host, "shutdown-refused", reason=reason)
    return CommandError("ERR Errors trying to SHUTDOWN. Check logs.")


def bgrewriteaof(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """BGREWRITEAOF: free the space of finished jobs, in the background. With the journal off, write one once."""
    try:
        if broker.host.rewrite_journal():
            return b"+Background append only file rewriting started\r\n"
    except OSError as reason:
        raise CommandError(f"ERR {reason.strerror or reason}") from None
    raise CommandError("ERR Background append only file rewriting already in progress")


def journal(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """JOURNAL BACKUP name → path, files, bytes: a consistent copy of the journal, made while the node goes on."""
    form = form_of(JOURNAL_FORMS, argv)
    if form is None:
        raise CommandError(f"ERR Unknown JOURNAL subcommand or wrong number of arguments for '{text_of(argv[1])}'")
    return form.handler(broker, client, argv)


def _backup(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    name = text_of(argv[2])
    if not is_name(name):
        raise CommandError("ERR The name of a backup is made of letters, digits, '.', '-' and '_', 100 at most")
    made: list[tuple[str, int, int]] = []

    def start(done: Callable[[OSError | None], None]) -> None:
        def over(outcome: tuple[str, int, int] | OSError) -> None:
            if not isinstance(outcome, OSError):
                made.append(outcome)
            done(outcome if isinstance(outcome, OSError) else None)

        broker.host.backup_journal(name, list(broker.queue_settings.all_items()), over)

    def outcome(failure: OSError | None) -> bytes:
        if failure is not None:
            raise CommandError(f"ERR No backup was made: {failure.strerror or failure}")
        path, file_count, size = made[0]
        tell(broker.host, "backup", path=path, bytes=size, files=file_count)
        return array([bulk("path"), bulk(path), bulk("files"), integer(file_count), bulk("bytes"), integer(size)])

    return deferred_reply.begin(broker, client, start, outcome)


JOURNAL_FORMS: Final = {b"backup": Form(_backup, 3, 3)}
