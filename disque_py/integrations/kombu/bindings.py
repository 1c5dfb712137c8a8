"""The queues of fan-out and topic exchanges, which all programs of a cluster share.

A producer does not know its consumers. So each binding of such an exchange is a binding of a topic of the broker
(docs/topics.md), which all nodes know. The topic's name is that of the exchange and the routing key. A producer asks
its node for the topics of the exchange, matches routing keys itself, and adds a job to each queue. It remembers the
answer for CACHE_S.

The filter of a binding has these words:

* `until` is the moment at which the binding ends. A program renews its bindings while it runs, so they end some time
  after the program. Otherwise events for a monitor that was killed would pile up for ever.
* `ttl` says how long the queue keeps its messages.
* `kind` is the exchange's type, `fanout` or `topic`. A producer need not have declared the exchange: Celery declares
  none when it sends to a Broadcast queue. Bindings of older programs have no kind.

A direct exchange needs no topic. If the producer knows no queue for a routing key, the message goes into the queue
`address(exchange, key)`. Consumers of a queue with that binding read that queue, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from disque_py.client import Disque
from disque_py.client.request import Request
from disque_py.client.topic_commands import Binding, bind

CACHE_S: Final = 1.0
# Three times the courier's interval of refreshing.
LIFE_S: Final = 600
PREFIX: Final = "kombu"
FOREVER: Final = "-"
FANOUT: Final = "fanout"


@dataclass(frozen=True, slots=True)
class Bound:
    """A queue of an exchange.

    ttl_ms      None if its messages live as long as others
    is_fanout   whether it gets the messages of every routing key
    """

    queue: str
    routing_key: str
    ttl_ms: int | None
    is_fanout: bool = False


def address(exchange: str, routing_key: str) -> str:
    """Return the name of the topic or queue for messages of an exchange with a routing key."""
    return f"{PREFIX}:{quote(exchange, safe='')}:{quote(routing_key, safe='')}"


def binding(
    exchange: str, routing_key: str, queue: str, *, lives: bool, ttl_ms: int | None, kind: str
) -> Request[bool]:
    """Return the command that binds a queue, or binds it again. `lives`: it ends with the program."""
    until = str(int(time.time()) + LIFE_S) if lives else FOREVER
    where = {"until": until, "ttl": str(ttl_ms or 0), "kind": kind}
    return bind(address(exchange, routing_key), queue, where=where)


class Bindings:
    """The bindings of all programs, as one program sees them."""

    def __init__(self, client: Disque) -> None:
        self._client = client
        self._known: dict[str, tuple[float, list[Bound]]] = {}

    def bind(self, exchange: str, routing_key: str, queue: str, *, lives: bool, ttl_ms: int | None, kind: str) -> None:
        """Bind a queue. Raises DisqueError."""
        self._client.run(binding(exchange, routing_key, queue, lives=lives, ttl_ms=ttl_ms, kind=kind))
        self._known.pop(exchange, None)

    def unbind(self, exchange: str, routing_key: str, queue: str) -> None:
        """Remove a binding. Raises DisqueError."""
        self._client.unbind(address(exchange, routing_key), queue)
        self._known.pop(exchange, None)

    def of(self, exchange: str) -> list[Bound]:
        """Return the queues of an exchange, as they were a second ago at most. Raises DisqueError."""
        now = time.monotonic()
        known = self._known.get(exchange)
        if known is None or now - known[0] > CACHE_S:
            known = self._known[exchange] = now, self._ask(exchange)
        return known[1]

    def _ask(self, exchange: str) -> list[Bound]:
        found = []
        now = time.time()
        for each in self._client.topics(f"{address(exchange, '')}*"):
            until = each.where.get("until", b"")
            if until == FOREVER.encode() or (until.isdigit() and now < int(until)):
                found.append(_bound(each))
            elif until.isdigit() and now > int(until) + LIFE_S:  # Long after its program; clocks may differ.
                self._client.unbind(each.topic, each.queue)
        return found


def _bound(each: Binding) -> Bound:
    ttl = each.where.get("ttl", b"")
    ttl_ms = int(ttl) or None if ttl.isdigit() else None
    return Bound(each.queue, unquote(each.topic.split(":", 2)[2]), ttl_ms, each.where.get("kind") == FANOUT.encode())
