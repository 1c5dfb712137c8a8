"""Fetching jobs by token: what a batch is, so that it can be read again and acknowledged as a whole.

Rows of a queue are not there to be read twice; tokens make them so. `GETJOB … TOKEN t` gives the same jobs
again for the same t, as long as they are leased, and `ACKTOKEN t` acknowledges all of them
(spec G1, G2, G3). A batch is a number and a list of shares, one per task: a node, and
how many GETJOBs of how many jobs. The tokens follow from these, so they are in Spark's checkpoint
before a job is fetched, tasks may run anywhere and twice, and the acks need no word from them.

An offset, as it stands in the checkpoint:

    {"id": "<random, of the query>", "n": 7, "shares": [["<node id>", 4, 5000], …], "runs": {"<node id>": "<run id>"}}

`n` counts batches; `shares` are those of the batch that ends here: node, GETJOBs, jobs for each. `runs` are the
processes that were asked: one that was started again meanwhile may have given jobs of which nobody heard. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Offset: TypeAlias = dict[str, Any]

# Jobs asked for with one GETJOB.
JOBS_PER_TOKEN: Final = 1_000


class Share(NamedTuple):
    """One task's part of a batch: so many tokens at a node from number `first` on, each good for `jobs` jobs."""

    node: str
    first: int
    tokens: int
    jobs: int


def token(offset: Mapping[str, Any], node: str, number: int) -> bytes:
    """The token of one GETJOB of the batch."""
    return f"spark/{offset['id']}/{offset['n']}/{node[:8]}/{number}".encode()


def tokens(offset: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """All tokens of the batch, by node."""
    found: dict[str, list[bytes]] = {}
    for node, count, _ in offset["shares"]:
        found[node] = [token(offset, node, number) for number in range(count)]
    return found


def first_offset(query: str) -> Offset:
    """Before the first batch."""
    return {"id": query, "n": 0, "shares": []}


def next_offset(
    start: Mapping[str, Any], waiting: Mapping[str, int], jobs_max: int, runs: Mapping[str, str] | None = None
) -> Offset:
    """The next batch: at most `jobs_max` of the jobs that wait, from each node in proportion; `runs` by node."""
    total = sum(waiting.values())
    wanted = min(total, jobs_max)
    shares: list[tuple[str, int, int]] = []
    for node in sorted(waiting):
        jobs = -(-wanted * waiting[node] // total) if total else 0
        if jobs:
            count = -(-jobs // JOBS_PER_TOKEN)
            shares.append((node, count, -(-jobs // count)))
    end = {"id": start["id"], "n": start["n"] + 1, "shares": [list(share) for share in shares]}
    asked = {node: runs[node] for node, _, _ in shares if runs and node in runs}
    return end | {"runs": asked} if asked else end


def shares_of(offset: Mapping[str, Any], pieces: int) -> list[Share]:
    """The batch as tasks: about `pieces`, at least one per node that has something."""
    whole = offset["shares"]
    found = []
    for node, count, jobs in whole:
        parts = max(1, min(count, pieces // max(1, len(whole))))
        for part in range(parts):
            first = count * part // parts
            found.append(Share(node, first, count * (part + 1) // parts - first, jobs))
    return found
