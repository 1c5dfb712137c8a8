"""Claims: the state of one node as a voter, as a claimant, and as a proposer of voter lists.

A *claim* is a lease on a key that a majority of the voters grants. These modules work on claims:

    voter_list.py     the voters of an epoch
    grants.py         one voter's memory of the claims that it granted
    voter_memory.py   everything that a voter keeps in its file
    voting.py         the voter: claims, releases, lists, and its file
    recalling.py      the copying of grants from voter to voter
    electing.py       the next list of voters
    claiming.py       the claimant

A node that makes claims is often a voter itself. It puts its messages to itself into `local` and handles them at the
end of the turn, like messages from other nodes (claim_messages.py).
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

# Keys of a memory that one message tells.
PAGE_KEYS: Final = 300
# A message that waits for the file: node, its process, kind and fields.
Waiting = tuple["Node", bytes, int, tuple[Any, ...]]


class Claims:
    """The state of one node's claims.

    memory          everything that the node keeps in its file
    is_due          whether the end of the turn has work to do: local messages, or a write
    local           messages of this node to itself: kind, fields
    number          of the last message that expects an answer

    The file
      unsaved       kinds and keys of items to be written
      is_void       whether the file must be written anew
      is_writing    whether a write is under way
      trouble       the system's error if the last write failed; otherwise empty
      retry_at_ms   when a failed write is repeated; 0: none has to be
      waiting       answers that leave after the next write

    The voter
      page_keys     how many keys one message to another voter tells
      idle_ms       how long after its last use a key is forgotten
      muted_until_ms   a voter without memory begins to read the memories of others at this moment
      recall        the reading of other voters' memories, while it lasts
      told          node that reads this node's memory -> the epoch, the keys as they were at the first page, and when
                    it asked for the last page; monotonic
      refused       key of a value or job -> nodes whose claims were refused, which are told when the grant ends

    The claimant and the proposer
      attempts      number -> a claim, renewal or release that waits for answers
      rounds        number -> a vote that waits for answers
    """

    def __init__(self, run: bytes) -> None:
        self.memory = VoterMemory()
        self.is_due = False
        self.local: list[tuple[int, Any]] = []
        # Numbers begin at a value that depends on the run, so that answers to an earlier run don't match.
        self.number = int.from_bytes(run[:6], "big") << 14
        self.unsaved: dict[tuple[int, bytes], None] = {}
        self.is_void = False
        self.is_writing = False
        self.trouble = ""
        self.retry_at_ms = 0
        self.waiting: list[Waiting] = []
        self.muted_until_ms = 0
        self.page_keys = PAGE_KEYS
        self.idle_ms = IDLE_MS
        self.recall: Recall | None = None
        self.told: dict[Node, tuple[int, list[bytes], int]] = {}
        self.refused: dict[bytes, dict[Node, None]] = {}
        self.attempts: dict[int, Attempt] = {}
        self.rounds: dict[int, Round] = {}

    def next_number(self) -> int:
        """Return a number for a message that expects an answer."""
        self.number += 1
        return self.number


def send(broker: Broker, node: Node, kind: int, fields: Any) -> None:
    """Send a message to a node, which may be this one. Without a link the message is lost."""
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
    """Return the nodes with these ids that a message can reach, in the order given. This node may be one of them."""
    nodes = []
    for node_id in ids:
        node = broker.me if node_id == broker.me.id else broker.cluster.find(node_id)
        if node is not None and (node is broker.me or node.is_linked):
            nodes.append(node)
    return nodes
