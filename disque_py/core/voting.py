"""The voter: it grants claims, agrees on lists of voters, and writes both to its file. CLAIM, RELEASE, VOTE, VOTERS.

A voter answers a claim, a release or a vote only when the record is on its disk, regardless of `appendfsync`. All
records of a turn share one write. Spec CL3.

A node that receives a newer list adopts it immediately and keeps it. It has then *stopped* the old epoch: it answers
claims of that epoch with the new list. A voter of the new list grants claims once it has copied the grants of the epoch
before (recalling.py). Spec CL5.

A voter that has lost its memory takes no part in the choice of the next list. It is *mute* until every lease that it
may have granted is over. Then it reads the fences of a majority of voters that remember, and grants again. Spec CL6.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import CLAIM_IS, FREED, RELEASED, VOTE_IS, VOTERS
from cluster_bus.node import ID_BYTES, Node
from disque_py.core.broker import Broker
from disque_py.core.claims import Waiting, note_change, send
from disque_py.core.grants import (
    FENCE_AHEAD,
    FENCE_LIMIT,
    FENCE_MAX,
    GRANTED,
    HELD,
    KEY_BYTES_MAX,
    LONGEST_MS,
    MUTE,
    NO_ROOM,
    OTHER_EPOCH,
    RENEWS,
    SPAN_MAX_MS,
)
from disque_py.core.voter_list import MEMORY_BYTES, VoterList, unpack_list
from disque_py.core.voter_memory import (
    BALLOT,
    FLOOR,
    GRANT,
    KINDS,
    LISTS,
    MEMORY,
    NO_BALLOT,
    PAST,
    PASTS_MAX,
    Item,
    VoterMemory,
)
from disque_py.log_lines import tell

# A write that failed is repeated after this.
RETRY_MS: Final = 2_000
# A reset makes a list whose epoch is this far above the highest known epoch.
RESET_EPOCHS: Final = 1_000
# A node that reads our memory asks for the next page within a second or two. After this time it begins again.
TOLD_MS: Final = 60_000
# At most this many answers wait for the file. While there are as many, the voter grants nothing.
WAITING_MAX: Final = 10_000
# Bits of a release.
GIVES_BACK: Final = 1
# Answers to a release.
NOT_HELD: Final = 0
ENDED: Final = 1
CAN_NOT_SAY: Final = 2
# Answers to a vote.
YES: Final = 0
NO: Final = 1
UNABLE: Final = 2

# Keys of locks begin with this. The nodes of their owners poll, so refused ones are not remembered.
LOCK_PREFIX: Final = b"L"
# The most keys for which a voter remembers the nodes that it refused. It tells them when the grant ends.
REFUSED_MAX: Final = 100_000


# -- state --------------------------------------------------------------------------------------------


def is_voter(broker: Broker) -> bool:
    """Return whether this node is in the list of voters."""
    voter_list = broker.claims.memory.list
    return voter_list is not None and broker.me.id in voter_list.voters


def may_vote(broker: Broker) -> bool:
    """Return whether this node may grant claims now."""
    memory = broker.claims.memory
    if broker.claims.memory.is_conflict or not is_voter(broker):
        return False
    return (memory.remembers and memory.has_copied) or memory.may_grant


def memory_id(broker: Broker) -> bytes:
    """Return the id of this node's memory of grants. Make one if there is none."""
    memory = broker.claims.memory
    if not memory.memory_id:
        memory.memory_id = broker.rng.randbytes(MEMORY_BYTES)
        note_change(broker, MEMORY)
    return memory.memory_id


def start(broker: Broker, items: list[Item], *, is_repaired: bool) -> None:
    """Start with the items of the file. If its end was lost (`is_repaired`), the memory gets a new id. Spec CL6."""
    claims = broker.claims
    memory = claims.memory
    for item in items:
        memory.apply(item, broker.now_ms)
    if is_repaired:
        memory.memory_id = b""
        memory_id(broker)
        memory.remembers = memory.has_copied = memory.may_grant = False
        memory.past = {}
        memory.promised = memory.accepted = NO_BALLOT
        memory.accepted_list = None
        for kind in (LISTS, PAST, BALLOT):
            note_change(broker, kind)
    if is_voter(broker) and not memory.remembers:
        _be_mute(broker)


