"""The next list of voters: the proposer, and the commands of operators. VOTE_IS.

Single-decree Paxos among the voters of a list decides the list of the next epoch (Lamport, "Paxos Made Simple"). A node
that proposes a list first asks the voters for a promise. If a voter has accepted another list before, the node proposes
that list instead, and its own command fails. A list is decided when a majority has accepted it. It takes effect when a
majority of the old list has stopped, and a majority of the new list has copied their grants (recalling.py). Spec CL5.

An operator sets the first list (INIT). Every node of that list must have answered before. RESET FORCE makes a new first
list with an epoch far above all others. Jobs and locks that are claimed at that time may be handed out again. Spec CL7.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from cluster_bus.messages import VOTE
from cluster_bus.node import ID_BYTES, Node
from disque_py.core import gathering, open_questions, stalling, voting
from disque_py.core.broker import Broker
from disque_py.core.claims import send, voters_in_reach
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.voter_list import (
    DEFAULT_LEASE_MAX_MS,
    EPOCH_MAX,
    MEMORY_BYTES,
    ORIGIN_BYTES,
    VoterList,
    unpack_list,
)
from disque_py.core.voter_memory import Ballot, is_ballot
from disque_py.core.voting import NO, YES

VOTE_MS: Final = 1_000
# A command waits at most this long for its list to take effect.
EFFECT_MS: Final = 2_000
BALLOTS_MAX: Final = 5
PAUSE_MS: Final = (20, 200)
POLL_MS: Final = 50

SUBJECT_VOTER: Final = b"voter"
WORD_MEMORY: Final = b"memory"
# A node's state as a voter, as it says it in its share.
NOT_A_VOTER: Final = 0
IS_MUTE: Final = 1
COPIES: Final = 2
IS_READY: Final = 3
IN_CONFLICT: Final = 4

NO_MAJORITY: Final = "NOQUORUM no majority of the voters answered"
NO_VOTERS: Final = "NOQUORUM no voters configured"
CHANGING: Final = "NOQUORUM the voters are changing"
BUSY: Final = "BUSY a change of voters is under way"
VOTERS_ALREADY: Final = "ERR there are voters already"

# A node's share in the question: epoch (0: it knows no list), id of its memory, state.
State = tuple[int, bytes, int]


class Round:
    """A vote that waits for answers.

    unanswered   voters that have not answered yet
    promised     voters that said yes
    highest      the highest ballot that a voter has promised
    accepted     the highest ballot that a voter has accepted, and its list
    """

    __slots__ = ("accepted", "accepted_list", "client", "highest", "majority", "promised", "refused", "unanswered")

    def __init__(self, client: Client, nodes: list[Node], majority: int) -> None:
        self.client = client
        self.majority = majority
        self.unanswered = dict.fromkeys(nodes)
        self.promised: dict[Node, None] = {}
        self.refused = 0
        self.highest = 0
        self.accepted: Ballot = (0, b"")
        self.accepted_list: VoterList | None = None

    @property
    def is_decided(self) -> bool:
        """Return whether a majority said yes, or no majority is possible any more."""
        return len(self.promised) >= self.majority or len(self.promised) + len(self.unanswered) < self.majority


# -- shares -------------------------------------------------------------------------------------------


def own_state(broker: Broker, *, is_wanted: bool) -> State:
    """Return this node's share in a question about voters.

    is_wanted   whether the next list may name this node's memory, so that the node must have one
    """
    memory = broker.claims.memory
    epoch = memory.list.epoch if memory.list is not None else 0
    if broker.claims.memory.is_conflict:
        state = IN_CONFLICT
    elif not voting.is_voter(broker):
        state = NOT_A_VOTER
    elif voting.may_vote(broker):
        state = IS_READY
    else:
        state = COPIES if memory.remembers else IS_MUTE
    made = voting.memory_id(broker) if is_wanted else memory.memory_id
    return epoch, made or bytes(MEMORY_BYTES), state


def share(broker: Broker, words: list[Any]) -> gathering.Share:
    """Make this node's answer to a question about voters (gathering.py). The word b"memory" requires a memory."""
    yield from ()
    return list(own_state(broker, is_wanted=words == [WORD_MEMORY]))


