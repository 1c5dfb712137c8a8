"""Recalling: copy memories of grants from voter to voter. RECALL, RECALLED.

A voter needs the memories of others in two cases:

* A voter of a new list copies the running grants, the highest fences and the floors from a majority of the voters of
  the list before it. Only voters that have stopped the old epoch and remember their grants answer. Spec CL5.
* A voter that has lost its memory waits until every lease that it may have granted is over. Then it copies the same
  from a majority of its own list. Only voters that remember their grants answer. Spec CL6.

The reader asks for one page at a time. The voter that is asked keeps the list of keys as it was at the first page, so a
page that is asked for twice has the same keys.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import RECALL, RECALLED
from cluster_bus.node import Node
from disque_py.core import voting
from disque_py.core.broker import Broker
from disque_py.core.claims import note_change, send, voters_in_reach
from disque_py.core.grants import FENCE_LIMIT, ITEM_FIELDS, is_grant_item
from disque_py.core.voter_list import VoterList
from disque_py.core.voter_memory import FLOOR, GRANT, LISTS
from disque_py.log_lines import tell

# A page that has not come is asked for again after this.
ASK_AGAIN_MS: Final = 1_000

A_PAGE: Final = 0
NOT_NOW: Final = 1
BEGIN_AGAIN: Final = 2


class Recall:
    """The state of reading other voters' memories.

    sources      the list whose voters are asked
    is_copying   whether they are asked about the epoch before ours; otherwise about ours
    asked        node -> number of the open request
    asked_ms     node -> when that request was sent
    pages        node -> number of its next page
    runs         node -> the process that was asked for the first page
    complete     nodes that have sent all pages
    floors       node -> its floor
    told         node -> keys that it remembers
    """

    __slots__ = ("asked", "asked_ms", "complete", "floors", "is_copying", "pages", "runs", "sources", "told")

    def __init__(self, sources: VoterList, *, is_copying: bool) -> None:
        self.sources = sources
        self.is_copying = is_copying
        self.asked: dict[Node, int] = {}
        self.asked_ms: dict[Node, int] = {}
        self.pages: dict[Node, int] = {}
        self.runs: dict[Node, bytes] = {}
        self.complete: dict[Node, None] = {}
        self.floors: dict[Node, int] = {}
        self.told: dict[Node, set[bytes]] = {}


def step(broker: Broker) -> None:
    """Start reading memories if this voter needs them, and ask for the next pages."""
    claims = broker.claims
    memory = claims.memory
    recall = claims.recall
    if recall is None:
        if memory.list is None or not voting.is_voter(broker):
            return
        if memory.remembers and not memory.has_copied and memory.previous is not None:
            recall = Recall(memory.previous, is_copying=True)
        elif not memory.remembers and not memory.may_grant and 0 < claims.muted_until_ms <= broker.now_ms:
            recall = Recall(memory.list, is_copying=False)
        else:
            return
        claims.recall = recall
    for node in voters_in_reach(broker, recall.sources.voters):
        if node in recall.complete or (node is broker.me and not recall.is_copying):
            continue
        if node not in recall.asked or broker.now_ms - recall.asked_ms[node] >= ASK_AGAIN_MS:
            _ask(broker, recall, node)


def _ask(broker: Broker, recall: Recall, node: Node) -> None:
    if recall.runs.get(node, b"") != node.run:
        recall.runs[node] = node.run
        recall.pages[node] = 0
    recall.asked[node] = broker.claims.next_number()
    recall.asked_ms[node] = broker.now_ms
    fields = (recall.asked[node], recall.sources.epoch, recall.pages[node], recall.is_copying)
    send(broker, node, RECALL, fields)


def on_recall(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Send a page of our memory of an epoch, if we remember it. A past epoch must be stopped here."""
    claims = broker.claims
    memory = claims.memory
    grants = memory.grants
    for number, epoch, page, is_copying, *_ in items:
        if type(number) is not int or type(epoch) is not int or type(page) is not int or page < 0:
            raise ValueError("a malformed request for a memory")
        has_stopped = memory.list is not None and memory.list.epoch > epoch
        if not memory.is_good(epoch) or claims.memory.is_conflict or has_stopped != bool(is_copying):
            send(broker, sender, RECALLED, (number, NOT_NOW, 0, [], False))
            voting.gossip(broker, [sender])
            continue
        if page == 0:
            claims.told[sender] = (epoch, list(grants.records), broker.now_ms)
        of_epoch, keys, _ = claims.told.get(sender, (0, [], 0))
        if of_epoch != epoch:
            send(broker, sender, RECALLED, (number, BEGIN_AGAIN, 0, [], False))
            continue
        claims.told[sender] = (epoch, keys, broker.now_ms)
        # This page may have been sent before, if its answer came too late.
        part = keys[page * claims.page_keys : (page + 1) * claims.page_keys]
        told = [grants.item(key, broker.now_ms) for key in part if key in grants.records]
        is_end = len(keys) <= (page + 1) * claims.page_keys
        # `answer` waits until the disk has recorded that this voter has stopped the epoch.
        voting.answer(broker, sender, RECALLED, (number, A_PAGE, grants.floor, told, is_end))


