"""Plan: everything that a seed decides before the run: the nodes, the clients, the faults and their times.

A plan is data. Each client and each fault has its own random generator. So a failing plan can be made smaller
(shrink.py) without changing the rest of it; a `Keep` has the parts that were kept, as one line of text. The node that
a fault strikes is chosen at that moment, by the numbers in the fault, because a plan can't know which nodes are up
then.

Half of the plans have only one kind of weather, so that figures per kind are meaningful. The others have several kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from disque_py.simulator.world.codecs import NEW, OLD, PREVIOUS

# Kind of weather -> its faults (weather.py). The figures use the same names.
WEATHER: Final[dict[str, tuple[str, ...]]] = {
    "fair": (),
    "kills": ("kill", "kill", "fuse"),
    "power": ("power",),
    "leaving": ("leave", "join"),
    "forgetting": ("forget",),
    "resets": ("reset",),
    "pauses": ("stop",),
    "breaks": ("hiccup", "hiccup", "hang-up"),
    "one-way": ("one-way",),
    "halves": ("halves",),
    "ring": ("ring",),
    "bridge": ("bridge",),
    "alone": ("alone",),
    "shifting": ("shift", "shift", "shift"),
    "losses": ("loss",),
    "delays": ("delay",),
    "clocks": ("jump", "jump"),
    "memory": ("memory",),
    "queues": ("pause", "pause", "flush"),
    "upgrade": ("upgrade", "upgrade"),
    "restarts": ("restart",),
    "disks": ("disk", "disk", "kill", "rewrite"),
    "stale": ("stale", "stale"),
    "drift": (),
    "forgetful": ("jump", "jump"),
    "claims": ("pause-claims", "pause-claims"),
    "votes": ("wipe-votes", "wipe-votes", "kill"),
    "lost": ("lose", "wipe", "late", "kill"),
    "pairs": ("pair", "pair", "pair", "kill"),
}
# Kinds that no seed chooses. Plans with locks, and a share of the others, have these faults as extra ones.
BY_NAME: Final = ("fair", "stale", "drift", "forgetful", "claims", "votes", "lost", "pairs")
# Clocks at the bound that `claim-drift-max` allows, and workers that ask for the longest lease and let it run out.
DRIFT: Final = "drift"
DRIFT_PPM: Final = 5_000
# Voters forget keys soon after they counted last, and wall clocks jump.
FORGETFUL: Final = "forgetful"
FORGETFUL_IDLE_MS: Final = 200
# Share of the plans with faults in which nodes are lost for ever, wiped, or forgotten and come back.
LOST_FAULTS: Final = ("lose", "wipe", "late")
LOST_SHARE: Final = 0.25
# `repair-after` of a plan, in seconds. 600 is the default; no plan lasts that long.
REPAIR_AFTER_S: Final = (1, 1, 2, 5, 600)
NAMES: Final = "abcdefghijklmnopqrstuvwxyz"
NODES_MAX: Final = 9
MS_PER_FAULT: Final = (250, 600, 1_500, 4_000)
FAULT_SPANS_MS: Final = (50, 300, 1_000, 2_500, 5_000, 9_000)
LOADS: Final = (0.15, 0.4, 0.4, 1.0, 3.0)
# Long plans have less load, because they test long times.
LONG_MS: Final = 30_000
LONG_SHARE: Final = 0.4
APART_SHARE: Final = 0.4
SECRET_SHARE: Final = 0.2
# Share of the plans with event logs in which these logs have faults; disk faults also if disks are the weather.
EVENT_FAULTS: Final = ("events-off", "events-limit", "events-disk")
EVENT_FAULTS_SHARE: Final = 0.2
# Share of the plans with journals in which operators cause faults of journals.
JOURNAL_FAULTS: Final = ("policy", "policy", "reload", "rewrite")
JOURNAL_FAULTS_SHARE: Final = 0.25
# CLUSTER RESET in the middle of other work happens if resets are the weather, and in this share of the other plans.
AMID_SHARE: Final = 0.05
# Share of the clusters with journals that rewrite segments early, and the sizes (bytes) at which they do.
REWRITING_SHARE: Final = 0.5
REWRITE_BYTES: Final = (30_000, 100_000, 300_000)
# Shares of clusters with jobs whose RETRY is minutes, with clients that wait for ever, and with clients that
# acknowledge in bursts.
LONG_RETRY_SHARE: Final = 0.1
PATIENT_SHARE: Final = 0.25
HOARDER_SHARE: Final = 0.15
# Share of the plans in which operators change queue settings, and the largest number of changes.
SETTINGS_SHARE: Final = 0.4
SETTINGS_MAX: Final = 12
# Share of clusters with jobs of few attempts and consumers that give up on them.
ATTEMPTS_SHARE: Final = 0.4
ASKER_SHARE: Final = 0.3
MOVER_SHARE: Final = 0.35
# Share of clusters with clients that use WHERE, and a producer of jobs with metadata.
FILTERED_SHARE: Final = 0.3
# Share of clusters with owners of locks and a list of voters that changes. Some of these voters lose their files.
LOCKERS_SHARE: Final = 0.3
WIPES_SHARE: Final = 0.5
# Share of clusters with queues whose jobs need a claim.
CLAIMS_SHARE: Final = 0.25
# Share of clusters whose nodes have zones, with producers that use ZONES.
ZONED_SHARE: Final = 0.25
PLACES: Final = (("", ""), ("", "a"), ("", "b"), ("west", "a"), ("west", "b"), ("north", ""))
# Shares of clusters with consumers that name patterns, with a publisher (if no operator moves jobs), and with keys
# for a limited time.
PATTERNS_SHARE: Final = 0.3
PUBLISHER_SHARE: Final = 0.3
DEBOUNCER_SHARE: Final = 0.3
# Shares of clusters with schedules, with caps, with batches, and with clients that wait for the ends of jobs.
TIMEKEEPER_SHARE: Final = 0.25
CAPPER_SHARE: Final = 0.25
BATCHES_SHARE: Final = 0.3
WAITERS_SHARE: Final = 0.3
# Share of the clusters with little memory that spill bodies to disk.
SPILLING_SHARE: Final = 0.6


@dataclass(frozen=True, slots=True)
class Keep:
    """The part of a seed's plan that is kept; None and 0: everything.

    As text it is `nodes=3 clients=0-2,4 faults=2,5 until=4210`.
    """

    nodes: int = 0
    clients: tuple[int, ...] | None = None
    faults: tuple[int, ...] | None = None
    until_ms: int = 0

    def __str__(self) -> str:
        words = []
        if self.nodes:
            words.append(f"nodes={self.nodes}")
        for name, numbers in (("clients", self.clients), ("faults", self.faults)):
            if numbers is not None:
                words.append(f"{name}={_text(numbers) or 'none'}")
        if self.until_ms:
            words.append(f"until={self.until_ms}")
        return " ".join(words)

    @classmethod
    def read(cls, text: str) -> Keep:
        """Return the Keep that the text describes. Raises ValueError."""
        values: dict[str, str] = {}
        for word in text.split():
            name, equals, value = word.partition("=")
            if not equals or name not in ("nodes", "clients", "faults", "until"):
                raise ValueError(f"'{word}' is none of nodes=, clients=, faults=, until=")
            values[name] = value
        return cls(
            int(values.get("nodes", 0)), _numbers(values.get("clients")), _numbers(values.get("faults")),
            int(values.get("until", 0)),
        )  # fmt: skip


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(",") if text != "none" else ():
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def _text(numbers: tuple[int, ...]) -> str:
    """Return numbers as a list of numbers and spans."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the cluster that ends after `span_ms`. `picks` choose the node that it strikes."""

    number: int
    at_ms: int
    kind: str
    span_ms: int
    picks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """A client: its kind, and the number that its random generator is made from."""

    number: int
    kind: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides before the run. Spans are in milliseconds.

    weather           kinds of WEATHER; empty: no faults ("fair")
    is_spilling       maxmemory-spill
    load              clients act this many times as often as at load 1
    drifts_ppm, offsets_ms, versions   per node: its clocks, and the highest bus version it speaks
    journals          per node: the appendfsync of its journal, "" for none
    is_apart          producers and consumers use different nodes, so that every job travels
    secret            cluster-secret
    has_events        nodes write logs of events, each of at most `events_bytes`
    is_long           some jobs have a RETRY of minutes
    rewrite_bytes     auto-aof-rewrite-min-size; 0: the default, which no journal here reaches
    repair_after_s    repair-after, in seconds
    places            per node: its data centre and zone; empty: nodes name none
    """

    seed: int
    duration_ms: int
    nodes: int
    weather: tuple[str, ...]
    clients: tuple[ClientPlan, ...]
    faults: tuple[Fault, ...]
    load: float = 1.0
    delay_ms: tuple[int, int] = (1, 1)
    is_prompt: bool = False
    is_rough: bool = False
    queues: int = 2
    node_timeout_ms: int = 2_000
    maxmemory: int = 0
    is_spilling: bool = False
    drifts_ppm: tuple[int, ...] = ()
    offsets_ms: tuple[int, ...] = ()
    versions: tuple[int, ...] = ()
    journals: tuple[str, ...] = ()
    is_apart: bool = False
    secret: str = ""
    has_events: bool = False
    events_bytes: int = 0
    is_long: bool = False
    rewrite_bytes: int = 0
    repair_after_s: int = 600
    places: tuple[tuple[str, str], ...] = ()
    keep: Keep = Keep()

    def kept(self, keep: Keep) -> Plan:
        """Return this plan reduced to the parts in `keep`."""
        clients = self.clients if keep.clients is None else tuple(c for c in self.clients if c.number in keep.clients)
        faults = self.faults if keep.faults is None else tuple(f for f in self.faults if f.number in keep.faults)
        return replace(
            self,
            places=self.places if any(client.kind == "placer" for client in clients) else (),
            nodes=min(self.nodes, keep.nodes or self.nodes),
            duration_ms=min(self.duration_ms, keep.until_ms or self.duration_ms),
            clients=clients,
            faults=tuple(fault for fault in faults if fault.at_ms <= (keep.until_ms or self.duration_ms)),
            keep=keep,
        )


def draw(seed: int, duration_ms: int, *, weather: str = "", chance: Callable[[str], Random] = Random) -> Plan:
    """Return the plan of a seed. `weather` (kinds with + between them) replaces the seed's own choice."""
    rng = chance(f"{seed} plan")
    nodes = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, NODES_MAX))
    kinds = tuple(weather.split("+")) if weather else _weather(rng)
    if weather:
        nodes = max(nodes, 3)
    names = _clients(rng)
    more = chance(f"{seed} more")  # A generator for later additions, so that the rest of each plan stays the same.
    has_events = more.random() < 0.5
    names += _more_clients(more, has_events=has_events)
    latest = chance(f"{seed} latest")  # Likewise.
    names += ["patient consumer"] * (latest.random() < PATIENT_SHARE) + ["hoarder"] * (latest.random() < HOARDER_SHARE)
    limits = chance(f"{seed} attempts")  # Likewise.
    if limits.random() < ATTEMPTS_SHARE:
        names += ["limited producer"] * limits.choice((1, 2)) + ["quitter"] * limits.choice((1, 2))
    names += ["asker"] * (chance(f"{seed} asker").random() < ASKER_SHARE)
    filtered = chance(f"{seed} filtered")
    if filtered.random() < FILTERED_SHARE:
        names += ["keyed producer"] * ("keyed producer" not in names)
        names += ["filtered consumer"] * filtered.choice((1, 2, 4))
    names += ["mover"] * (chance(f"{seed} mover").random() < MOVER_SHARE)
    repairs = chance(f"{seed} repairs")
    locks = chance(f"{seed} lockers")  # Likewise.
    has_locks = locks.random() < LOCKERS_SHARE
    if has_locks:
        names += ["voter keeper"] * locks.choice((1, 1, 2)) + ["locker"] * locks.choice((2, 3, 5))
    claimed = chance(f"{seed} claims")
    if claimed.random() < CLAIMS_SHARE:
        names += ["voter keeper"] * ("voter keeper" not in names)
        names += ["claim producer"] * claimed.choice((1, 2)) + ["claim worker"] * claimed.choice((2, 3))
    zoned = chance(f"{seed} zones")  # Likewise.
    places: tuple[tuple[str, str], ...] = ()
    if zoned.random() < ZONED_SHARE:
        names += ["placer"] * zoned.choice((1, 2))
        some = PLACES[: zoned.choice((3, 4, 6))]
        places = tuple(zoned.choice(some) for _ in NAMES)
    topics = chance(f"{seed} topics")  # Likewise.
    names += ["pattern consumer"] * (topics.random() < PATTERNS_SHARE)
    names += ["publisher"] * (topics.random() < PUBLISHER_SHARE and "mover" not in names)
    names += ["debouncer"] * (topics.choice((1, 2)) if topics.random() < DEBOUNCER_SHARE else 0)
    flows = chance(f"{seed} flows")  # Likewise.
    names += ["timekeeper"] * (flows.random() < TIMEKEEPER_SHARE)
    names += ["capper"] * (flows.random() < CAPPER_SHARE)
    flows.random()  # An earlier version used this number. Drawing it keeps the next ones the same.
    names += ["waiter"] * (flows.choice((1, 2)) if flows.random() < WAITERS_SHARE else 0)
    batches = chance(f"{seed} batches")  # Likewise.
    names += ["batcher"] * (batches.choice((1, 2)) if batches.random() < BATCHES_SHARE else 0)
    clients = [ClientPlan(number, kind) for number, kind in enumerate(names)]
    delay_ms = rng.choice(((1, 1), (1, 2), (1, 5), (2, 20), (10, 40), (1, 100)))
    faults = _faults(rng, kinds, duration_ms)
    if has_events:
        faults += _event_faults(more, kinds, duration_ms, len(faults))
    plan = Plan(
        seed=seed,
        duration_ms=duration_ms,
        nodes=nodes,
        weather=kinds,
        clients=tuple(clients),
        faults=tuple(faults),
        load=rng.choice(LOADS) * (LONG_SHARE if duration_ms > LONG_MS else 1.0),
        delay_ms=delay_ms,
        is_prompt=rng.random() < 0.2,
        is_rough=rng.random() < 0.5,
        queues=rng.choice((1, 2, 2, 4, 12)),
        node_timeout_ms=rng.choice((1_000, 2_000, 2_000, 5_000)),
        maxmemory=rng.choice((12_000, 25_000, 60_000, 200_000)) if "memory" in kinds else 0,
        is_spilling="memory" in kinds and chance(f"{seed} spill").random() < SPILLING_SHARE,
        drifts_ppm=tuple(rng.choice((0, 0, 50, -50, 500, -500, 5_000, -5_000)) for _ in NAMES),
        offsets_ms=tuple(rng.randrange(1 << rng.choice((0, 20, 40))) for _ in NAMES),
        versions=tuple(rng.choice((PREVIOUS, OLD, NEW)) if "upgrade" in kinds else OLD for _ in NAMES),
        journals=_journals(rng, kinds),
        is_apart=chance(f"{seed} apart").random() < APART_SHARE,
        secret=f"secret of {seed}" if chance(f"{seed} secret").random() < SECRET_SHARE else "",
        has_events=has_events,
        events_bytes=more.choice((30_000, 150_000, 1 << 30)),
        is_long=latest.random() < LONG_RETRY_SHARE,
        rewrite_bytes=latest.choice(REWRITE_BYTES) if latest.random() < REWRITING_SHARE else 0,
        repair_after_s=repairs.choice(REPAIR_AFTER_S),
        places=places,
    )
    if faults:
        faults += _settings_faults(chance(f"{seed} settings"), duration_ms, len(faults))
    faults += _latest_faults(latest, kinds, plan.journals, duration_ms, len(faults))
    if has_locks and faults and locks.random() < WIPES_SHARE:
        faults += some_faults(locks, ("wipe-votes",), duration_ms, len(faults))
    if faults and not weather and repairs.random() < LOST_SHARE:
        faults += some_faults(repairs, LOST_FAULTS, duration_ms, len(faults))
    if DRIFT in kinds:
        drift = chance(f"{seed} drift")
        drifts_ppm = tuple(drift.choice((DRIFT_PPM, -DRIFT_PPM)) for _ in NAMES)
        plan = replace(plan, drifts_ppm=drifts_ppm, delay_ms=(1, 1), is_prompt=True)
    return replace(plan, faults=tuple(faults))