def _check(value: Any) -> State:
    if type(value) not in (list, tuple) or len(value) < 3:
        raise ValueError("an invalid state of a voter")
    epoch, memory_id, state = value[:3]
    if type(epoch) is not int or type(state) is not int or type(memory_id) is not bytes:
        raise ValueError("the state of a voter without numbers")
    if not 0 <= epoch <= EPOCH_MAX or len(memory_id) != MEMORY_BYTES:
        raise ValueError("the state of a voter out of range")
    return epoch, memory_id, state


def states(broker: Broker, client: Client, *, is_wanted: bool = False) -> Generator[None, None, dict[bytes, State]]:
    """Ask all linked nodes for their state as voters. Return the answers by node id, including this node's."""
    words: list[Any] = [WORD_MEMORY] if is_wanted else []
    question = gathering.ask(broker, client, SUBJECT_VOTER, words, _check)
    yield from gathering.answers(broker, question)
    found = {node.id: answer for node, answer in question.answers.items()}
    found[broker.me.id] = own_state(broker, is_wanted=is_wanted)
    return found


# -- commands of operators ----------------------------------------------------------------------------


def first(broker: Broker, client: Client, ids: list[bytes], *, is_forced: bool) -> Generator[None, None, None]:
    """Make the first list of a cluster, with `is_forced` even if there is a list. Raise CommandError."""
    if broker.claims.memory.list is not None and not is_forced:
        raise CommandError(VOTERS_ALREADY)
    found = yield from states(broker, client, is_wanted=True)
    for node_id in ids:
        if node_id not in found:
            raise CommandError(f"UNREACHABLE Node {node_id.hex()} is not linked")
    epoch = max(state[0] for state in found.values())
    mine = broker.claims.memory.list
    if not is_forced and (epoch or mine is not None):
        raise CommandError(VOTERS_ALREADY)
    if mine is not None:
        epoch = max(epoch, mine.epoch)
    lease_max_ms = mine.lease_max_ms if mine is not None else DEFAULT_LEASE_MAX_MS
    voters = {node_id: found[node_id][1] for node_id in ids}
    epoch = epoch + voting.RESET_EPOCHS if is_forced else 1
    origin = mine.origin if mine is not None else broker.rng.randbytes(ORIGIN_BYTES)
    voting.learn(broker, VoterList(epoch, lease_max_ms, voters, is_first=True, origin=origin), None)
    yield from _await_effect(broker, client, epoch)


def change(
    broker: Broker, client: Client, *, added: bytes = b"", removed: bytes = b"", lease_max_ms: int = 0
) -> Generator[None, None, None]:
    """Add or remove a voter, or set the longest lease. Wait until the next list is in effect. Raise CommandError."""
    current = broker.claims.memory.list
    if current is None:
        raise CommandError(NO_VOTERS)
    if added and added in current.voters:
        raise CommandError(f"ERR {added.hex()} is a voter")
    if removed and removed not in current.voters:
        raise CommandError(f"ERR {removed.hex()} is no voter")
    if removed and len(current.voters) == 1:
        raise CommandError("ERR the last voter cannot be removed")
    found = yield from states(broker, client, is_wanted=True)
    if added and added not in found:
        raise CommandError(f"UNREACHABLE Node {added.hex()} is not linked")
    voters = {each: memory for each, memory in current.voters.items() if each != removed}
    if added:
        voters[added] = found[added][1]
    # A voter that has lost its memory begins the next epoch with its present memory.
    for node_id in voters:
        if node_id in found:
            voters[node_id] = found[node_id][1]
    # Without a majority in reach, no claim would be granted any more, and only a reset would help.
    if sum(1 for node_id in voters if node_id in found) <= len(voters) // 2:
        raise CommandError(NO_MAJORITY)
    epoch = current.epoch + 1
    wanted = VoterList(epoch, lease_max_ms or current.lease_max_ms, voters, is_first=False, origin=current.origin)
    decided = yield from _decide(broker, client, current, wanted)
    voting.learn(broker, decided, current)
    if not decided.is_same(wanted):
        raise CommandError(BUSY)
    yield from _await_effect(broker, client, epoch)


