"""Failure detection: suspicion, reports, agreement, healing (spec N3).

* A node is *suspected* (PFAIL, `fail?`) by us alone when our ping stays unanswered for the node time-out.
* Other nodes gossip their suspicions. These are reports, each valid for two time-outs.
* A node *has failed* (FAIL) when we suspect it and a majority of the cluster, ourselves included, reports it. Then we
  tell all nodes, and they believe it. So a cluster of two nodes never gets past `fail?`.
* Any answer from the node itself ends both states.

Each function here reads and writes one Node. Membership tells other nodes and saves the nodes file. Times are
monotonic milliseconds.
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import FAIL, HANDSHAKE, MYSELF, PFAIL, Node

# A report older than this many node time-outs no longer counts. Its reporter gossips often enough to renew it.
REPORT_TIMEOUTS: Final = 2


def quorum(size: int) -> int:
    """Return how many of `size` nodes, we included, must see a node failing before it counts as failed."""
    return size // 2 + 1


def is_silent(node: Node, now_ms: int, node_timeout_ms: int) -> bool:
    """Return whether our ping has been unanswered for so long that the node must be suspected."""
    return bool(node.ping_sent_ms) and now_ms - node.ping_sent_ms > node_timeout_ms


def suspect(node: Node) -> bool:
    """Set PFAIL; False if it was suspected or failed already, or can't be (ourselves, a handshake)."""
    if node.flags & (PFAIL | FAIL | MYSELF | HANDSHAKE):
        return False
    node.flags |= PFAIL
    return True


def report(node: Node, reporter: Node, now_ms: int) -> None:
    """Note that `reporter` says that `node` is failing."""
    node.reports[reporter] = now_ms


def withdraw(node: Node, reporter: Node) -> None:
    """Drop the report: `reporter` says that `node` is well, or the word of `reporter` no longer counts."""
    node.reports.pop(reporter, None)


def report_count(node: Node, now_ms: int, node_timeout_ms: int) -> int:
    """Return how many other nodes currently report it; drop reports that are too old."""
    oldest_ms = now_ms - REPORT_TIMEOUTS * node_timeout_ms
    for reporter in [reporter for reporter, at_ms in node.reports.items() if at_ms < oldest_ms]:
        del node.reports[reporter]
    return len(node.reports)


def agree(node: Node, size: int, now_ms: int, node_timeout_ms: int) -> bool:
    """Turn our suspicion into FAIL if a majority of `size` nodes shares it; True if that happened now."""
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
    """End suspicion and failure, for the node answered; False if there was neither."""
    if not node.flags & (PFAIL | FAIL):
        return False
    node.flags &= ~(PFAIL | FAIL)
    node.fail_at_ms = 0
    return True
