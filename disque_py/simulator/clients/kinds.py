"""The kinds of clients, by the names that plans have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.simulator.checks.batches import BatchBook
from disque_py.simulator.checks.claims import ClaimBook
from disque_py.simulator.checks.locks import LockBook
from disque_py.simulator.checks.waits import WaitBook
from disque_py.simulator.clients.askers import Asker
from disque_py.simulator.clients.attempts import LimitedProducer, Quitter
from disque_py.simulator.clients.batchers import Batcher
from disque_py.simulator.clients.cappers import Capper
from disque_py.simulator.clients.claimers import ClaimProducer, ClaimWorker
from disque_py.simulator.clients.debouncers import Debouncer, WindowBook
from disque_py.simulator.clients.event_readers import Reader
from disque_py.simulator.clients.fetchers import Fetcher
from disque_py.simulator.clients.filtered_consumers import FilteredConsumer
from disque_py.simulator.clients.keyed_producers import KeyBook, KeyedProducer
from disque_py.simulator.clients.lockers import Locker, VoterKeeper
from disque_py.simulator.clients.movers import Mover
from disque_py.simulator.clients.pattern_consumers import PatternConsumer
from disque_py.simulator.clients.placers import Placer
from disque_py.simulator.clients.publishers import Publisher
from disque_py.simulator.clients.timekeepers import Timekeeper
from disque_py.simulator.clients.waiters import Waiter
from disque_py.simulator.clients.workload import Actor, Consumer, Hoarder, Inspector, PatientConsumer, Producer

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import Plan
    from disque_py.simulator.world.world import World

KINDS: Final[dict[str, type[Actor]]] = {
    "producer": Producer,
    "consumer": Consumer,
    "inspector": Inspector,
    "reader": Reader,
    "keyed producer": KeyedProducer,
    "fetcher": Fetcher,
    "filtered consumer": FilteredConsumer,
    "patient consumer": PatientConsumer,
    "hoarder": Hoarder,
    "limited producer": LimitedProducer,
    "quitter": Quitter,
    "asker": Asker,
    "mover": Mover,
    "placer": Placer,
    "voter keeper": VoterKeeper,
    "locker": Locker,
    "pattern consumer": PatternConsumer,
    "publisher": Publisher,
    "debouncer": Debouncer,
    "timekeeper": Timekeeper,
    "capper": Capper,
    "batcher": Batcher,
    "waiter": Waiter,
    "claim producer": ClaimProducer,
    "claim worker": ClaimWorker,
}


def start_clients(world: World, oracle: Oracle, plan: Plan, losses: Losses) -> list[Actor]:
    """Start the clients of a plan, and return them."""
    actors = [KINDS[client.kind](world, oracle, plan, client) for client in plan.clients]
    book = KeyBook(world, oracle, plan)
    windows = WindowBook(world, oracle, plan)
    locks = LockBook()
    batches = BatchBook(world, oracle, losses)
    waits = WaitBook(world, oracle, plan.node_timeout_ms)
    claims = ClaimBook()
    caps = next((actor.book for actor in actors if isinstance(actor, Capper)), None)
    for actor in actors:
        if isinstance(actor, KeyedProducer | Fetcher):
            actor.book = book
        elif isinstance(actor, Debouncer):
            actor.book = windows
        elif isinstance(actor, Locker):
            actor.book = locks
        elif isinstance(actor, Batcher):
            actor.book = batches
        elif isinstance(actor, Waiter):
            actor.book = waits
        elif isinstance(actor, ClaimProducer | ClaimWorker):
            actor.claims = claims
        elif isinstance(actor, Capper) and caps is not None:
            actor.book = caps
        actor.begin()
    return actors