def _weather(rng: Random) -> tuple[str, ...]:
    kinds = [kind for kind in WEATHER if kind not in BY_NAME]
    if rng.random() < 0.5:
        return (rng.choice(kinds),)
    return tuple(sorted(rng.sample(kinds, rng.choice((0, 2, 3, 4, 6)))))


def _journals(rng: Random, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Draw the journals: half of the clusters keep them, most of these with one policy on all nodes."""
    dice = rng.random()
    if "disks" in kinds:
        dice = 0.5 + dice / 2
    if dice < 0.5:
        return ("",) * len(NAMES)
    if dice < 0.9:
        return (rng.choice(("always", "always", "everysec", "no")),) * len(NAMES)
    return tuple(rng.choice(("", "always", "everysec")) for _ in NAMES)


def _clients(rng: Random) -> list[str]:
    producers, consumers = rng.choice((1, 1, 2, 3, 5)), rng.choice((1, 1, 2, 3, 6))
    kinds = ["producer"] * producers + ["consumer"] * consumers
    if rng.random() < 0.5:
        kinds.append("inspector")
    return kinds


def _more_clients(rng: Random, *, has_events: bool) -> list[str]:
    kinds = ["reader"] * rng.choice((1, 1, 2)) if has_events else []
    if rng.random() < 0.5:
        kinds += ["keyed producer"] * rng.choice((1, 2))
    if rng.random() < 0.5:
        kinds += ["fetcher"] * rng.choice((1, 1, 3))
    return kinds


def _event_faults(rng: Random, kinds: tuple[str, ...], duration_ms: int, number: int) -> list[Fault]:
    """Draw faults of event logs. Most plans have none, so that their logs can be checked from beginning to end."""
    dice = rng.random()
    choices = EVENT_FAULTS if dice < EVENT_FAULTS_SHARE else EVENT_FAULTS[-1:] if "disks" in kinds else ()
    return some_faults(rng, choices, duration_ms, number)


def _latest_faults(
    rng: Random, kinds: tuple[str, ...], journals: tuple[str, ...], duration_ms: int, number: int
) -> list[Fault]:
    choices: tuple[str, ...] = JOURNAL_FAULTS if rng.random() < JOURNAL_FAULTS_SHARE and any(journals) else ()
    if rng.random() < AMID_SHARE or kinds == ("resets",):
        choices += ("reset-amid",)
    return some_faults(rng, choices, duration_ms, number)


def _settings_faults(rng: Random, duration_ms: int, number: int) -> list[Fault]:
    count = rng.randrange(1, SETTINGS_MAX) if rng.random() < SETTINGS_SHARE else 0
    return [
        Fault(number + at, rng.randrange(duration_ms), "setting", 1, tuple(rng.randrange(1 << 30) for _ in range(4)))
        for at in range(count)
    ]


def some_faults(rng: Random, choices: tuple[str, ...], duration_ms: int, number: int) -> list[Fault]:
    """Draw one, two or four of these faults. The first one gets this number. No choices: none."""
    return [
        Fault(
            number + at,
            rng.randrange(duration_ms),
            rng.choice(choices),
            rng.choice(FAULT_SPANS_MS),
            tuple(rng.randrange(1 << 30) for _ in range(4)),
        )
        for at in range(rng.choice((1, 2, 4)) if choices else 0)
    ]


def _faults(rng: Random, kinds: tuple[str, ...], duration_ms: int) -> list[Fault]:
    choices = [fault for kind in kinds for fault in WEATHER[kind]]
    if not choices:
        return []
    gap_ms = rng.choice(MS_PER_FAULT)
    longest = rng.randrange(2, len(FAULT_SPANS_MS) + 1)
    faults: list[Fault] = []
    at_ms = 0
    while True:
        at_ms += int(rng.expovariate(1 / gap_ms)) + 1
        if at_ms >= duration_ms:
            return faults
        span_ms = int(FAULT_SPANS_MS[rng.randrange(longest)] * (0.5 + rng.random()))
        picks = tuple(rng.randrange(1 << 30) for _ in range(4))
        faults.append(Fault(len(faults), at_ms, rng.choice(choices), span_ms, picks))
