"""Plans for one part of the broker: `disque-sim --focus queues`, `--focus claims` and `--focus flows`.

In the plan of an ordinary seed most kinds of clients are missing, and the common ones take most of the time. The plan
of a focus has clients of one part only, and the weather that matters to it:

* `queues`: attempts, errored jobs, filters, settings, moves, tasks and lost copies. Any weather, often lost nodes
  (spec Y, W, QS, MV and RC).
* `claims`: voters, locks and queues whose jobs need a claim. Partitions, pauses, clocks at the allowed bound, restarts
  with and without memory, and nodes that are reset or leave (spec CL and EX).
* `flows`: topics, windows and REPLACE, caps, results, batches, schedules and patterns. Any weather (spec TP, CP, RW, BT
  and SD).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from disque_py.simulator.plan import BY_NAME, WEATHER, ClientPlan, Plan, draw, some_faults

KINDS_AT_ONCE: Final = (1, 1, 2, 3)
# Share of the plans of a focus that have its further faults.
FURTHER_SHARE: Final = 0.5


class Focus(NamedTuple):
    """A part of the broker.

    stream    the name of the random stream
    clients   kinds of clients, each with the numbers from which a seed chooses
    weather   kinds of weather, from which a seed chooses one to three. A kind that comes twice is chosen more often.
    further   faults that come in addition
    """

    stream: str
    clients: dict[str, tuple[int, ...]]
    weather: tuple[str, ...]
    further: tuple[str, ...] = ()


FOCUSES: Final = {
    "queues": Focus(
        "queues",
        {
            "producer": (0, 1),
            "consumer": (1, 2),
            "limited producer": (1, 2),
            "quitter": (1, 2),
            "keyed producer": (0, 1),
            "fetcher": (0, 1),
            "filtered consumer": (0, 1, 2),
            "asker": (0, 1),
            "mover": (0, 1),
        },
        (*(kind for kind in WEATHER if kind not in BY_NAME), "lost", "lost", "lost"),
    ),
    "claims": Focus(
        "claims and locks",
        {"voter keeper": (1, 1, 2), "locker": (2, 3, 5), "claim producer": (1, 2), "claim worker": (2, 3)},
        # Not limits of memory, pauses of other queues, disks of jobs, and nodes without voters.
        tuple(kind for kind in WEATHER if kind not in ("fair", "memory", "queues", "disks", "upgrade", "pairs")),
        ("pair",),
    ),
    "flows": Focus(
        "flows",
        {
            "consumer": (1, 2),
            "publisher": (0, 1),
            "pattern consumer": (0, 1),
            "debouncer": (0, 1, 2),
            "timekeeper": (0, 1),
            "capper": (0, 1),
            "waiter": (0, 1, 2),
            "batcher": (0, 1, 2),
            "voter keeper": (0, 0, 1),
        },
        (*(kind for kind in WEATHER if kind not in BY_NAME), "lost"),
    ),
}


def draw_focused(
    focus: str, seed: int, duration_ms: int, *, weather: str = "", chance: Callable[[str], Random] = Random
) -> Plan:
    """Return the plan of a seed for one part of the broker. `weather` is as in `draw`."""
    chosen = FOCUSES[focus]
    rng = chance(f"{seed} {chosen.stream}")
    drawn = rng.sample(chosen.weather, rng.choice(KINDS_AT_ONCE))
    kinds = weather or "+".join(sorted(set(drawn)))
    names = [name for name, numbers in chosen.clients.items() for _ in range(rng.choice(numbers))]
    clients = tuple(ClientPlan(number, kind) for number, kind in enumerate(names))
    plan = replace(draw(seed, duration_ms, weather=kinds, chance=chance), clients=clients, places=())
    further = chance(f"{seed} further")
    if chosen.further and further.random() < FURTHER_SHARE:
        plan = replace(
            plan, faults=(*plan.faults, *some_faults(further, chosen.further, duration_ms, len(plan.faults)))
        )
    return plan
