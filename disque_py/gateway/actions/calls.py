"""The call: one execution of an operation, as its action sees it; and helpers that several actions share.

service.py makes a Call for each request, after its checks. An action sends its commands with the caller's client, so
the nodes apply the rights of a broker user themselves. For the gateway's own logins, the gateway does. The rules about
names in arguments and answers are here: `check_other_names`, `may_read` and `may_see_bodies`.

The client talks to one node at a time. Some commands work only on a node that has the job. If the first node does not
have it, an action asks the `other_nodes` one after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from disque_py.client import Address, AsyncDisque, AuthError, DisqueConnectionError, DisqueError, NoJobError
from disque_py.client.request import Request
from disque_py.gateway.board import Board
from disque_py.gateway.bulk_operations import BulkOperations
from disque_py.gateway.event_feed import nodes_of
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.settings import Settings

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """One execution of an operation.

    principal         the caller
    args              the arguments by name; those that were not given are missing
    settings          of the gateway
    board             the figures of all queues
    trace             the trace context of the request, as pairs of metadata
    bulk_operations   changes of many jobs that this gateway makes
    put_back          undoes the operation for a caller that is gone; None if that is not needed
    """

    principal: Principal
    args: dict[str, Any]
    settings: Settings
    board: Board
    trace: Mapping[str, str] = field(default_factory=dict)
    bulk_operations: BulkOperations = field(default_factory=BulkOperations)
    put_back: Callable[[], Awaitable[None]] | None = field(default=None)

    @property
    def client(self) -> AsyncDisque:
        """The client that acts in the caller's name."""
        return self.principal.client

    @property
    def queue(self) -> str:
        """The argument `queue`."""
        return str(self.args["queue"])

    def may_see_bodies(self, queue: str) -> bool:
        """Return whether the caller may see bodies and metadata of the queue."""
        return self.principal.asks_broker or self.principal.may("bodies", queue)

    def may_read(self, name: str) -> bool:
        """Return whether the caller may read figures under this name."""
        return self.principal.asks_broker or self.principal.may("read", name)

    async def give_back(self) -> None:
        """Undo the operation, because its caller is gone, if it has taken jobs.

        If their node is gone as well, they are queued again when their leases are over.
        """
        if self.put_back is not None:
            with contextlib.suppress(DisqueError):
                await self.put_back()

    async def run(self, request: Request[T]) -> T:
        """Execute a command."""
        return await self.client.run(request)


def ms(value: int | None) -> timedelta | None:
    """Return milliseconds as a span."""
    return None if value is None else timedelta(milliseconds=value)


async def asked(call: Call, request: Request[T], address: Address) -> T | None:
    """Execute a command on one node. None: the node can't be used, or does not know the job."""
    request.node, request.is_pinned = address, True
    try:
        return await call.run(request)
    except (DisqueConnectionError, AuthError, NoJobError):
        return None


async def other_nodes(call: Call) -> list[Address]:
    """Return the nodes that the client does not use at the moment."""
    first = call.client.consumer_node or call.client.node
    return [address for _, address in await nodes_of(call.client) if address != first]


def forbidden(principal: Principal, role: str, name: str = "") -> RefusedError:
    """Return the refusal of a caller without the role; with a name, on this name."""
    place = f" on {name!r}" if name else ""
    return RefusedError("NOPERM", f"{principal.name} does not have the role {role}{place}")


def check_other_names(principal: Principal, role: str, args: Mapping[str, Any]) -> None:
    """Refuse a caller without the role on the names that arguments have besides their queue. Raises RefusedError.

    Jobs go to the queue `to` and to a queue of dead letters, and a batch counts its jobs. As in the broker, an empty
    name switches a setting off and needs no role.
    """
    if principal.asks_broker:
        return
    more: Mapping[str, str] = args.get("more", {})
    settings = [value for name, value in more.items() if name.lower() == "dead-letter"]
    for name in (args.get("to"), args.get("batch"), args.get("dead_letter"), *settings):
        if name and not principal.may(role, name):
            raise forbidden(principal, role, name)


def check_known(principal: Principal) -> None:
    """Refuse the gateway's own lists to a user whose rights only the broker knows. Raises RefusedError."""
    if principal.asks_broker and not principal.grants:
        raise RefusedError("NOPERM", "only the broker knows the rights of this user: add grants to the access file")
    if not principal.may_somewhere("read"):
        raise RefusedError("NOPERM", f"{principal.name} does not have the role read")


def page_of(args: dict[str, Any], limit: int) -> tuple[int, int]:
    """Return the first index of a page and its length. Raises RefusedError."""
    cursor = args.get("cursor", "0")
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 12:
        raise RefusedError("ERR", "cursor must be the cursor of the previous page")
    return int(cursor), args.get("limit", limit)
