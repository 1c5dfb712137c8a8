"""Access: whether a client's user may run a command. Checked before the command does anything. Spec US4.

node/dispatch.py asks `refusal` about each request of a client whose user is restricted, also inside a pipeline. The
answer is the reply of a refused command, or None. A user needs the command's unit, then all names in the request. A job
that is known here has a queue, which counts as a name, and so do the jobs under a token. Last come limits.

ACL DRYRUN asks the same question without counting or noting anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_py.commands import auditing, logins
from disque_py.commands.adding import meta_of
from disque_py.core import topics
from disque_py.core.batch_state import CALLBACK_QUEUE
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.command_entry import WORDS_MAX
from disque_py.core.errors import NOAUTH
from disque_py.core.ids import is_valid_id
from disque_py.core.units import Access, Unit
from disque_py.core.users import NO_NAME, User
from disque_py.resp.replies import error

NO_COMMAND: Final = "NOPERM this user has no permissions to run the '{}' command"
TOO_MANY_WORDS: Final = f"NOPERM a user whose names are restricted gives at most {WORDS_MAX} words per command"
RATE: Final = "LIMIT the user may run {} commands in {} ms on this node"
QUEUES: Final = "LIMIT the user may bring {} queues into being on this node"
# The time between two searches for queues that are gone.
LOOK_MS: Final = 1_000
# Queues that are gone are looked for when there may be more of them than this, and than queues.
QUEUES_GONE_MAX: Final = 1_000

# Where the topic is in the commands that take one in place of a queue.
TOPIC_AT: Final = {"addjob": 1, "topic|publish": 2}

# Reasons in ACL LOG.
COMMAND: Final = "command"
NAME: Final = "key"


class Refused(NamedTuple):
    """A reason of ACL LOG, the command or name that was refused, and the error."""

    reason: str
    what: bytes
    text: str


def denied(broker: Broker, user: User, access: Access, argv: list[bytes], *, is_free: bool) -> Refused | None:
    """Return why a user may not run this request; None if it may. Limits are not checked here.

    is_free   the command is allowed in any case: a client must be able to log in
    """
    unit = access.unit(argv)
    if unit is None:
        if all(each.name in user.units for each in access.units):
            return None  # The command refuses the unknown subcommand.
        return Refused(COMMAND, access.name.encode(), NO_COMMAND.format(access.name))
    if not is_free and unit.name not in user.units:
        return Refused(COMMAND, unit.name.encode(), NO_COMMAND.format(unit.name))
    if user.has_all_names:
        return None
    if (unit.names or unit.ids or unit.tokens) and len(argv) > WORDS_MAX:
        return Refused(NAME, unit.name.encode(), TOO_MANY_WORDS)
    if unit.names is not None:
        for name in unit.names(argv):
            if not user.may_name(name):
                return Refused(NAME, name, NO_NAME)
    if unit.ids is not None:
        for word in unit.ids(argv):
            if not is_valid_id(word):
                continue
            job = broker.find(word)
            if job is not None and not job.is_dummy and not user.may_name(job.terms.queue):
                return Refused(NAME, word, NO_NAME)
    if unit.tokens is not None:
        for word in dict.fromkeys(unit.tokens(argv)):
            token = broker.tokens.by_name.get(word)
            terms = None
            for job, attempt in token.jobs.items() if token is not None else ():
                if job.terms is terms:
                    continue  # Most jobs of a delivery are of one queue.
                if user.may_name(job.terms.queue):
                    terms = job.terms
                elif broker.tokens.is_held(job, attempt):  # No command acts on a job whose lease is over.
                    return Refused(NAME, word, NO_NAME)
    return None


def refusal(broker: Broker, client: Client, user: User, access: Access, argv: list[bytes], *, is_free: bool) -> bytes:
    """Return the reply to a request that the client's user may not make; empty if it may. It is noted and counted."""
    found = denied(broker, user, access, argv, is_free=is_free)
    if found is not None:
        auditing.refused(broker, client, found.reason, found.what, argv, access.name)
        return error(found.text)
    if is_free:
        return b""
    limits = user.limits
    if limits.rate and not broker.users.meter(user.name).spend(limits, broker.now_ms):
        broker.stats.limit_refusals += 1
        return error(RATE.format(limits.rate, limits.per_ms))
    if limits.queues:
        unit = access.unit(argv)
        if unit is not None and not (
            (unit.makes is None or _may_make(broker, user, _made(broker, unit, argv), is_later=False))
            and (unit.awaits is None or _may_make(broker, user, _awaited(broker, unit, argv), is_later=True))
        ):
            broker.stats.limit_refusals += 1
            return error(QUEUES.format(limits.queues))
    return b""


