"""Worlds whose nodes are voters, with an exclusive queue or one with `assign quorum`, and commands for it."""

from __future__ import annotations

from typing import Any

from voting_worlds import voters
from world import Talker, World


def exclusive(names: str = "abc", listed: str = "", **options: Any) -> World:
    """Return a cluster of voters with an exclusive queue `q`, by META user."""
    world = voters(names, listed, **options)
    assert world.ask(names[0], "QUEUE", "SET", "q", "type", "exclusive", "exclusive-by", "user") == b"OK"
    world.run(100)
    return world


def quorum(names: str = "abc", **options: Any) -> World:
    """Return a cluster of voters with a queue `q` that has `assign quorum`."""
    world = voters(names, **options)
    assert world.ask(names[0], "QUEUE", "SET", "q", "assign", "quorum") == b"OK"
    world.run(100)
    return world


def add(world: World, name: str, user: str = "", *words: Any, retry: int = 10, copies: int = 3) -> bytes:
    """Add a job with ADDJOB, and return its id."""
    meta = ("META", "user", user) if user else ()
    return world.ask(name, "ADDJOB", "q", f"work-{user}", 0, "RETRY", retry, "REPLICATE", copies, *meta, *words)


class Delivery:
    """A delivered job."""

    def __init__(self, entry: list[Any]) -> None:
        self.id = entry[1]
        self.body = entry[2]
        fields = dict(zip(entry[3::2], entry[4::2], strict=True))
        self.lease_ms = fields[b"lease-ms"]
        self.attempt = fields[b"attempt"]
        self.fence = fields[b"fence"]


def get(world: World, name: str, *words: Any, count: int = 1) -> list[Delivery]:
    """Send GETJOB NOHANG, and return the deliveries."""
    reply = world.ask(name, "GETJOB", "NOHANG", "COUNT", count, "WITHLEASE", *words, "FROM", "q")
    return deliveries(reply)


def deliveries(reply: Any) -> list[Delivery]:
    """Return the deliveries in a reply to GETJOB."""
    if isinstance(reply, Exception):
        raise reply
    return [Delivery(entry) for entry in reply or ()]


def begin_get(world: World, name: str, *words: Any, timeout_ms: int = 0) -> Talker:
    """Send a GETJOB that waits. Its reply comes later."""
    talker = world.client(name)
    talker.say("GETJOB", "TIMEOUT", timeout_ms, "WITHLEASE", *words, "FROM", "q")
    return talker


def stat(world: World, name: str) -> dict[bytes, Any]:
    """Return QSTAT of the queue."""
    reply = world.ask(name, "QSTAT", "q")
    return dict(zip(reply[::2], reply[1::2], strict=True))


def ids_within(world: World, talker: Talker, within_ms: int) -> list[bytes]:
    """Return the ids of the jobs that a waiting GETJOB got; none if it got none in this time."""
    for _ in range(within_ms // 10):
        if talker.replies:
            break
        world.run(10)
    return [entry[1] for entry in talker.replies[0]] if talker.replies else []
