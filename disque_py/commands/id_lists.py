"""Lists of ids: commands that do the same to each job that they name, and commands that take one job only.

A long list is done in parts, between which other commands run (incremental.py). A list with one bad id is refused as a
whole, before anything is done. Spec R11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from disque_py.commands.options import ONE_ID, read_ids
from disque_py.core import incremental
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import BAD_ID, CommandError
from disque_py.core.ids import is_valid_id
from disque_py.core.incremental import PART
from disque_py.resp.replies import integer

Action = Callable[[Broker, bytes], int]
Check = Callable[[Broker, list[bytes]], None]


def count_done(
    broker: Broker, client: Client, argv: list[bytes], action: Action, check: Check | None = None
) -> bytes | None:
    """Do something to each named job, and reply to how many it was done. Long lists are done in parts.

    check   raises CommandError if it may not be done to one of the jobs; then it is done to none
    """
    if len(argv) <= PART:
        ids = read_ids(argv)
        if check is not None:
            check(broker, ids)
        return integer(sum([action(broker, job_id) for job_id in ids]))
    return incremental.begin(broker, client, _count_in_parts(broker, argv, action, check))


def check_in_parts(argv: list[bytes]) -> Iterator[None]:
    """Check the ids behind the name of a command, some at a time. CommandError: with one bad id nothing is done."""
    for at in range(1, len(argv), 8 * PART):
        if at > 1:
            yield
        if not all(map(is_valid_id, argv[at : at + 8 * PART])):
            raise CommandError(BAD_ID)


def _count_in_parts(broker: Broker, argv: list[bytes], action: Action, check: Check | None) -> incremental.Steps:
    yield from check_in_parts(argv)
    yield
    if check is not None:
        for at in range(1, len(argv), PART):
            check(broker, argv[at : at + PART])
            yield
    total = 0
    for at in range(1, len(argv), PART):
        total += sum([action(broker, job_id) for job_id in argv[at : at + PART]])
        yield
    return integer(total)


def only_id(argv: list[bytes], first: int, text: str = ONE_ID) -> bytes:
    """Return the only id of a command with ATTEMPT or FENCE, whose options begin at `first`. CommandError."""
    read_ids(argv[:first])
    if first != 2:
        raise CommandError(text)
    return argv[1]