def _made(broker: Broker, unit: Unit, argv: list[bytes]) -> list[bytes]:
    """Return the queues that a request may create. Those of a job for a topic are the queues that get the job."""
    assert unit.makes is not None
    names = unit.makes(argv)
    at = TOPIC_AT.get(unit.name, 0)
    bound = broker.topics.get(names[0]) if at and names else None
    return names if bound is None else topics.queues_for(bound, meta_of(argv[at - 1 :]))


def _awaited(broker: Broker, unit: Unit, argv: list[bytes]) -> list[bytes]:
    """Return the queues that the node may create later because of a request. Those of a topic count for its binders."""
    assert unit.awaits is not None
    return [name for name in unit.awaits(argv) if name not in broker.topics]


def _may_make(broker: Broker, user: User, names: list[bytes], *, is_later: bool) -> bool:
    """Note the queues among these that do not exist yet. Return whether the user may create as many queues.

    is_later   the node creates them later, so they count as long as they are named, too
    """
    known = broker.queues
    meter = broker.users.meter(user.name)
    if is_later:
        meter.queues.update({name: True for name in names if name in meter.queues})
    missing = {name: is_later for name in names if name not in known}
    if not missing:
        return True
    most = user.limits.queues
    is_due = len(meter.queues) + len(missing) > min(most, 2 * len(known) + QUEUES_GONE_MAX)
    if is_due and broker.now_ms - meter.looked_ms >= LOOK_MS:
        meter.looked_ms = broker.now_ms
        later = {name for name, is_later in meter.queues.items() if is_later and name not in known}
        named = _still_named(broker, later) if later else later
        meter.queues = {name: kept for name, kept in meter.queues.items() if name in known or name in named}
    if len({**meter.queues, **missing}) > most:
        return False
    meter.queues.update({name: is_later or meter.queues.get(name, False) for name in missing})
    return True


def _still_named(broker: Broker, wanted: set[bytes]) -> set[bytes]:
    """Return the queues among these that a schedule, a binding, a dead-letter setting or a callback still names."""
    found = {each.definition.queue for each in broker.recurring.known.values()}
    found.update([each.dead_letter for each in broker.queue_settings.in_force.values()])
    found.update([each.fields.get(CALLBACK_QUEUE, b"") for each in broker.batches.by_name.values() if not each.is_done])
    found &= wanted
    for bound in broker.topics.values():
        found |= bound.keys() & wanted
    return found


def end_wait(broker: Broker, client: Client) -> None:
    """End the request that a client waits for with an error, if its user may no longer make it. Spec US8."""
    user, blocked = client.user, client.blocked
    if blocked is not None and logins.is_stranger(broker, client):
        blocked.end(NOAUTH)
        return
    if user is None or blocked is None:
        return
    argv = blocked.argv
    entry = broker.commands.get(argv[0]) or broker.commands.get(argv[0].lower())
    found = denied(broker, user, entry.access, argv, is_free=False) if entry is not None else None
    if entry is not None and found is not None:
        auditing.refused(broker, client, found.reason, found.what, argv, entry.name)
        blocked.end(found.text)


def may_wait_on(broker: Broker, client: Client) -> bool:
    """Return whether a client's user still allows what it waits for, or streams: jobs, or each command or event."""
    if not logins.may_stream(broker, client):
        return False
    if logins.is_stranger(broker, client):
        return client.group is None and not client.queues and not _is_fetching(broker, client)
    user = client.user
    if user is None:
        return True
    if client.group is not None:
        return "getjob" in user.units and all(user.may_match(word) for word in client.group.words)
    if not client.queues:
        return True
    return "getjob" in user.units and all(user.may_name(queue.name) for queue in client.queues)


def may_fetch_on(broker: Broker, client: Client, before: User | None) -> bool:
    """Return whether a client's user allows the GETJOB that the client does in parts; True if it does none.

    Such a GETJOB waits for a claim, a disk or an index. Its names are not kept, so the user must keep all its names.

    before   the client's user until this change
    """
    user = client.user
    if user is None or not _is_fetching(broker, client):
        return True
    if "getjob" not in user.units:
        return False
    if user.has_all_names:
        return True
    kept = {each.text for each in user.patterns}
    return before is not None and all(each.text in kept or user.may_match(each.text) for each in before.patterns)


def _is_fetching(broker: Broker, client: Client) -> bool:
    return client in broker.waits.incremental and client.last_command == "getjob"
