"""FetchOptions: the options of a GETJOB that concern each of its jobs.

Most GETJOBs have no such options and share PLAIN, so the hot path compares one reference. Options with LEASE or TOKEN
are *picky*: they skip at-most-once jobs, because the delivery of such a job can neither be limited nor repeated
(spec O7). Spec I2, R6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from disque_py.core.filters import Filter

COUNTERS: Final = 1  # WITHCOUNTERS
META: Final = 2  # WITHMETA
LEASE: Final = 4  # WITHLEASE

TOKEN_BYTES_MAX: Final = 256


class FetchOptions:
    """The options of one GETJOB that concern its jobs.

    shows      COUNTERS, META, LEASE: the optional fields of each entry in the reply
    lease_ms   LEASE: how long this delivery lasts; 0: the job's RETRY
    token      TOKEN: the name under which the delivery can be repeated (tokens.py); empty: none
    is_picky   whether jobs with RETRY 0 are skipped
    where      the pairs that a job must carry; None: any job
    """

    __slots__ = ("is_picky", "lease_ms", "shows", "token", "where")

    def __init__(self, shows: int, lease_ms: int = 0, token: bytes = b"", where: Filter | None = None) -> None:
        self.shows = shows
        self.lease_ms = lease_ms
        self.token = token
        self.is_picky = bool(lease_ms or token)
        self.where = where


PLAIN: Final = FetchOptions(0)
WITH_COUNTERS: Final = FetchOptions(COUNTERS)


def fetch_options(shows: int, lease_ms: int, token: bytes, where: Filter | None = None) -> FetchOptions:
    """Return the options for these values. The usual options are shared objects."""
    if lease_ms or token or shows > COUNTERS or where is not None:
        return FetchOptions(shows, lease_ms, token, where)
    return WITH_COUNTERS if shows else PLAIN
