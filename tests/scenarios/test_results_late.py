"""A result that is late on some links: no client gets the end without the result (spec RW10)."""

from __future__ import annotations

from itertools import product

import pytest

from world import Talker, World, joined

NAMES = "abc"
LINKS = [(one, other) for one in NAMES for other in NAMES if one != other]
FAR_MS = 300
TOLD = b"42"


def wait(world: World, node: str, job: bytes) -> Talker:
    talker = world.client(node)
    talker.say("WAITJOB", job)
    return talker


def told(world: World, adder: str, acker: str, slow: list[tuple[str, str]]) -> list[Talker]:
    """Add and acknowledge a job while some links delay their messages. Clients begin to wait before, then and later."""
    for one, other in slow:
        world.cut(one, other, both=False, silently=True)
    job = world.ask(adder, "ADDJOB", "q", "body", 0, "REPLICATE", 3, "ASYNC")
    waiting = [wait(world, name, job) for name in NAMES]
    world.run(3)
    world.ask(acker, "ACKJOB", job, "RESULT", TOLD)
    waiting += [wait(world, name, job) for name in NAMES]
    world.run(FAR_MS)
    waiting += [wait(world, name, job) for name in NAMES]
    world.heal()
    world.run(FAR_MS)
    waiting += [wait(world, name, job) for name in NAMES]
    world.run(5_000)
    waiting += [wait(world, name, job) for name in NAMES]
    world.run(FAR_MS)
    return waiting


@pytest.mark.parametrize("acker", NAMES)
def test_whichever_links_are_slow_each_wait_ends_with_the_result(acker: str) -> None:
    """Spec RW10: each subset of the six links of three nodes."""
    for chosen in product((False, True), repeat=len(LINKS)):
        slow = [link for link, is_slow in zip(LINKS, chosen, strict=True) if is_slow]
        for talker in told(joined(), "a", acker, slow):
            assert [[entry[1:3] for entry in reply] for reply in talker.replies] == [[[b"completed", TOLD]]], slow
