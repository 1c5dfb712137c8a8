"""Batches of jobs fetched by token, so that a batch can be read again and acknowledged as a whole.

Without a token, a job can't be fetched again while it is leased. `GETJOB … TOKEN t` gives the same jobs again for the
same t, as long as they are leased. `ACKTOKEN t` acknowledges all of them (spec G1, G2, G3).

A batch is a number and a list of shares, one per node. A share has the number of jobs and bytes that the node may
give, and the largest number of GETJOBs for them. The tokens are computed from the number and the shares. So Spark's
checkpoint determines the tokens before a job is fetched. A task may run on any executor, and twice. The driver can
acknowledge the batch without a message from the tasks.

A reply ends with the job that takes it over one megabyte. So a share has a token for each thousand jobs and one for
each megabyte. A task goes on to the next token until it has its jobs or bytes, or until the queues give nothing.
A token that no task used is unknown to its node, and does no harm.

An offset in the checkpoint:

    {"id": "<random, of the query>", "n": 7, "shares": [["<node id>", 260, 4000, 268435456], …],
     "runs": {"<node id>": "<run id>"}}

`n` counts batches. `shares` are those of the batch that ends here: node, GETJOBs, jobs, bytes. In offsets of older
versions, bytes are missing, and the third value is the jobs of each GETJOB. `runs` has the run ids of the nodes when
the batch was planned. A node that was restarted since may have sent jobs that never arrived. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Offset: TypeAlias = dict[str, Any]

# One GETJOB asks for this many jobs.
JOBS_PER_TOKEN: Final = 1_000
# A reply of GETJOB ends with the job that takes it over this size (docs/commands.md).
BYTES_PER_TOKEN: Final = 1 << 20
# A task pays for its overhead from about this many jobs on.
JOBS_PER_TASK: Final = 100


class Share(NamedTuple):
    """One task's part of a batch.

    first, tokens   number of its first token at the node, and count of its tokens
    jobs, bytes     the task ends when it has this many of either
    """

    node: str
    first: int
    tokens: int
    jobs: int
    bytes: int


def token(offset: Mapping[str, Any], node: str, number: int) -> bytes:
    """Return the token of one GETJOB of the batch."""
    return f"spark/{offset['id']}/{offset['n']}/{node[:8]}/{number}".encode()


def tokens(offset: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """Return all tokens of the batch, by node."""
    found: dict[str, list[bytes]] = {}
    for share in _whole(offset):
        found[share.node] = [token(offset, share.node, number) for number in range(share.tokens)]
    return found


def jobs_of(offset: Mapping[str, Any]) -> int:
    """Return the largest number of jobs that the batch can have."""
    return sum(share.jobs for share in _whole(offset))


def _whole(offset: Mapping[str, Any]) -> list[Share]:
    """Return the shares of the nodes, each undivided."""
    found = []
    for node, count, jobs, *more in offset["shares"]:
        if more:
            found.append(Share(node, 0, count, jobs, more[0]))
        else:
            found.append(Share(node, 0, count, jobs * count, BYTES_PER_TOKEN * count))
    return found


def first_offset(query: str) -> Offset:
    """Return the offset before the first batch."""
    return {"id": query, "n": 0, "shares": []}


def next_offset(
    start: Mapping[str, Any],
    waiting: Mapping[str, int],
    jobs_max: int,
    bytes_max: int,
    runs: Mapping[str, str] | None = None,
) -> Offset:
    """Return the end of the next batch: at most `jobs_max` of the waiting jobs, from each node in proportion.

    `waiting` and `runs` are by node.
    """
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
    """Divide the batch into about `pieces` tasks, at least one per node that has jobs."""
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
    """Return where each part begins, and the end of the last one."""
    return [whole * part // parts for part in range(parts + 1)]