def on_recalled(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Merge a page of another voter's memory into ours. The memories of a majority are enough."""
    claims = broker.claims
    for number, outcome, floor, told, is_end, *_ in items:
        if type(number) is not int or type(outcome) is not int or type(is_end) is not bool:
            raise ValueError("a malformed memory")
        if type(floor) is not int or not 0 <= floor <= FENCE_LIMIT or type(told) not in (list, tuple):
            raise ValueError("a memory without grants")
        if not all(is_grant_item(item) for item in told):
            raise ValueError("malformed grants")
        recall = claims.recall
        if recall is None or recall.asked.get(sender) != number:
            broker.stats.ignored("a memory that was not asked for")
            continue
        if outcome == NOT_NOW:
            continue  # `step` asks again.
        if outcome == BEGIN_AGAIN:
            recall.pages[sender] = 0
            _ask(broker, recall, sender)
            continue
        grants = claims.memory.grants
        keys = recall.told.setdefault(sender, set())
        for item in told:
            grants.merge(tuple(item[:ITEM_FIELDS]), broker.now_ms)
            note_change(broker, GRANT, item[0])
            keys.add(item[0])
        recall.floors[sender] = max(recall.floors.get(sender, 0), floor)
        if not is_end:
            recall.pages[sender] += 1
            _ask(broker, recall, sender)
            continue
        recall.complete[sender] = None
        if len(recall.complete) >= recall.sources.majority:
            _end(broker, recall)
            return


def _end(broker: Broker, recall: Recall) -> None:
    """Grant claims from now on. Answers wait for the file, so the copies are on disk before the first grant."""
    claims = broker.claims
    memory = claims.memory
    assert memory.list is not None
    if recall.is_copying:
        memory.has_copied = True
    else:
        memory.may_grant = True
        claims.muted_until_ms = 0
    claims.recall = None
    _apply_floors(broker, recall)
    note_change(broker, LISTS)
    tell(broker.host, "voter-ready", epoch=memory.list.epoch)


def _apply_floors(broker: Broker, recall: Recall) -> None:
    """Raise our floor to those of the sources, and block keys whose running grant may be older than a forgotten one.

    A source's floor is its highest fence of each key that it does not remember. Spec CL5, CL10.
    """
    grants = broker.claims.memory.grants
    known = [(recall.floors[node], recall.told[node]) for node in recall.complete]
    highest = max(floor for floor, _ in known)
    for key, record in grants.records.items():
        if record.until_ms > broker.now_ms and record.fence <= highest and record.fence == record.highest:
            floor = max([floor for floor, keys in known if key not in keys], default=0)
            if record.fence <= floor:
                grants.block(key, floor)
                note_change(broker, GRANT, key)
    if highest > grants.floor:
        grants.floor = highest
        note_change(broker, FLOOR)


def on_run_over(broker: Broker, node: Node) -> None:
    """Ask a node's next process from the first page on, because the process that ended had sent only some pages."""
    recall = broker.claims.recall
    if recall is not None and node not in recall.complete:
        recall.asked.pop(node, None)
        recall.pages.pop(node, None)
        recall.runs.pop(node, None)
