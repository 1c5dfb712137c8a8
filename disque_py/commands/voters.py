"""CLUSTER VOTERS: the nodes that grant claims. Spec CL4, CL5, CL6, CL7.

Operators set the list. `core/electing.py` has the conversation; this module reads arguments and makes replies.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from disque_py.commands.options import between
from disque_py.core import electing, incremental, versions
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.electing import IN_CONFLICT, IS_READY
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.grants import LONGEST_MS
from disque_py.resp.replies import OK, array, bulk, bulk_array, integer

WRONG_FORM: Final = "ERR Wrong CLUSTER subcommand or number of arguments"
SECONDS_MAX: Final = LONGEST_MS // 1_000
LEASE_MAX_ERROR: Final = f"ERR LEASEMAX must be a number of seconds from 1 to {SECONDS_MAX}"
FORCE_ERROR: Final = (
    "ERR RESET forgets every claim: work that runs now may be handed out again."
    " To do it nevertheless: CLUSTER VOTERS RESET FORCE id [id ...]"
)

# The first steps of a command end without a value; its reply follows.
Conversation = Generator[None, None, None]


def voters(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """VOTERS [INIT id ... | ADD id | REMOVE id | LEASEMAX sec | RESET FORCE id ...]."""
    if len(argv) == 2:
        return incremental.begin(broker, client, _shown(broker, client))
    word = argv[2].lower()
    words = argv[3:]
    if word == b"init" and words:
        steps = electing.first(broker, client, _ids(broker, words), is_forced=False)
    elif word == b"reset":
        if not words or words[0].lower() != b"force":
            raise CommandError(FORCE_ERROR)
        if len(words) == 1:
            raise CommandError(WRONG_FORM)
        steps = electing.first(broker, client, _ids(broker, words[1:]), is_forced=True)
    elif word == b"add" and len(words) == 1:
        steps = electing.change(broker, client, added=electing.node_id_of(broker, words[0]))
    elif word == b"remove" and len(words) == 1:
        steps = electing.change(broker, client, removed=_voter_id(broker, words[0]))
    elif word == b"leasemax" and len(words) == 1:
        seconds = between(words[0], 1, SECONDS_MAX, LEASE_MAX_ERROR)
        steps = electing.change(broker, client, lease_max_ms=1_000 * seconds)
    elif word in (b"init", b"add", b"remove", b"leasemax"):
        raise CommandError(WRONG_FORM)
    else:
        raise CommandError(f"{SYNTAX}: '{argv[2][:128].decode('utf-8', 'surrogateescape')}'")
    versions.refuse_older(broker)
    return incremental.begin(broker, client, _changed(steps))


def _changed(steps: Conversation) -> incremental.Steps:
    yield from steps
    return OK


def _ids(broker: Broker, names: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(electing.node_id_of(broker, name) for name in names))


def _voter_id(broker: Broker, name: bytes) -> bytes:
    """Return the id of a voter: it may have left the table of nodes."""
    current = broker.claims.memory.list
    for node_id in current.voters if current is not None else ():
        if node_id.hex().encode() == name.lower():
            return node_id
    return electing.node_id_of(broker, name)


def _shown(broker: Broker, client: Client) -> incremental.Steps:
    """Reply with pairs: epoch, claim-lease-max in seconds, voters, state, mute, reachable, recovered.

    A voter is recovered if it votes with another memory than the one that the list names. Spec CL6.
    """
    found = yield from electing.states(broker, client)
    current = broker.claims.memory.list
    epoch = current.epoch if current is not None else 0
    listed = list(current.voters) if current is not None else []
    ready = [node_id for node_id in listed if node_id in found and found[node_id][::2] == (epoch, IS_READY)]
    mute = [node_id for node_id in listed if node_id in found and node_id not in ready]
    recovered = [node_id for node_id in ready if current is not None and found[node_id][1] != current.voters[node_id]]
    if current is None:
        state = "none"
    elif broker.claims.memory.is_conflict or any(found[each][2] == IN_CONFLICT for each in listed if each in found):
        state = "conflict"
    else:
        # A list is not in effect until a majority of it grants claims.
        is_changing = len(ready) < current.majority and any(found[each][2] == electing.COPIES for each in mute)
        state = "changing" if is_changing else "ready"
    lease_s = -(-current.lease_max_ms // 1_000) if current is not None else 0
    reachable = sum(1 for node_id in listed if node_id in found)
    parts = [bulk("epoch"), integer(epoch), bulk("claim-lease-max"), integer(lease_s)]
    parts += [bulk("voters"), _hex(listed), bulk("state"), bulk(state), bulk("mute"), _hex(mute)]
    parts += [bulk("reachable"), integer(reachable), bulk("recovered"), _hex(recovered)]
    return array(parts)


def _hex(node_ids: list[bytes]) -> bytes:
    return bulk_array([node_id.hex().encode() for node_id in node_ids])
