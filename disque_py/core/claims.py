"""Claims: the state of one node as a voter, as a claimant, and as a proposer of lists.

A *claim* is a lease on a key that a majority of the voters grants. The modules of this conversation:

    voter_list.py     the voters of an epoch
    grants.py         one voter's memory of the claims that it granted
    voter_memory.py   everything that a voter keeps in its file
    voting.py         the voter: claims, releases, lists, and its file
    recalling.py      memories of grants, copied from voter to voter
    electing.py       the next list of voters
    claiming.py       the claimant

A node is often a voter itself. Its messages to itself lie in `local`, and are handled at the end of the turn
(claim_messages.py), as if they had travelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.grants import IDLE_MS
from disque_py.core.voter_memory import VoterMemory

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker
    from disque_py.core.claiming import Attempt
    from disque_py.core.electing import Round
    from disque_py.core.recalling import Recall

# Keys of a memory that are told at once.
PAGE_KEYS: Final = 300
# Node, its process, kind and fields of a message that waits for the file.
Waiting = tuple["Node", bytes, int, tuple[Any, ...]]


class Claims:
    """The state of a node.

    memory          the file's contents, and what is to be written
    is_due          the turn has something to do at its end: local messages, or a write
    local           messages of this node to itself: kind, fields
    number          of the last message that expects an answer

    The file
      unsaved       kinds and keys of items to be written
      is_void       the file is to be made anew
      is_writing    a write is under way
      is_failing    the last write failed
      retry_at_ms   when it is repeated; 0: it need not be
      waiting       answers that leave after the next write

    The voter
      page_keys     keys that are told to another voter at once
      idle_ms       keys are forgotten so long after they counted last
      muted_until_ms   a voter without memory reads those of others after this moment
      recall        memories of other voters are being read
      told          nodes that read this node's memory -> the epoch, and the keys as they were at the first page
      refused       keys of values and jobs -> nodes that were refused, and hear of the end of the grant

    The claimant and the proposer
      attempts      number -> a claim, renewal or release that waits for answers
      rounds        number -> a vote that waits for answers
    """

    def __init__(self, run: bytes) -> None:
        self.memory = VoterMemory()
        self.is_due = False
        self.local: list[tuple[int, Any]] = []
        # Answers to an earlier process of this node have other numbers.
        self.number = int.from_bytes(run[:6], "big") << 14
        self.unsaved: dict[tuple[int, bytes], None] = {}
        self.is_void = False
        self.is_writing = False
        self.is_failing = False
        self.retry_at_ms = 0
        self.waiting: list[Waiting] = []
        self.muted_until_ms = 0
        self.page_keys = PAGE_KEYS
        self.idle_ms = IDLE_MS
        self.recall: Recall | None = None
        self.told: dict[Node, tuple[int, list[bytes]]] = {}
        self.refused: dict[bytes, dict[Node, None]] = {}
        self.attempts: dict[int, Attempt] = {}
        self.rounds: dict[int, Round] = {}

    def next_number(self) -> int:
        """Return a number for a message that expects an answer."""
        self.number += 1
        return self.number


def send(broker: Broker, node: Node, kind: int, fields: Any) -> None:
    """Send a message to a node, or to ourselves. Without a link it is lost."""
    if node is broker.me:
        broker.claims.local.append((kind, fields))
        broker.claims.is_due = True
    elif node.is_linked:
        broker.send(broker.sets.only(node), kind, fields)


def note_change(broker: Broker, kind: int, key: bytes = b"") -> None:
    """Note that an item of the memory has to be written."""
    broker.claims.unsaved[kind, key] = None
    broker.claims.is_due = True


def voters_in_reach(broker: Broker, ids: dict[bytes, bytes]) -> list[Node]:
    """Return those of these nodes that a message would reach, this node included, in the order given."""
    nodes = []
    for node_id in ids:
        node = broker.me if node_id == broker.me.id else broker.cluster.find(node_id)
        if node is not None and (node is broker.me or node.is_linked):
            nodes.append(node)
    return nodes
