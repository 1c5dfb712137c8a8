"""Voters: their messages to each other and to claiming nodes, compared with the rules. Spec CL2, CL4, CL5.

The checker reads the messages between nodes (`Traffic.tap`), and a voter's memory at the moment when its message is
read. A node that asks itself sends no message, so that is not checked. Nor are processes that died meanwhile.

* A voter grants no claim of a list that is older than its own, or that it does not know.
* A voter of a new list grants only after a majority of the previous list has sent it all grants.
* A voter sends its grants to voters of the next list only after it has stopped granting.
* All lists of an epoch are the same list.
* A node that only renewed a claim, and did not make it, takes nothing back when the renewal fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import CLAIM, CLAIM_IS, RECALL, RECALLED, RELEASE, VOTERS
from disque_py.core.grants import GRANTED, RENEWS
from disque_py.core.recalling import A_PAGE
from disque_py.core.voter_list import PackedList, unpack_list
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

OTHER_LIST: Final = "a voter grants no claim of another list"
COPIES_FIRST: Final = "a voter copies the grants of the list before"
HAS_STOPPED: Final = "a voter that tells its grants has stopped"
ONE_LIST: Final = "an epoch has one list of voters"
RENEWAL_STAYS: Final = "a renewal that failed releases nothing"

# Node, number of its process, key, holder, fence.
Claimed = tuple[str, int, bytes, bytes, int]


class Asked:
    """A question that a voter has read: a claim, or a request for its memory.

    epoch        the epoch of the list in the question
    was          the epoch of the voter's list when it read the question
    is_copying   True: the question is a request for the voter's memory
    runs         the run of the voter
    """

    __slots__ = ("epoch", "is_copying", "runs", "was")

    def __init__(self, machine: Machine, epoch: int, *, is_copying: bool = False) -> None:
        self.epoch = epoch
        self.is_copying = is_copying
        self.was = epoch_of(machine)
        self.runs = machine.runs


class VoterChecker:
    """The questions to voters, and their answers.

    asked     (asking node, voter, number) -> the question
    told      (voter, epoch of its list) -> voters of the previous list that sent it all their grants
    lists     (origin, epoch) -> list
    claimed   claims that a node sent, or has under way
    renewed   claims that a node renewed
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked: dict[tuple[str, str, int], Asked] = {}
        self.told: dict[tuple[str, int], dict[str, None]] = {}
        self.lists: dict[tuple[bytes, int], PackedList] = {}
        self.claimed: dict[Claimed, None] = {}
        self.renewed: dict[Claimed, None] = {}
        self._readers: dict[int, Callable[[Machine, Machine, Any], None]] = {
            CLAIM: self._on_claim,
            CLAIM_IS: self._on_claim_is,
            RELEASE: self._on_release,
            RECALL: self._on_recall,
            RECALLED: self._on_recalled,
            VOTERS: self._on_voters,
        }

    def hear(self, sender: str, receiver: str, runs: list[list[Any]]) -> None:
        """Check messages that a node is about to read. Raises RuleBrokenError."""
        for run in runs:
            reader = self._readers.get(run[0])
            if reader is not None:
                machines = self._world.machines
                for item in run[1:]:
                    reader(machines[sender], machines[receiver], item)

    # -- claims ------------------------------------------------------------------------------------

    def _on_claim(self, claimant: Machine, voter: Machine, item: Any) -> None:
        number, epoch, key, holder, fence, _, _, _, flags, *_ = item
        self.asked[claimant.name, voter.name, number] = Asked(voter, epoch)
        claimed = (claimant.name, claimant.runs, key, holder, fence)
        if not flags & RENEWS:
            self.claimed[claimed] = None
            return
        self.renewed[claimed] = None
        for attempt in claimant.broker.claims.attempts.values():
            if not attempt.is_renewal and (attempt.wanted.key, attempt.wanted.holder, attempt.fence) == claimed[2:]:
                self.claimed[claimed] = None  # No voter has read it yet.

    def _on_claim_is(self, voter: Machine, claimant: Machine, item: Any) -> None:
        number, outcome, *_ = item
        asked = self.asked.pop((claimant.name, voter.name, number), None)
        if asked is None or outcome != GRANTED or asked.runs != voter.runs:
            return
        if asked.was > asked.epoch or asked.was <= epoch_of(voter) < asked.epoch:
            raise RuleBrokenError(
                OTHER_LIST, f"{voter.name}, with list {asked.was}, granted a claim of list {asked.epoch}"
            )
        memory = voter.broker.claims.memory
        previous = memory.previous
        if previous is None or memory.may_grant or epoch_of(voter) != asked.epoch:
            return
        told = self.told.get((voter.name, asked.epoch), {})
        needed = previous.majority - (voter.membership.table.me.id in previous.voters)
        if len(told) < needed:
            raise RuleBrokenError(
                COPIES_FIRST, f"{voter.name} of list {asked.epoch} granted a claim; only {list(told)} sent their grants"
            )

    def _on_release(self, claimant: Machine, voter: Machine, item: Any) -> None:
        number, _, key, holder, fence, *_ = item
        released = (claimant.name, claimant.runs, key, holder, fence)
        if not number and released in self.renewed and released not in self.claimed:
            raise RuleBrokenError(RENEWAL_STAYS, f"{claimant.name} takes back {key!r} of {holder!r} under {fence}")

    # -- memories ----------------------------------------------------------------------------------

    def _on_recall(self, reader: Machine, voter: Machine, item: Any) -> None:
        number, epoch, _, is_copying, *_ = item
        self.asked[reader.name, voter.name, number] = Asked(voter, epoch, is_copying=is_copying)

    def _on_recalled(self, voter: Machine, reader: Machine, item: Any) -> None:
        number, outcome, _, _, is_end, *_ = item
        asked = self.asked.pop((reader.name, voter.name, number), None)
        if asked is None or outcome != A_PAGE or not asked.is_copying:
            return
        if asked.runs == voter.runs and asked.was <= epoch_of(voter) <= asked.epoch:
            raise RuleBrokenError(HAS_STOPPED, f"{voter.name} goes on with list {asked.epoch}, but told {reader.name}")
        previous = reader.broker.claims.memory.previous
        if is_end and previous is not None and previous.epoch == asked.epoch:
            self.told.setdefault((reader.name, epoch_of(reader)), {})[voter.name] = None

    def _on_voters(self, sender: Machine, receiver: Machine, item: Any) -> None:
        voter_list = unpack_list(item[0])
        packed = voter_list.packed()
        if self.lists.setdefault((voter_list.origin, voter_list.epoch), packed) != packed:
            raise RuleBrokenError(ONE_LIST, f"{sender.name} has another list of epoch {voter_list.epoch}")


def epoch_of(machine: Machine) -> int:
    """Return the epoch of a node's list of voters; 0 if it knows none."""
    voter_list = machine.broker.claims.memory.list
    return voter_list.epoch if voter_list is not None else 0