def _decide(broker: Broker, client: Client, current: VoterList, wanted: VoterList) -> Generator[None, None, VoterList]:
    """Let the voters of an epoch decide the list of the next epoch. Raise CommandError."""
    number = 0
    proposer = broker.rng.randbytes(ID_BYTES)  # Different proposals never have the same ballot, even of one node.
    for _ in range(BALLOTS_MAX):
        number += 1
        promise = yield from _vote(broker, client, current, (number, proposer), None)
        if len(promise.promised) >= promise.majority:
            proposed = promise.accepted_list or wanted
            accept = yield from _vote(broker, client, current, (number, proposer), proposed)
            if len(accept.promised) >= accept.majority:
                return proposed
            number = max(number, accept.highest)
        known = broker.claims.memory.list
        if known is None or known.epoch != current.epoch:
            raise CommandError(BUSY)
        if len(promise.promised) < promise.majority and not promise.refused:
            raise CommandError(NO_MAJORITY)
        number = max(number, promise.highest)
        yield from stalling.pause(broker, client, broker.rng.randint(*PAUSE_MS))
    raise CommandError(BUSY)


def _vote(
    broker: Broker, client: Client, current: VoterList, ballot: Ballot, proposed: VoterList | None
) -> Generator[None, None, Round]:
    claims = broker.claims
    nodes = voters_in_reach(broker, current.voters)
    number = claims.next_number()
    vote = claims.rounds[number] = Round(client, nodes, current.majority)
    packed = proposed.packed() if proposed is not None else None
    for node in nodes:
        send(broker, node, VOTE, (number, current.epoch, *ballot, packed))
    yield from stalling.until_ms(broker, client, broker.now_ms + VOTE_MS, lambda: vote.is_decided)
    claims.rounds.pop(number, None)
    return vote


def on_vote_is(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note a voter's answer to a vote."""
    for number, outcome, highest, highest_node, accepted, accepted_node, packed, *_ in items:
        if type(number) is not int or type(outcome) is not int:
            raise ValueError("an invalid answer to a vote")
        if not is_ballot((highest, highest_node)) or not is_ballot((accepted, accepted_node)):
            raise ValueError("invalid ballots")
        accepted_list = unpack_list(packed) if packed is not None else None
        vote = broker.claims.rounds.get(number)
        if vote is None or sender not in vote.unanswered:
            broker.stats.ignored("answer to a vote that is over")
            continue
        del vote.unanswered[sender]
        vote.highest = max(vote.highest, highest)
        if outcome == YES:
            vote.promised[sender] = None
            if accepted_list is not None and (accepted, accepted_node) > vote.accepted:
                vote.accepted, vote.accepted_list = (accepted, accepted_node), accepted_list
        elif outcome == NO:
            vote.refused += 1
        if vote.is_decided:
            stalling.resume_client_now(broker, vote.client)


def on_link_lost(broker: Broker, node: Node) -> None:
    """Stop waiting for a voter whose link broke."""
    for vote in open_questions.without(broker.claims.rounds, node).values():
        if vote.is_decided:
            stalling.resume_client_now(broker, vote.client)


def forget_client(broker: Broker, client: Client) -> None:
    """Forget the vote of a client that is gone. The next change finishes a list that was accepted."""
    open_questions.forget_client(broker.claims.rounds, client)


def _await_effect(broker: Broker, client: Client, epoch: int) -> Generator[None, None, None]:
    """Wait until a majority of this epoch's list grants claims. Raise CommandError."""
    until_ms = broker.now_ms + EFFECT_MS
    while broker.now_ms < until_ms:
        current = broker.claims.memory.list
        if current is None or current.epoch != epoch:
            raise CommandError(BUSY)
        found = yield from states(broker, client)
        ready = [node_id for node_id in current.voters if found.get(node_id, (0, b"", 0))[::2] == (epoch, IS_READY)]
        if len(ready) >= current.majority:
            return
        yield from stalling.pause(broker, client, POLL_MS)
    raise CommandError(CHANGING)


def node_id_of(broker: Broker, name: bytes) -> bytes:
    """Return the id of a known node that an operator names by 40 hex characters. Raise CommandError."""
    try:
        node_id = bytes.fromhex(name.decode())
    except ValueError:
        node_id = b""
    if len(node_id) != ID_BYTES or (node_id != broker.me.id and broker.cluster.find(node_id) is None):
        raise CommandError(f"ERR Unknown node {name[:128].decode('utf-8', 'surrogateescape')}")
    return node_id
