"""Worlds whose nodes are voters, and commands for locks."""

from __future__ import annotations

from typing import Any

from disque_py.core.grants import FENCE_MAX
from world import Talker, World


def id_of(name: str) -> bytes:
    """Return the id of a scenario's node, as operators write it."""
    return (name.encode() * 20).hex().encode()


def voters(names: str, listed: str = "", **options: Any) -> World:
    """Return a cluster of these nodes. The `listed` ones are voters (by default all)."""
    world = World(names, **options)
    world.join()
    world.run(100)
    assert world.ask(names[0], "CLUSTER", "VOTERS", "INIT", *[id_of(name) for name in listed or names]) == b"OK"
    world.run(100)
    return world


def shown(world: World, name: str) -> dict[bytes, Any]:
    """Return the reply to CLUSTER VOTERS as a dict."""
    reply = world.ask(name, "CLUSTER", "VOTERS")
    return dict(zip(reply[::2], reply[1::2], strict=True))


def acquire(world: World, name: str, owner: str = "me", lock: str = "l", ms: int = 10_000, **options: Any) -> Any:
    """Send LOCK ACQUIRE to a node, and return its reply."""
    words = [word for option, value in options.items() for word in (option, value)]
    return world.ask(name, "LOCK", "ACQUIRE", lock, owner, ms, *words)


def begin_acquire(world: World, name: str, owner: str, lock: str = "l", ms: int = 10_000, **options: Any) -> Talker:
    """Send LOCK ACQUIRE to a node. Its reply comes later."""
    talker = world.client(name)
    talker.say("LOCK", "ACQUIRE", lock, owner, ms, *[word for pair in options.items() for word in pair])
    return talker


def forget_votes(world: World, name: str) -> None:
    """Kill a node and remove its file of votes."""
    world.crash(name)
    world.machines[name].votes_disk.data = b""
    world.restart(name)


__all__ = ["FENCE_MAX", "acquire", "begin_acquire", "forget_votes", "id_of", "shown", "voters"]
