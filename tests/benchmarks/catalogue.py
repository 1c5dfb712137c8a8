"""All benchmarks, in the order in which they run: the short ones come first."""

from __future__ import annotations

from claims import CLAIMS
from core import CORE
from events import EVENTS
from figures import Benchmark
from filling import FILLING
from filters import FILTERS
from flows import FLOWS
from idle import IDLE
from journal import JOURNAL
from latency import LATENCY
from memory import MEMORY
from one_node import ONE_NODE
from priorities import PRIORITIES
from repair import REPAIR
from single import SINGLE
from spill import SPILL
from task_api import TASKS
from three_nodes import THREE_NODES
from timestone import TIMESTONE

BENCHMARKS: tuple[Benchmark, ...] = (
    CORE,
    EVENTS,
    LATENCY,
    IDLE,
    MEMORY,
    PRIORITIES,
    FILTERS,
    TIMESTONE,
    CLAIMS,
    FLOWS,
    TASKS,
    ONE_NODE,
    SINGLE,
    THREE_NODES,
    FILLING,
    JOURNAL,
    SPILL,
    REPAIR,
)
