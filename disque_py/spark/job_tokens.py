"""Fetching jobs by token: what a batch is, so that it can be read again and acknowledged as a whole.

Rows of a queue are not there to be read twice; tokens make them so. `GETJOB … TOKEN t` gives the same jobs
again for the same t, as long as they are leased, and `ACKTOKEN t` acknowledges all of them
(spec: queues.md, section 2). A batch is a number and a list of shares, one per node: how many jobs and bytes
it may give, and in how many GETJOBs at most. The tokens follow from these, so they are in Spark's checkpoint
before a job is fetched, tasks may run anywhere and twice, and the acks need no word from them.

A reply ends after the job with which it exceeds a megabyte. So a share has a token for each thousand jobs and one
for each megabyte: tasks go on to the next token until they have their jobs or bytes, or the queues give nothing.
A token that no task came to is unknown to its node, and does no harm.

An offset, as it stands in the checkpoint:

    {"id": "<random, of the query>", "n": 7, "shares": [["<node id>", 260, 4000, 268435456], …],
     "runs": {"<node id>": "<run id>"}}

`n` counts batches; `shares` are those of the batch that ends here: node, GETJOBs, jobs, bytes. Offsets of older
versions have no bytes, and the jobs of each GETJOB instead of those of the share. `runs` are the
processes that were asked: one that was started again meanwhile may have given jobs of which nobody heard. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Offset: TypeAlias = dict[str, Any]

# Jobs asked for with one GETJOB.
JOBS_PER_TOKEN: Final = 1_000
# A reply of GETJOB ends after the job with which it exceeds this (docs/commands.md).
BYTES_PER_TOKEN: Final = 1 << 20
# A task is worth its cost from about so many jobs on.
JOBS_PER_TASK: Final = 100


class Share(NamedTuple):
    """One task's part of a batch.

    first, tokens   numbers of its tokens at the node: the first, and how many
    jobs, bytes     it is over when it has so many of either
    """

    node: str
    first: int
    tokens: int
    jobs: int
    bytes: int


def token(offset: Mapping[str, Any], node: str, number: int) -> bytes:
    """The token of one GETJOB of the batch."""
    return f"spark/{offset['id']}/{offset['n']}/{node[:8]}/{number}".encode()


def tokens(offset: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """All tokens of the batch, by node."""
    found: dict[str, list[bytes]] = {}
    for share in _whole(offset):
        found[share.node] = [token(offset, share.node, number) for number in range(share.tokens)]
    return found


def jobs_of(offset: Mapping[str, Any]) -> int:
    """How many jobs the batch has at most."""
    return sum(share.jobs for share in _whole(offset))


def _whole(offset: Mapping[str, Any]) -> list[Share]:
    """The shares of the nodes, each in one piece."""
    found = []
    for node, count, jobs, *more in offset["shares"]:
        if more:
            found.append(Share(node, 0, count, jobs, more[0]))
        else:
            found.append(Share(node, 0, count, jobs * count, BYTES_PER_TOKEN * count))
    return found


def first_offset(query: str) -> Offset:
    """Before the first batch."""
    return {"id": query, "n": 0, "shares": []}


def next_offset(
    start: Mapping[str, Any],
    waiting: Mapping[str, int],
    jobs_max: int,
    bytes_max: int,
    runs: Mapping[str, str] | None = None,
) -> Offset:
    """The next batch: at most `jobs_max` of the jobs that wait, from each node in proportion; `runs` by node."""
    total = sum(waiting.values())
    wanted = min(total, jobs_max)
    shares: list[tuple[str, int, int, int]] = []
    for node in sorted(waiting):
        jobs = -(-wanted * waiting[node] // total) if total else 0
        if jobs:
            size = -(-bytes_max * waiting[node] // total)
            count = -(-jobs // JOBS_PER_TOKEN) + -(-size // BYTES_PER_TOKEN)
            shares.append((node, min(count, jobs), jobs, size))
    end = {"id": start["id"], "n": start["n"] + 1, "shares": [list(share) for share in shares]}
    asked = {share[0]: runs[share[0]] for share in shares if runs and share[0] in runs}
    return end | {"runs": asked} if asked else end


def shares_of(offset: Mapping[str, Any], pieces: int) -> list[Share]:
    """The batch as tasks: about `pieces`, at least one per node that has something."""
    whole = _whole(offset)
    found = []
    for share in whole:
        count = -(-share.jobs // JOBS_PER_TASK)
        parts = max(1, min(count, share.tokens, pieces // max(1, len(whole))))
        tokens, jobs, size = (_cut(number, parts) for number in (share.tokens, share.jobs, share.bytes))
        found += [
            Share(share.node, tokens[part], tokens[part + 1] - tokens[part], jobs[part + 1] - jobs[part],
                  size[part + 1] - size[part])
            for part in range(parts)
        ]  # fmt: skip
    return found


def _cut(whole: int, parts: int) -> list[int]:
    """Where the parts begin, and the end of the last one."""
    return [whole * part // parts for part in range(parts + 1)]