def _be_mute(broker: Broker) -> None:
    memory = broker.claims.memory
    assert memory.list is not None
    if not memory.may_grant:
        broker.claims.muted_until_ms = broker.now_ms + memory.list.lease_max_ms
        tell(broker.host, "voter-mute", seconds=memory.list.lease_max_ms // 1_000)


def forget_all(broker: Broker) -> None:
    """Forget lists and grants, because the node leaves its cluster. If it returns, it is a voter without memory."""
    claims = broker.claims
    if not claims.memory.memory_id and claims.memory.list is None:
        return
    claims.memory = VoterMemory()
    claims.unsaved.clear()
    claims.waiting.clear()
    claims.recall = None
    claims.told.clear()
    claims.refused.clear()
    claims.is_void = True
    memory_id(broker)


# -- lists --------------------------------------------------------------------------------------------


def learn(broker: Broker, voter_list: VoterList, previous: VoterList | None) -> bool:
    """Adopt a list that is newer than ours, and pass it on. Return whether it was newer."""
    claims = broker.claims
    memory = claims.memory
    old = memory.list
    if old is not None and _contradict(old, voter_list) and not memory.is_conflict:
        memory.is_conflict = True
        note_change(broker, LISTS)
        tell(broker.host, "voters-conflict", epoch=old.epoch)
        gossip(broker, list(broker.cluster.linked))  # So that other nodes notice the conflict, too.
    if old is not None and (voter_list.epoch <= old.epoch or _contradict(old, voter_list)):
        return False
    if old is not None and broker.me.id in old.voters:
        memory.past[old.epoch] = memory.remembers and memory.has_copied
        while len(memory.past) > PASTS_MAX:
            del memory.past[next(iter(memory.past))]
    memory.list = voter_list
    memory.previous = None if voter_list.is_first else previous
    memory.promised = memory.accepted = NO_BALLOT
    memory.accepted_list = None
    mine = voter_list.voters.get(broker.me.id)
    memory.remembers = mine is not None and mine == memory.memory_id
    memory.has_copied = memory.remembers and voter_list.is_first
    memory.may_grant = False
    claims.memory.is_conflict = False
    claims.recall = None
    claims.told.clear()  # A node that still reads the memory of an earlier epoch begins again.
    claims.muted_until_ms = 0
    for kind in (LISTS, PAST, BALLOT):
        note_change(broker, kind)
    if mine is not None and not memory.remembers:
        _be_mute(broker)
    tell(broker.host, "voters-changed", epoch=voter_list.epoch, voters=len(voter_list.voters))
    gossip(broker, list(broker.cluster.linked))
    return True


def _contradict(old: VoterList, new: VoterList) -> bool:
    """Return whether two lists can't both be valid: they have the same epoch, or come from different first lists.

    The list of a reset also comes from another first list. Its epoch is RESET_EPOCHS or more above the lists that it
    replaces, so it contradicts none of them. Nor does a list that follows it, or one that it has replaced and that
    comes from a node that missed the reset.
    """
    if new.origin != old.origin:
        return abs(new.epoch - old.epoch) < RESET_EPOCHS
    return new.epoch == old.epoch and not new.is_same(old)


def gossip(broker: Broker, nodes: list[Node]) -> None:
    """Send our list of voters to these nodes, if there is one."""
    memory = broker.claims.memory
    if memory.list is None:
        return
    previous = memory.previous.packed() if memory.previous is not None else None
    for node in nodes:
        send(broker, node, VOTERS, (memory.list.packed(), previous))


def on_voters(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Compare another node's list of voters with ours. The newer list replaces the older one."""
    for packed, packed_previous, *_ in items:
        voter_list = unpack_list(packed)
        previous = unpack_list(packed_previous) if packed_previous is not None else None
        if previous is not None and previous.epoch >= voter_list.epoch:
            raise ValueError("a list of voters that is older than the one before it")
        if voter_list.is_first != (previous is None):
            raise ValueError("a list of voters without the list before it")
        known = broker.claims.memory.list
        if not learn(broker, voter_list, previous) and known is not None and known.epoch > voter_list.epoch:
            gossip(broker, [sender])


def on_link_up(broker: Broker, node: Node) -> None:
    """Send our list of voters to a newly linked node."""
    gossip(broker, [node])


# -- claims -------------------------------------------------------------------------------------------


def on_claim(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Grant a claim, or answer why it is not granted."""
    claims = broker.claims
    memory = claims.memory
    has_gossiped = False
    for number, epoch, key, holder, fence, lease_ms, attempt, keep_ms, flags, *_ in items:
        for value in (number, epoch, fence, lease_ms, attempt, keep_ms, flags):
            if type(value) is not int or not 0 <= value <= FENCE_MAX:
                raise ValueError("a malformed number of a claim")
        _check_key(key, holder)
        if not 0 < lease_ms <= SPAN_MAX_MS or keep_ms > SPAN_MAX_MS:
            raise ValueError("a malformed lease of a claim")
        if memory.list is None or memory.list.epoch != epoch:
            send(broker, sender, CLAIM_IS, (number, OTHER_EPOCH, 0, b"", 0, 0, 0))
            if not has_gossiped:
                gossip(broker, [sender])
            has_gossiped = True
            continue
        if not may_vote(broker) or lease_ms > memory.list.lease_max_ms or not _can_write(broker):
            send(broker, sender, CLAIM_IS, (number, MUTE, 0, b"", 0, 0, 0))
            continue
        grants = memory.grants
        is_ahead = fence > max(broker.wall_ms + FENCE_AHEAD, grants.highest(key) + 1) or fence > FENCE_LIMIT
        if is_ahead and not flags & RENEWS:
            send(broker, sender, CLAIM_IS, (number, NO_ROOM, 0, b"", 0, 0, 0))
            continue
        outcome = grants.claim(key, holder, fence, lease_ms, attempt, keep_ms, flags, broker.now_ms)
        if outcome == GRANTED:
            note_change(broker, GRANT, key)
            counted = grants.records[key].attempts
            answer(broker, sender, CLAIM_IS, (number, GRANTED, fence, holder, fence, counted, lease_ms))
            continue
        if outcome == HELD and key[:1] != LOCK_PREFIX and len(claims.refused) < REFUSED_MAX:
            claims.refused.setdefault(key, {})[sender] = None
        record = grants.records.get(key)
        running = grants.running(key, broker.now_ms)
        left_ms = 0 if running is None else min(running.until_ms - broker.now_ms, running.lease_ms)
        if record is not None:
            left_ms = max(left_ms, record.blocked_until_ms - broker.now_ms)
        attempts = 0 if record is None else record.attempts_at(broker.now_ms)
        said = (0, b"") if running is None else (running.fence, running.holder)
        highest = grants.highest(key)
        send(broker, sender, CLAIM_IS, (number, outcome, said[0], said[1], highest, attempts, max(0, left_ms)))


def on_release(broker: Broker, sender: Node, items: list[Any]) -> None:
    """End the grant that has exactly this holder and fence."""
    grants = broker.claims.memory.grants
    for number, epoch, key, holder, fence, flags, done_ms, *_ in items:
        for value in (number, epoch, fence, flags, done_ms):
            if type(value) is not int or not 0 <= value <= FENCE_MAX:
                raise ValueError("a malformed number of a release")
        _check_key(key, holder)
        voter_list = broker.claims.memory.list
        if not may_vote(broker) or voter_list is None or not _can_write(broker):
            send(broker, sender, RELEASED, (number, CAN_NOT_SAY))
            continue
        if done_ms and (voter_list.epoch != epoch or done_ms > voter_list.lease_max_ms):
            # The release counts a majority of another list, which is not a majority of this one.
            send(broker, sender, RELEASED, (number, CAN_NOT_SAY))
            gossip(broker, [sender])
            continue
        done_ms = min(LONGEST_MS, done_ms)
        is_over = grants.release(key, holder, fence, done_ms, gives_back=bool(flags & GIVES_BACK), now_ms=broker.now_ms)
        if is_over:
            note_change(broker, GRANT, key)
            for node in broker.claims.refused.pop(key, ()):
                send(broker, node, FREED, key)
        if number:
            answer(broker, sender, RELEASED, (number, ENDED if is_over else NOT_HELD))


def _check_key(key: Any, holder: Any) -> None:
    if type(key) is not bytes or not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueError("a malformed key of a claim")
    if type(holder) is not bytes or not 0 < len(holder) <= KEY_BYTES_MAX:
        raise ValueError("a malformed holder of a claim")


# -- votes --------------------------------------------------------------------------------------------


def on_vote(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Promise a ballot, or accept its list of the next epoch (Lamport, "Paxos Made Simple"). Spec CL5."""
    memory = broker.claims.memory
    for number, epoch, ballot_number, ballot_node, packed, *_ in items:
        if type(number) is not int or type(epoch) is not int or type(ballot_number) is not int:
            raise ValueError("a malformed vote")
        if type(ballot_node) is not bytes or len(ballot_node) != ID_BYTES or not 0 < ballot_number <= FENCE_LIMIT:
            raise ValueError("a malformed ballot")
        proposed = unpack_list(packed) if packed is not None else None
        if proposed is not None and (proposed.is_first or proposed.epoch != epoch + 1):
            raise ValueError("a list of voters for another epoch")
        current = memory.list
        if current is None or current.epoch != epoch or not is_voter(broker) or not _takes_part(broker):
            _answer_vote(broker, sender, number, UNABLE)
            gossip(broker, [sender])
            continue
        ballot = (ballot_number, ballot_node)
        if ballot < memory.promised:
            _answer_vote(broker, sender, number, NO)
            continue
        memory.promised = ballot
        if proposed is not None:
            memory.accepted, memory.accepted_list = ballot, proposed
        note_change(broker, BALLOT)
        _answer_vote(broker, sender, number, YES)


def _takes_part(broker: Broker) -> bool:
    """Return whether this voter takes part in the choice of the next list: it remembers, and has copied old grants."""
    memory = broker.claims.memory
    return memory.remembers and memory.has_copied and not broker.claims.memory.is_conflict


def _answer_vote(broker: Broker, sender: Node, number: int, outcome: int) -> None:
    memory = broker.claims.memory
    accepted = memory.accepted_list.packed() if memory.accepted_list is not None else None
    answer(broker, sender, VOTE_IS, (number, outcome, *memory.promised, *memory.accepted, accepted))


# -- the file -----------------------------------------------------------------------------------------


def answer(broker: Broker, node: Node, kind: int, fields: tuple[Any, ...]) -> None:
    """Send an answer to a node once the changes so far are on disk."""
    if _can_write(broker):
        broker.claims.waiting.append((node, node.run, kind, fields))
    broker.claims.is_due = True


def _can_write(broker: Broker) -> bool:
    """Return whether there is room for an answer that waits for the file."""
    return not broker.claims.trouble and len(broker.claims.waiting) < WAITING_MAX


def write(broker: Broker) -> None:
    """Write the changes. If a write is in progress, the next write follows it. Spec CL3."""
    claims = broker.claims
    if claims.is_writing or claims.retry_at_ms:
        return
    waiting, claims.waiting = claims.waiting, []
    if not claims.unsaved and not claims.is_void:
        _leave(broker, waiting)
        return
    unsaved, claims.unsaved = claims.unsaved, {}
    is_void, claims.is_void = claims.is_void, False
    claims.is_writing = True
    memory = claims.memory
    # Lists come before the ballots of their epoch.
    changed = [(kind, b"") for kind in KINDS if (kind, b"") in unsaved] + [each for each in unsaved if each[1]]
    items = [item for kind, key in changed if (item := memory.item(kind, key, broker.now_ms)) is not None]

    def written(failure: OSError | None) -> None:
        claims.is_writing = False
        if memory is not claims.memory:  # The memory was forgotten during the write.
            write(broker)
            return
        if failure is not None:
            _failed(broker, failure)
            claims.is_void |= is_void
            claims.unsaved.update(unsaved)
            claims.waiting[:0] = waiting
            if isinstance(failure, FileNotFoundError):
                _write_anew(broker)
            return
        if claims.trouble:
            claims.trouble = ""
            tell(broker.host, "votes-written")
        for kind, key in unsaved:
            if kind == GRANT and (kind, key) not in claims.unsaved:
                memory.grants.settle(key, broker.now_ms)
        _leave(broker, waiting)
        write(broker)

    broker.host.write_votes(items, is_void, written)


def _failed(broker: Broker, failure: OSError) -> None:
    claims = broker.claims
    claims.retry_at_ms = broker.now_ms + RETRY_MS
    is_new = not claims.trouble
    claims.trouble = failure.strerror or str(failure)
    if is_new:
        tell(broker.host, "votes-failed", reason=claims.trouble)


def _write_anew(broker: Broker) -> None:
    """Write the whole memory with the next write, because the file was moved away. This process remembers all of it."""
    claims = broker.claims
    memory = claims.memory
    claims.is_void = True
    for kind in (MEMORY, LISTS, PAST, BALLOT, FLOOR):
        if kind != MEMORY or memory.memory_id:
            claims.unsaved[kind, b""] = None
    for key in memory.grants.records:
        claims.unsaved[GRANT, key] = None


def _leave(broker: Broker, waiting: list[Waiting]) -> None:
    """Send answers to those processes that still run."""
    for node, run, kind, fields in waiting:
        if node.run == run:
            send(broker, node, kind, fields)


def on_run_over(broker: Broker, node: Node) -> None:
    """Forget how far a process that has ended had read our grants (recalling.py)."""
    claims = broker.claims
    claims.told.pop(node, None)


def step(broker: Broker) -> None:
    """Repeat a write that failed, and forget idle keys and what other nodes have read. Called ten times a second."""
    claims = broker.claims
    if claims.retry_at_ms and claims.retry_at_ms <= broker.now_ms:
        claims.retry_at_ms = 0
        claims.is_due = True
    for node, (_, _, asked_ms) in list(claims.told.items()):
        if broker.now_ms - asked_ms > TOLD_MS:
            del claims.told[node]
    grants = claims.memory.grants
    if not grants.records:
        return
    idle = grants.idle(broker.now_ms, claims.idle_ms)
    for key in idle:
        grants.forget(key)
        broker.claims.refused.pop(key, None)
        note_change(broker, GRANT, key)
    if idle:
        note_change(broker, FLOOR)
