"""Which nodes are failing: suspicion, reports, agreement, healing.

A node is *suspected* (PFAIL, `fail?`) by us alone when a ping of ours stays unanswered for the node
time-out. Others gossip their suspicions: these are reports, each valid for two time-outs. A node *has
failed* (FAIL) when we suspect it and, counting ourselves, a majority of the cluster reports it; that
is then told to everybody, who believe it. So two nodes alone never get past `fail?`. Any answer from
the node itself ends both at once. (spec N3)

Everything here reads and writes one Node; who is told and what is saved is membership's business.
Times are monotonic milliseconds.
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import FAIL, HANDSHAKE, MYSELF, PFAIL, Node

# A report older than this many node time-outs no longer counts: its reporter gossips often enough to renew it.
REPORT_TIMEOUTS: Final = 2


def quorum(size: int) -> int:
    """How many of `size` nodes, we included, must see a node failing before it counts as failed."""
    return size // 2 + 1


def is_silent(node: Node, now_ms: int, node_timeout_ms: int) -> bool:
    """Whether our ping has been unanswered for so long that the node must be suspected."""
    return bool(node.ping_sent_ms) and now_ms - node.ping_sent_ms > node_timeout_ms


def suspect(node: Node) -> bool:
    """Set PFAIL; False if it was suspected or failed already, or can't be (ourselves, a handshake)."""
    if node.flags & (PFAIL | FAIL | MYSELF | HANDSHAKE):
        return False
    node.flags |= PFAIL
    return True


def report(node: Node, reporter: Node, now_ms: int) -> None:
    """`reporter` says that `node` is failing."""
    node.reports[reporter] = now_ms


def withdraw(node: Node, reporter: Node) -> None:
    """`reporter` says that `node` is well, or is no longer one whose word counts."""
    node.reports.pop(reporter, None)


def report_count(node: Node, now_ms: int, node_timeout_ms: int) -> int:
    """How many other nodes currently report it; drops what has become too old."""
    oldest_ms = now_ms - REPORT_TIMEOUTS * node_timeout_ms
    for reporter in [reporter for reporter, at_ms in node.reports.items() if at_ms < oldest_ms]:
        del node.reports[reporter]
    return len(node.reports)


def agree(node: Node, size: int, now_ms: int, node_timeout_ms: int) -> bool:
    """Turn our suspicion into FAIL if a majority of `size` nodes shares it; True if it just happened."""
    if not node.flags & PFAIL or node.flags & FAIL:
        return False
    if report_count(node, now_ms, node_timeout_ms) + 1 < quorum(size):
        return False
    return mark_failed(node, now_ms)


def mark_failed(node: Node, now_ms: int) -> bool:
    """Set FAIL, by agreement or because a node announced it; False if it was set, or can't be."""
    if node.flags & (FAIL | MYSELF | HANDSHAKE):
        return False
    node.flags = node.flags & ~PFAIL | FAIL
    node.fail_at_ms = now_ms
    return True


def heal(node: Node) -> bool:
    """The node answered: it neither is suspected nor has failed; False if it wasn't."""
    if not node.flags & (PFAIL | FAIL):
        return False
    node.flags &= ~(PFAIL | FAIL)
    node.fail_at_ms = 0
    return True
