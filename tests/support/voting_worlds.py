"""Worlds whose nodes are voters, and the words of LOCK."""

from __future__ import annotations

from typing import Any

from disque_py.core.grants import FENCE_MAX
from world import Talker, World


def id_of(name: str) -> bytes:
    """The id of a node of a story, as operators write it."""
    return (name.encode() * 20).hex().encode()


def voters(names: str, listed: str = "", **options: Any) -> World:
    """A cluster of these nodes, of which those `listed` are voters (all, by default)."""
    world = World(names, **options)
    world.join()
    world.run(100)
    assert world.ask(names[0], "CLUSTER", "VOTERS", "INIT", *[id_of(name) for name in listed or names]) == b"OK"
    world.run(100)
    return world


def shown(world: World, name: str) -> dict[bytes, Any]:
    """CLUSTER VOTERS, as a dict."""
    reply = world.ask(name, "CLUSTER", "VOTERS")
    return dict(zip(reply[::2], reply[1::2], strict=True))


def acquire(world: World, name: str, owner: str = "me", lock: str = "l", ms: int = 10_000, **options: Any) -> Any:
    """LOCK ACQUIRE at a node; its reply."""
    words = [word for option, value in options.items() for word in (option, value)]
    return world.ask(name, "LOCK", "ACQUIRE", lock, owner, ms, *words)


def begin_acquire(world: World, name: str, owner: str, lock: str = "l", ms: int = 10_000, **options: Any) -> Talker:
    """LOCK ACQUIRE at a node; its reply comes later."""
    talker = world.client(name)
    talker.say("LOCK", "ACQUIRE", lock, owner, ms, *[word for pair in options.items() for word in pair])
    return talker


def forget_votes(world: World, name: str) -> None:
    """Kill a node and remove its file of votes."""
    world.crash(name)
    world.machines[name].votes_disk.data = b""
    world.restart(name)


__all__ = ["FENCE_MAX", "acquire", "begin_acquire", "forget_votes", "id_of", "shown", "voters"]
