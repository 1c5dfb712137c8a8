"""The exchange of queue settings, as state: writes of the file, commands that wait, and the answers of other nodes.

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

    number   the table's change number of the command
    done     answers the client
    """

    name: bytes
    number: int
    done: Callable[[OSError | None], None]


class Exchange:
    """The state of a node's conversation about settings, with its file and with other nodes (settings_sync.py).

    is_writing     the file is being written
    is_void        all settings are to be forgotten in the file, too
    is_failing     the last write failed
    retry_at_ms    when it is repeated; 0: it was not, or it is being repeated
    saved_number   the table's change number that the file has
    saved_digest   the digest of the settings that the file has: what other nodes are told
    waiting        commands that wait -> until when they wait for other nodes; 0: they wait for the file
    confirmed      node -> the change number whose state it is known to have
    digests        node -> the digest that it told last
    walks          nodes that asked for all settings, and those that they are still to be told
    walk_at_ms     when the next ones are told
    doubts         node -> how often its settings differed from ours: what it confirmed before counts no more
    asking         nodes that were asked, or are to be asked when they are linked
    wait_until_ms  after a start: until when GETJOB and ADDJOB wait for settings; 0: they don't
    lengths        queue with `maxlen` -> node -> pending jobs there
    told_lengths   queue with `maxlen` -> pending jobs here, as other nodes were told
    length_walk    the queues whose lengths are told next
    length_round_ms   when the walk over all of them began
    """

    def __init__(self) -> None:
        self.is_writing = False
        self.is_void = False
        self.is_failing = False
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
        self.wait_until_ms = 0
        self.lengths: dict[bytes, dict[Node, int]] = {}
        self.told_lengths: dict[bytes, int] = {}
        self.length_walk: Iterator[bytes] = iter(())
        self.length_round_ms = 0

    def has_confirmed(self, state: QueueState, node: Node) -> bool:
        """Return whether a node has said that it has this state, and its settings have not differed since."""
        if self.confirmed.get(node, -1) >= state.number:
            return True
        doubts = state.confirmed.get(node)
        return doubts is not None and doubts == self.doubts.get(node, 0)

    def doubt(self, node: Node) -> None:
        """Forget what a node has confirmed: its settings differ from ours."""
        self.confirmed.pop(node, None)
        self.doubts[node] = self.doubts.get(node, 0) + 1

    def forget_nodes(self) -> None:
        """Forget what was agreed with other nodes, and wait for none of them."""
        self.confirmed.clear()
        self.digests.clear()
        self.walks.clear()
        self.doubts.clear()
        self.asking.clear()
        self.lengths.clear()
        self.told_lengths.clear()
        self.wait_until_ms = 0
