"""Commands about locks: a lock is a claim of a name by an owner. Pure. Spec CL8.

A majority of the voters grants a lock for a lease, and each new owner gets a higher fence. Any node can ask the voters.
The commands name the owner, so a repeated one acts for the same owner. These are single commands: lock.py makes locks
of them that extend their leases in the background.
"""

from __future__ import annotations

from disque_py.client import results
from disque_py.client.arguments import CLAIM_MS, add_pair, names
from disque_py.client.request import Lane, Repeat, Request, words
from disque_py.client.results import LockGrant, LockInfo
from disque_py.client.spans import Milliseconds, milliseconds, whole


def acquire_lock(
    name: str | bytes,
    owner: str | bytes,
    lease_ms: Milliseconds,
    *,
    attempts: int | None = None,
    timeout_ms: Milliseconds = 0,
) -> Request[LockGrant | None]:
    """Take a lock for an owner (LOCK ACQUIRE) → the grant; None if another owner has the lock.

    name         name of the lock
    owner        name of the owner; no two workers may use the same one
    lease_ms     milliseconds after which the lock ends, unless it is extended
    attempts     how often the lock may be acquired, by all owners together, until the work is done; None, the default:
                 any number of times
    timeout_ms   milliseconds to wait while another owner has the lock; 0, the default: don't wait

    If the owner has the lock already, the command renews it, with the same fence and attempt. So the client sends the
    command again if the answer is lost. `lock` does more: it extends the lease in the background, and reports a lost
    lock.

    Raises LockDoneError, LockSpentError, NoQuorumError; ValueError for a number that is not whole.

        grant = client.acquire_lock("nightly", "host-7", 30_000, timeout_ms=5_000)
    """
    argv = [*words(b"LOCK", b"ACQUIRE", name, owner), b"%d" % milliseconds("lease_ms", lease_ms)]
    timeout = milliseconds("timeout_ms", timeout_ms)
    wait_word: int | None = None
    if timeout:
        argv += (b"TIMEOUT", b"%d" % timeout)
        wait_word = len(argv) - 1
    add_pair(argv, b"ATTEMPTS", None if attempts is None else whole("attempts", attempts))
    # It has its own connection, because the node gives the lock back if the client hangs up before the answer.
    wait_ms = timeout or CLAIM_MS
    return Request(tuple(argv), results.lock_grant, Repeat.SAFE, Lane.OWN, wait_ms, wait_word, awaits_voters=True)


def extend_lock(name: str | bytes, owner: str | bytes, fence: int, lease_ms: Milliseconds) -> Request[int]:
    """Start the lease of a lock again (LOCK EXTEND) → milliseconds of the lease.

    name       name of the lock
    owner      the owner that has it
    fence      the fence of its grant
    lease_ms   milliseconds after which the lock ends, unless it is extended again

    Raises FencedError if the lock is no longer this owner's, NoQuorumError; ValueError for a number that is not whole.
    """
    argv = words(b"LOCK", b"EXTEND", name, owner, whole("fence", fence), milliseconds("lease_ms", lease_ms))
    return Request(argv, int, lane=Lane.ADDS, wait_ms=CLAIM_MS, awaits_voters=True)


def release_lock(
    name: str | bytes, owner: str | bytes, fence: int, *, done_ms: Milliseconds | None = None
) -> Request[bool]:
    """Give a lock back (LOCK RELEASE) → whether it was held under this fence.

    name      name of the lock
    owner     the owner that has it
    fence     the fence of its grant
    done_ms   milliseconds for which the cluster remembers that the work is done. In that time no owner gets the lock,
              and afterwards attempts are counted from 1. None, the default: the work is not done

    If the answer to a release without `done_ms` is lost, the client sends it again, and the answer is then False.

    Raises NoQuorumError if no majority of the voters answered: some may have released the lock, and the others do so
    when the lease is over. Raises ValueError for a number that is not whole.
    """
    argv = [*words(b"LOCK", b"RELEASE", name, owner, whole("fence", fence))]
    add_pair(argv, b"DONE", None if done_ms is None else milliseconds("done_ms", done_ms))
    return Request(tuple(argv), bool, lane=Lane.ADDS, wait_ms=CLAIM_MS, awaits_voters=True)


def show_lock(name: str | bytes) -> Request[LockInfo | None]:
    """Describe a lock (LOCK SHOW) → the view of a majority of the voters; None if it is free and forgotten.

    name   name of the lock

    Raises NoQuorumError.
    """
    return Request(words(b"LOCK", b"SHOW", name), results.lock_info, wait_ms=CLAIM_MS, awaits_voters=True)


def locks(pattern: str | None = None) -> Request[list[str]]:
    """List locks that are held or remembered (LOCK LIST) → their names, sorted; at most 10,000.

    pattern   only names that match it: `*`, `?`, `[a-z]`; by default all names

    Raises NoQuorumError.
    """
    argv = words(b"LOCK", b"LIST") if pattern is None else words(b"LOCK", b"LIST", pattern)
    return Request(argv, names, wait_ms=CLAIM_MS, awaits_voters=True)
