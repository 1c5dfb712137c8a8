"""The command options that the nodes of a worker support, learned from their refusals.

A worker names the delivery in its commands (ATTEMPT), and leaves delays and limits of attempts to the node. Older nodes
and Disque 1.0 do not support these options. Such a node refuses the command, which has no effect. From then on the
worker uses the plain command for all jobs of that node, and waits between attempts itself. So it tries the options only
once with each node.

While one node of a cluster is older, the newer nodes refuse these options, too. Such a refusal is not remembered,
because it ends with the upgrade. Pure.
"""

from __future__ import annotations

import logging
from typing import Final

from disque_py.client.address import Address
from disque_py.client.errors import BadIdError, DisqueError, ReplyError
from disque_py.client.results import Job

# The start of the refusal in a cluster that is being upgraded (spec Y1).
NOT_WHILE: Final = "ERR not while node"

# The end of the refusal of a result (`result-max-bytes` of the node).
TOO_LONG: Final = "longer than result-max-bytes"

_log = logging.getLogger("disque_py.client.worker")


class Dialect:
    """The nodes that refused new options.

    fetches_attempts   GETJOB asks for the number of each delivery (WITHLEASE)
    """

    def __init__(self) -> None:
        self.fetches_attempts = True
        self._older: set[Address | None] = set()

    def attempt_of(self, job: Job) -> int | None:
        """Return the number of the delivery for a command to its node; None if that node does not support ATTEMPT."""
        return None if job.node in self._older else job.attempt

    def is_refused(self, job: Job, error: DisqueError) -> bool:
        """Return whether a node refused a command because of its new options, and remember that node."""
        if not isinstance(error, BadIdError) and not is_misunderstood(error):
            return False
        if not str(error).startswith(NOT_WHILE) and job.node not in self._older:
            self._older.add(job.node)
            _log.info("%s knows no ATTEMPT: the worker keeps jobs that failed until their next attempt", job.node)
        return True

    def fetch_is_refused(self, error: DisqueError) -> bool:
        """Return whether GETJOB may have been refused because of WITHLEASE. Then it is left out from now on."""
        if not self.fetches_attempts or not is_misunderstood(error):
            return False
        self.fetches_attempts = False
        return True


def is_too_long(error: DisqueError) -> bool:
    """Return whether a node refused an ack because of the length of its result. The node supports the option."""
    return is_misunderstood(error) and str(error).endswith(TOO_LONG)


def is_misunderstood(error: DisqueError) -> bool:
    """Return whether a node can't parse a command, because it is older or lacks an option. Waiting won't help."""
    return type(error) is ReplyError and error.code == "ERR"
