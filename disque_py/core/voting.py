"""The voter: claims and releases, lists of voters, and the file behind them. CLAIM, RELEASE, VOTE, VOTERS.

A voter answers a claim, a release or a vote when the record is on its disk, whatever `appendfsync` says. All records of
a turn share one write. Spec CL3.

A node that hears of a newer list takes it at once, and keeps it. Then it has *stopped*: it answers claims of the old
epoch with its new list. A voter of the new list grants when it has copied the grants of the epoch before
(recalling.py). Spec CL5.

A voter that has lost its memory takes no part in the choice of the next list. It is mute until every lease that it may
have granted is over. Then it reads the fences of a majority that remembers, and votes again. Spec CL6.
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
# A reset makes a list whose epoch is so far above the highest known one.
RESET_EPOCHS: Final = 1_000
# Answers that wait for the file; more are not given.
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

# Keys of locks begin so. Their owners ask again by themselves.
LOCK_PREFIX: Final = b"L"
# Keys for which refused nodes are remembered: they hear of the end of the grant.
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
    """Return the id of this node's memory. Make one if there is none."""
    memory = broker.claims.memory
    if not memory.memory_id:
        memory.memory_id = broker.rng.randbytes(MEMORY_BYTES)
        note_change(broker, MEMORY)
    return memory.memory_id


def start(broker: Broker, items: list[Item], *, is_repaired: bool) -> None:
    """Begin with the items of the file. With `is_repaired` its end was lost: this is another memory now. Spec CL6."""
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
    """Forget lists and grants: the node leaves its cluster. If it comes back, it is a voter without memory."""
    claims = broker.claims
    if not claims.memory.memory_id and claims.memory.list is None:
        return
    claims.memory = VoterMemory()
    claims.unsaved.clear()
    claims.waiting.clear()
    claims.recall = None
    claims.told.clear()
    claims.is_void = True
    memory_id(broker)


# -- lists --------------------------------------------------------------------------------------------


def learn(broker: Broker, voter_list: VoterList, previous: VoterList | None) -> bool:
    """Take a list that is newer than ours, and pass it on. Return whether it was news."""
    claims = broker.claims
    memory = claims.memory
    old = memory.list
    if old is not None and _contradict(old, voter_list) and not memory.is_conflict:
        memory.is_conflict = True
        note_change(broker, LISTS)
        tell(broker.host, "voters-conflict", epoch=old.epoch)
        gossip(broker, list(broker.cluster.linked))  # Other nodes are to see the other list, too.
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
    claims.muted_until_ms = 0
    for kind in (LISTS, PAST, BALLOT):
        note_change(broker, kind)
    if mine is not None and not memory.remembers:
        _be_mute(broker)
    tell(broker.host, "voters-changed", epoch=voter_list.epoch, voters=len(voter_list.voters))
    gossip(broker, list(broker.cluster.linked))
    return True


def _contradict(old: VoterList, new: VoterList) -> bool:
    """Return whether two lists can't both be right: they have one epoch, or come from two first lists.

    A reset is far above the lists that it replaces.
    """
    if new.origin != old.origin:
        return not (new.is_first and new.epoch >= old.epoch + RESET_EPOCHS)
    return new.epoch == old.epoch and not new.is_same(old)


def gossip(broker: Broker, nodes: list[Node]) -> None:
    """Tell nodes our list of voters, if there is one."""
    memory = broker.claims.memory
    if memory.list is None:
        return
    previous = memory.previous.packed() if memory.previous is not None else None
    for node in nodes:
        send(broker, node, VOTERS, (memory.list.packed(), previous))


