"""WAITJOB and PROGRESS: clients that wait for the ends of jobs, and workers that say how far they are.

Handlers read their arguments into locals, and refuse a command before it changes anything. job_waits.py and telling.py
in the core do the work. Spec RW4, RW5, RW6.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from disque_py.commands.attempts import held_job
from disque_py.commands.options import INT64_MAX, OPTION_WORDS_MAX, between, read_attempt, read_fence, read_ids
from disque_py.commands.subcommands import syntax_error
from disque_py.core import job_waits, telling, versions
from disque_py.core.broker import Broker
from disque_py.core.client import Blocked, Client
from disque_py.core.errors import BAD_ID, CommandError
from disque_py.core.ids import ID_BYTES, is_valid_id
from disque_py.core.job import ATTEMPT_MAX
from disque_py.core.progress import PERCENT_MAX, TEXT_BYTES_MAX
from disque_py.resp.replies import OK

IDS_MAX: Final = 1024
IDS_ERROR: Final = f"ERR at most {IDS_MAX} ids"
TIMEOUT_ERROR: Final = "ERR TIMEOUT must be a number of milliseconds >= 0"
TOO_MANY: Final = f"ERR too many jobs waited for, at most {job_waits.IDS_MAX}"
PERCENT_ERROR: Final = f"ERR percent must be a number from 0 to {PERCENT_MAX}"
TEXT_ERROR: Final = f"ERR the text has at most {TEXT_BYTES_MAX} bytes"


def waitjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """WAITJOB id [id ...] [TIMEOUT ms] [ANY] → id, status, result, error of each job, when all (ANY: one) are over."""
    first = _options_at(argv)
    ids = read_ids(argv[:first])
    if not ids:
        raise syntax_error(argv[1])
    if len(ids) > IDS_MAX:
        raise CommandError(IDS_ERROR)
    timeout_ms = 0
    is_any = False
    at = first
    while at < len(argv):
        option = argv[at].lower()
        if option == b"any":
            is_any = True
            at += 1
        elif option == b"timeout" and at + 1 < len(argv):
            timeout_ms = between(argv[at + 1] or b"-", 0, INT64_MAX, TIMEOUT_ERROR)
            at += 2
        else:
            raise syntax_error(argv[at])
    versions.refuse_older(broker, versions.FLOWS)
    if not job_waits.has_room(broker, ids):
        raise CommandError(TOO_MANY)
    answer = job_waits.begin(broker, client, ids, min(timeout_ms, INT64_MAX >> 1), is_any=is_any)
    if answer is None:
        client.blocked = Blocked(argv, partial(job_waits.refuse, broker, client))
    return answer


def _options_at(argv: list[bytes]) -> int:
    """Return where the options behind the ids begin."""
    for at in range(max(1, len(argv) - OPTION_WORDS_MAX), len(argv)):
        if len(argv[at]) < ID_BYTES and argv[at].lower() in (b"timeout", b"any"):
            return at
    return len(argv)


def progress(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """PROGRESS id percent [text] [ATTEMPT n] [FENCE n] → OK."""
    percent = between(argv[2] or b"-", 0, PERCENT_MAX, PERCENT_ERROR)
    text = b""
    attempt = fence = 0
    at = 3
    if len(argv) % 2 == 0:
        text = argv[3]
        at = 4
    while at < len(argv):
        option = argv[at].lower()
        if option == b"attempt":
            attempt = read_attempt(argv[at + 1])
        elif option == b"fence":
            fence = read_fence(argv[at + 1])
        else:
            raise syntax_error(argv[at])
        at += 2
    if len(text) > TEXT_BYTES_MAX:
        raise CommandError(TEXT_ERROR)
    if not is_valid_id(argv[1]):
        raise CommandError(BAD_ID)
    versions.refuse_older(broker, versions.FLOWS)
    job = held_job(broker, argv[1], attempt, fence)
    telling.progress(broker, job, percent, text, min(attempt, ATTEMPT_MAX))
    return OK
