"""Plans for the rules of claims and locks (spec CL, EX and LK): `disque-sim --claims`.

The plan of any seed may have voters, but most have other clients, too, and few have the faults that matter most here.
Such a plan has only voter keepers, owners of locks and clients of claims, with one to three kinds of weather:
partitions, pauses, clocks at the allowed bound, restarts with and without memory, and nodes that are reset or leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from disque_py.simulator.plan import WEATHER, ClientPlan, Plan, draw

# Kinds that do nothing to voters: memory limits, pauses of other queues, disks of jobs, and nodes without voters.
OTHER_KINDS: Final = ("fair", "memory", "queues", "disks", "upgrade")
KINDS: Final = tuple(kind for kind in WEATHER if kind not in OTHER_KINDS)
KINDS_AT_ONCE: Final = (1, 1, 2, 3)


def draw_claims(seed: int, duration_ms: int, *, weather: str = "", chance: Callable[[str], Random] = Random) -> Plan:
    """Return the plan of a seed for claims and locks. `weather` is as in `draw`."""
    rng = chance(f"{seed} claims and locks")
    kinds = weather or "+".join(sorted(rng.sample(KINDS, rng.choice(KINDS_AT_ONCE))))
    names = ["voter keeper"] * rng.choice((1, 1, 2))
    names += ["locker"] * rng.choice((2, 3, 5))
    names += ["claim producer"] * rng.choice((1, 2)) + ["claim worker"] * rng.choice((2, 3))
    clients = tuple(ClientPlan(number, kind) for number, kind in enumerate(names))
    return replace(draw(seed, duration_ms, weather=kinds, chance=chance), clients=clients, places=())
