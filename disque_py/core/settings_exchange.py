"""The state of the exchange of queue settings: writes of the file, waiting commands, and answers of other nodes.

settings_sync.py has the rules and makes all decisions. queue_settings.py has the settings themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.queue_settings import Item, QueueState


class Waiting(NamedTuple):
    """A QUEUE SET or RESET whose client waits: first for the file, then for linked nodes.

    number   the table's change number after the command
    done     is called to answer the client
    """

    name: bytes
    number: int
    done: Callable[[OSError | None], None]


class Exchange:
    """The state of a node's exchange of settings with its file and with other nodes (settings_sync.py).

    is_writing     whether the file is being written
    is_void        whether the next write must also forget all earlier settings in the file
    trouble        the system's error if the last write failed; otherwise empty
    retry_at_ms    when a failed write is repeated; 0: no repetition is due
    saved_number   the table's change number that the file has
    saved_digest   the digest of the settings that the file has, which is the one that other nodes are told
    waiting        command that waits -> until when it waits for other nodes; 0: it waits for the file
    confirmed      node -> the change number of the newest state that it is known to have
    digests        node -> the last digest that it has sent
    walks          node that asked for all settings -> the settings that must still be sent
    walk_at_ms     when the next part is sent
    doubts         node -> how often its settings differed from ours; older confirmations of states are void
    asking         nodes that were asked for settings, or will be asked when they are linked
    compare_at_ms  when our digest is sent to all nodes, because a link broke; 0: at no time
    suspects       nodes whose settings differed from ours after a link broke
    suspect_at_ms  when the next of them is asked, if it still differs
    wait_until_ms  until when GETJOB and ADDJOB wait for settings after a start; 0: they don't wait
    lengths        queue with `maxlen` -> node -> pending jobs there
    told_lengths   queue with `maxlen` -> pending jobs here, as last sent to other nodes
    length_walk    the queues whose lengths are sent next
    length_round_ms   when the present walk over these queues began
    """

    def __init__(self) -> None:
        self.is_writing = False
        self.is_void = False
        self.trouble = ""
        self.retry_at_ms = 0
        self.saved_number = 0
        self.saved_digest = 0
        self.waiting: dict[Waiting, int] = {}
        self.confirmed: dict[Node, int] = {}
        self.digests: dict[Node, int] = {}
        self.walks: dict[Node, Iterator[Item]] = {}
        self.walk_at_ms = 0
        self.doubts: dict[Node, int] = {}
        self.asking: dict[Node, None] = {}
        self.compare_at_ms = 0
        self.suspects: dict[Node, None] = {}
        self.suspect_at_ms = 0
        self.wait_until_ms = 0
        self.lengths: dict[bytes, dict[Node, int]] = {}
        self.told_lengths: dict[bytes, int] = {}
        self.length_walk: Iterator[bytes] = iter(())
        self.length_round_ms = 0

    def has_confirmed(self, state: QueueState, node: Node) -> bool:
        """Return whether a node has confirmed this state, and its settings have not differed from ours since."""
        if self.confirmed.get(node, -1) >= state.number:
            return True
        doubts = state.confirmed.get(node)
        return doubts is not None and doubts == self.doubts.get(node, 0)

    def doubt(self, node: Node) -> None:
        """Forget all confirmations of a node, because its settings differ from ours."""
        self.confirmed.pop(node, None)
        self.doubts[node] = self.doubts.get(node, 0) + 1

    def forget_nodes(self) -> None:
        """Forget the state of the exchange with all other nodes, and wait for none of them."""
        self.confirmed.clear()
        self.digests.clear()
        self.walks.clear()
        self.doubts.clear()
        self.asking.clear()
        self.suspects.clear()
        self.lengths.clear()
        self.told_lengths.clear()
        self.compare_at_ms = 0
        self.wait_until_ms = 0