def on_voters(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Compare another node's list of voters with ours. The older one is replaced."""
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
    """Tell a node that is linked our list of voters."""
    gossip(broker, [node])


# -- claims -------------------------------------------------------------------------------------------


def on_claim(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Grant a claim, or say why not."""
    claims = broker.claims
    memory = claims.memory
    has_gossiped = False
    for number, epoch, key, holder, fence, lease_ms, attempt, keep_ms, flags, *_ in items:
        for value in (number, epoch, fence, lease_ms, attempt, keep_ms, flags):
            if type(value) is not int or not 0 <= value <= FENCE_MAX:
                raise ValueError("a number of a claim that is none")
        _check_key(key, holder)
        if not 0 < lease_ms <= SPAN_MAX_MS or keep_ms > SPAN_MAX_MS:
            raise ValueError("a lease of a claim that is none")
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
        attempts = 0 if record is None else record.attempts_at(broker.now_ms)
        said = (0, b"") if running is None else (running.fence, running.holder)
        highest = grants.highest(key)
        send(broker, sender, CLAIM_IS, (number, outcome, said[0], said[1], highest, attempts, max(0, left_ms)))


def on_release(broker: Broker, sender: Node, items: list[Any]) -> None:
    """End a grant of exactly this holder and fence."""
    grants = broker.claims.memory.grants
    for number, epoch, key, holder, fence, flags, done_ms, *_ in items:
        for value in (number, epoch, fence, flags, done_ms):
            if type(value) is not int or not 0 <= value <= FENCE_MAX:
                raise ValueError("a number of a release that is none")
        _check_key(key, holder)
        voter_list = broker.claims.memory.list
        if not may_vote(broker) or voter_list is None or not _can_write(broker):
            send(broker, sender, RELEASED, (number, CAN_NOT_SAY))
            continue
        if done_ms and (voter_list.epoch != epoch or done_ms > voter_list.lease_max_ms):
            # A majority of an old list is none of this one.
            send(broker, sender, RELEASED, (number, CAN_NOT_SAY))
            gossip(broker, [sender])
            continue
        is_over = grants.release(key, holder, fence, done_ms, gives_back=bool(flags & GIVES_BACK), now_ms=broker.now_ms)
        if is_over:
            note_change(broker, GRANT, key)
            for node in broker.claims.refused.pop(key, ()):
                send(broker, node, FREED, key)
        if number:
            answer(broker, sender, RELEASED, (number, ENDED if is_over else NOT_HELD))


def _check_key(key: Any, holder: Any) -> None:
    if type(key) is not bytes or not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueError("a key of a claim that is none")
    if type(holder) is not bytes or not 0 < len(holder) <= KEY_BYTES_MAX:
        raise ValueError("a holder of a claim that is none")


# -- votes --------------------------------------------------------------------------------------------


def on_vote(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Promise a ballot, or accept its list of the next epoch (Lamport, "Paxos Made Simple"). Spec CL5."""
    memory = broker.claims.memory
    for number, epoch, ballot_number, ballot_node, packed, *_ in items:
        if type(number) is not int or type(epoch) is not int or type(ballot_number) is not int:
            raise ValueError("a vote that is none")
        if type(ballot_node) is not bytes or len(ballot_node) != ID_BYTES or not 0 < ballot_number <= FENCE_LIMIT:
            raise ValueError("a ballot that is none")
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
    """Return whether this voter takes part in the choice of the next list: it remembers, and has copied."""
    memory = broker.claims.memory
    return memory.remembers and memory.has_copied and not broker.claims.memory.is_conflict


def _answer_vote(broker: Broker, sender: Node, number: int, outcome: int) -> None:
    memory = broker.claims.memory
    accepted = memory.accepted_list.packed() if memory.accepted_list is not None else None
    answer(broker, sender, VOTE_IS, (number, outcome, *memory.promised, *memory.accepted, accepted))


# -- the file -----------------------------------------------------------------------------------------


def answer(broker: Broker, node: Node, kind: int, fields: tuple[Any, ...]) -> None:
    """Tell a node something that has to be on disk before."""
    if _can_write(broker):
        broker.claims.waiting.append((node, node.run, kind, fields))
    broker.claims.is_due = True


def _can_write(broker: Broker) -> bool:
    """Return whether there is room for an answer that waits for the file."""
    return not broker.claims.is_failing and len(broker.claims.waiting) < WAITING_MAX


def write(broker: Broker) -> None:
    """Write what changed, unless a write is under way: the next one follows it. Spec CL3."""
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
        if memory is not claims.memory:  # It was forgotten meanwhile.
            write(broker)
            return
        if failure is not None:
            _failed(broker, failure)
            claims.is_void |= is_void
            claims.unsaved.update(unsaved)
            claims.waiting[:0] = waiting
            return
        if claims.is_failing:
            claims.is_failing = False
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
    if not claims.is_failing:
        claims.is_failing = True
        tell(broker.host, "votes-failed", reason=failure.strerror or str(failure))


def _leave(broker: Broker, waiting: list[Waiting]) -> None:
    """Send answers, unless the process that asked is gone."""
    for node, run, kind, fields in waiting:
        if node.run == run:
            send(broker, node, kind, fields)


def on_run_over(broker: Broker, node: Node) -> None:
    """Forget what waited for a node's process, which is gone."""
    claims = broker.claims
    claims.told.pop(node, None)


def step(broker: Broker) -> None:
    """Do what is due, ten times a second: a write that failed, and keys that are idle."""
    claims = broker.claims
    if claims.retry_at_ms and claims.retry_at_ms <= broker.now_ms:
        claims.retry_at_ms = 0
        claims.is_due = True
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
