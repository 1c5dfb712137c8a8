"""Deliberate defects, put into the running code one at a time, and how long the simulator needs to find each.

A mutation replaces a piece of one function's source and gives the function the code that results, so whoever holds the
function gets the defect. `python tests/simulation/mutating.py --hunt` looks for each and writes the list in
docs/simulator.md; with words only those whose names contain one of them are looked for, and nothing is written.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # Where the packages lie, if they are not installed.

from disque_py.simulator.plan import draw
from disque_py.simulator.simulation import Failure, simulate

SECONDS = 6
SEEDS_MAX = 30
PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"
TITLE = "## Deliberate defects"


class Mutation(NamedTuple):
    """`where` is module:function or module:Class.method; `old` stands once in its source. `weather`: where to look."""

    name: str
    where: str
    old: str
    new: str
    weather: str = ""


MUTATIONS = (
    Mutation("WILLQUEUE is not answered", "disque_py.core.requeue:on_willqueue",
             "tell_queued(broker, job, QUEUED_WAITING)", "pass", "breaks"),
    Mutation("holders are counted, not compared", "disque_py.core.acks:on_deljob",
             "job.holders <= theirs", "len(job.holders) <= len(theirs)"),
    Mutation("a DELJOB deletes whatever is known here", "disque_py.core.acks:on_deljob",
             "job.holders <= theirs", "True"),
    Mutation("acks are forgotten at a restart", "disque_py.core.restoring:Restoring._apply",
             "if flags & IS_ACKED:", "if False:", "restarts"),
    Mutation("replies do not wait for the journal", "disque_py.promises:Promises.hold_replies",
             "(held or (wrote and position > ready))", "held"),
    Mutation("the disk is believed to have synced", "persistence.journal:Journal._write",
             "folder.sync(name)", "pass", "power"),
    Mutation("who gives a job away does not note its taker", "disque_py.core.handover:hand_over",
             "job.holders = sets.add(job.holders, node)", "pass"),
    Mutation("an at-most-once job is queued after any restart", "disque_py.core.restoring:Restoring._place_once",
             "elif not is_sure:", "elif False:", "power"),
    Mutation("a job's life is counted by the sender's wall clock", "disque_py.core.image:job_of",
             "broker.now_ms + left_ms", "broker.now_ms + left_ms + ctime // 1_000_000 - broker.wall_ms"),
    Mutation("answers to hand-overs are not remembered", "disque_py.core.taking:on_yourjobs",
             "state.answers[number] = answers", "pass"),
    Mutation("a hand-over to a dead process waits for ever", "disque_py.core.handover:on_run_over",
             "pending, state.pending = state.pending, {}", "pending = {}", "kills"),
    Mutation("what is done is not remembered", "disque_py.core.done:DoneTable.add",
             "self._now.add(job_id)", "pass", "losses"),
    Mutation("one copy less is enough", "disque_py.core.replication:on_gotjob",
             "len(confirmed) >= job.replicate", "len(confirmed) >= job.replicate - 1", "kills"),
    Mutation("a leaver drops its copy whether there is another or not", "disque_py.core.leaving:_drop_if_answered",
             "if move.has_other:", "if True:", "leaving"),
    Mutation("acks are asked for once", "disque_py.core.acks:look_again",
             "try_collect(broker, job)", "pass"),
    Mutation("an answer does not end a suspicion", "cluster_bus.failure:heal",
             "node.flags &= ~(PFAIL | FAIL)", "pass", "pauses"),
    Mutation("what is forgotten is not recorded", "disque_py.core.lifecycle:forget",
             "broker.outbox.gone.append((job_id, job.place))", "pass"),
    Mutation("memory is not given back", "disque_py.core.lifecycle:forget",
             "broker.job_count -= 1", "broker.job_count -= 1; broker.used_memory += 1"),
    Mutation("waiting clients are not counted off", "disque_py.core.delivery:stop_waiting",
             "broker.blocked_count -= 1", "pass"),
    Mutation("undelivered at-most-once jobs are evicted", "disque_py.core.memory:may_evict",
             "(job.retry_ms == 0 and job.is_delivered)", "job.retry_ms == 0", "memory"),
    Mutation("ids come twice", "disque_py.core.ids:IdSource.next",
             "self._pool.pop()", "self._pool[len(self._pool) // 2]"),
    Mutation("replies overtake those that wait for copies", "disque_py.inputs:execute",
             "elif client.slots:", "elif False:"),
    Mutation("a lost hand-over is not counted", "disque_py.core.handover:_given_up",
             "broker.stats.once_lost_in_handover += 1", "pass", "kills"),
    Mutation("a job that is acknowledged stays in its queue", "disque_py.core.queue:Queue.pop",
             "QUEUED", "3"),
    Mutation("holders are not recorded", "disque_py.core.journaling:touch_holders",
             "broker.touched[job] = True", "pass", "restarts"),
    Mutation("an unknown job's SETACK is not answered", "disque_py.core.acks:on_setack",
             'send(only, GOTACK, (job_id, b"", 0))', "pass"),
    Mutation("the interest of a node outlives its link", "disque_py.inputs:incoming_lost",
             "interest.forget_node(broker, node)", "pass", "breaks"),
    Mutation("a hint is given once", "disque_py.core.interest:send_hints",
             "broker.schedule.call_at(queue.hint_until_ms, partial(broker.owe_hint, queue))", "pass"),
    Mutation("a leased job is queued again by others", "disque_py.core.requeue:on_leased",
             "lifecycle.postpone(broker, job, until_ms)", "pass"),
    Mutation("copies are not asked for again on a new link", "disque_py.core.replication:on_link_up",
             "broker.send(only, REPLJOB, (image_of(broker, job), _flags(job)))", "pass", "breaks"),
    Mutation("timers change jobs while the journal is loaded", "disque_py.core.timers:tick",
             "broker.schedule.due(JOBS_PER_TICK) if not broker.is_loading else ()",
             "broker.schedule.due(JOBS_PER_TICK)", "restarts"),
    Mutation("what an earlier process wrote is believed to be synced", "persistence.recovery:Recovery._write_again",
             "while left > 0:", "while False:", "disks"),
    Mutation("jobs are given away after the journal's end", "disque_py.remembering:Remembering.close",
             "self._broker.is_loading = True", "pass", "upgrade"),
)  # fmt: skip


def function_of(where: str) -> FunctionType:
    """What `where` names."""
    module, _, name = where.partition(":")
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, FunctionType)
    return found


def mutated(mutation: Mutation) -> object:
    """The code of the function with the defect in it."""
    function = function_of(mutation.where)
    source = textwrap.dedent(inspect.getsource(function))
    assert mutation.old in source, f"{mutation.where} has no {mutation.old!r} any more"
    scope = dict(function.__globals__)
    exec(
        compile(
            "from __future__ import annotations\n" + source.replace(mutation.old, mutation.new), mutation.where, "exec"
        ),
        scope,
    )
    return scope[function.__name__].__code__


@contextmanager
def defective(mutation: Mutation) -> Iterator[None]:
    """While this lasts the code has the defect."""
    function = function_of(mutation.where)
    whole = function.__code__
    function.__code__ = mutated(mutation)
    try:
        yield
    finally:
        function.__code__ = whole


def hunt(mutation: Mutation, seeds_max: int = SEEDS_MAX) -> tuple[int, Failure | None]:
    """How many seeds were played until the defect showed, and how."""
    for seed in range(1, seeds_max + 1):
        plan = draw(seed, SECONDS * 1000, weather=mutation.weather)
        with defective(mutation):
            failure = simulate(plan).failure
        if failure is not None and simulate(plan).failure is None:  # A seed that fails anyway shows nothing.
            return seed, failure
    return seeds_max, None


def table(rows: list[tuple[Mutation, int, Failure | None]]) -> str:
    """The list as docs/simulator.md has it."""
    found = sum(failure is not None for _, _, failure in rows)
    lines = [
        TITLE,
        "",
        f"Put into the code one at a time by `python tests/simulation/mutating.py --hunt`, with seeds from 1 on,"
        f" {SECONDS} virtual seconds each and {SEEDS_MAX} at most: {found} of {len(rows)} were found.",
        "",
        "| defect | weather | seeds needed | rule that broke |",
        "|---|---|---|---|",
    ]
    for mutation, seeds, failure in rows:
        needed = f"{seeds} | {failure.rule}" if failure is not None else f"not in {seeds} |"
        lines.append(f"| {mutation.name} | {mutation.weather or 'any'} | {needed} |")
    return "\n".join(lines) + "\n"


def write_page(text: str) -> None:
    """Put the list at its place in the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, title, after = page.partition(TITLE)
    _, next_title, rest = after.partition("\n## ") if title else ("", "", "")
    PAGE.write_text(before.rstrip() + "\n\n" + text + (next_title + rest if rest else ""), encoding="utf-8")


def main() -> int:
    """Hunt all, or those whose names contain the words given; a line for each. 1 if one was not found."""
    parser = argparse.ArgumentParser(description="Look for deliberate defects with the simulator.")
    parser.add_argument("words", nargs="*", help="only those whose names contain one of these")
    parser.add_argument("--hunt", action="store_true", help="hunt all, and write the list in docs/simulator.md")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="so many at most for each")
    chosen = parser.parse_args()
    if not chosen.hunt and not chosen.words:
        parser.error("--hunt, or words of names")
    rows = []
    for mutation in MUTATIONS:
        if chosen.words and not any(word in mutation.name for word in chosen.words):
            continue
        seeds, failure = hunt(mutation, chosen.seeds)
        rows.append((mutation, seeds, failure))
        print(f"{mutation.name}: {f'{seeds} seeds, {failure.rule}' if failure else f'not in {seeds}'}", flush=True)
    if chosen.hunt and not chosen.words:
        write_page(table(rows))
    return int(any(failure is None for _, _, failure in rows))


if __name__ == "__main__":
    sys.exit(main())
