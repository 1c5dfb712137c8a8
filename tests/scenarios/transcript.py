"""Conversations of a cluster as text: commands, and the reactions of nodes and clients.

A file has stories. A story has blocks separated by empty lines. A block has comments, commands, `----` and the output.
`cluster a b c` begins a story. Time passes only in `wait`, and in `deliver`, where a message takes a millisecond. There
are no random choices: the first node in order is chosen, and timers have no jitter.

Commands

    cluster a b c [delay 5ms] [node-timeout 2s] [replicate-default 2]   a cluster that has met
    given j1 on a b [retry 5s] [queue q] [queued on a] [leased on b]; a knows a b c; b and c know b c
    x@a ADDJOB q body 0         client x of node a; j1 … are names for ids, <b> is the id of node b
    x@a INFO | memory           only the lines of the reply that have this word
    hang up x@a                 its connection breaks
    deliver                     until no message is in transit
    wait 500ms                  later lines begin with the seconds since then
    cut a b | cut a to b | heal [silently swallows: cut a b silently]
    crash b | restart b | stop b | go on b | join d
    lose SETACK a b [twice]     the next such message vanishes
    memory a 80%                of maxmemory is used on a
    clock a +600s               an operator sets its wall clock
    states                      every record: node, job, state, holders

Output

    a  j1 ACTIVE → ACKED        a state here (+: new, gone: forgotten), once per turn
    a  j1 {a b c}               its holders, if only these change
    a → b c  SETACK j1 {a b}    a message, when it leaves; nodes without a link don't get it
    x@a ← :1                    a reply
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

from cluster_bus.messages import FIRST_JOB_KIND, NAMES
from cluster_bus.node import Node
from cluster_bus.outgoing import Run
from disque_py.core import lifecycle
from disque_py.core.job import ACTIVE, QUEUED, Job, terms_of
from disque_py.simulator.transcript import Names, state_of, tell_message, tell_reply
from disque_py.simulator.world.machine import Machine
from world import Talker, World

SPAN = re.compile(r"([+-]?[0-9.]+)(ms|s|m|h|d)")
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class NoChance(Random):
    """A generator without randomness: the first choice, the middle of every span, bytes that count up."""

    def __init__(self, seed: str = "") -> None:
        super().__init__(seed)
        self._bytes = Random(seed)

    def random(self) -> float:
        return 0.5

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        return list(population[:k])

    def randbytes(self, n: int) -> bytes:
        return self._bytes.randbytes(n)


class Stage(World):
    """A world that records its events as text."""

    def __init__(self, names: str, **settings: Any) -> None:
        self.names = Names()
        self.lines: list[str] = []
        self.block_ms = 0
        self.losing: list[tuple[str, str, str]] = []
        self._known: dict[str, dict[bytes, tuple[str, str]]] = {}
        self._turn: dict[str, tuple[list[str], list[str]]] = {}
        super().__init__(names, chance=NoChance, **settings)
        self.drop = self._loses

    def say(self, text: str) -> None:
        """Add a line of output."""
        since_ms = self.now_ms - self.block_ms
        self.lines.append(f"{since_ms / 1000:7.3f}  {text}" if since_ms >= 0 else text)

    def _buffer(self, machine: Machine) -> tuple[list[str], list[str]]:
        return self._turn.setdefault(machine.name, ([], []))

    def on_runs(self, machine: Machine, runs: list[Run]) -> None:
        for nodes, kind, items in runs:
            to = [node.host for node in nodes if node.is_linked]
            if kind >= FIRST_JOB_KIND and to:
                told = ", ".join(tell_message(self.names, kind, item) for item in items)
                self._buffer(machine)[1].append(f"{machine.name} → {' '.join(to)}  {NAMES[kind]} {told}")

    def on_answer(self, talker: Talker, reply: Any) -> None:
        if only := talker.wanted.get("only"):
            reply = ", ".join(line for line in reply.decode().split("\r\n") if only in line).encode()
        self._buffer(talker.machine)[0].append(f"{talker.name} ← {tell_reply(self.names, reply)}")

    def on_lost(self, sender: str, receiver: str, kind: int, item: Any) -> None:
        self.say(f"{sender} → {receiver}  {NAMES[kind]} {tell_message(self.names, kind, item)}  lost")

    def on_turn(self, machine: Machine) -> None:
        before = self._known.get(machine.name, {})
        # Most turns are ticks of nodes without jobs.
        shards = machine.broker.shards if machine.broker.job_count else ()
        jobs = [job for shard in shards if shard for job in shard.values()]
        jobs.sort(key=lambda job: (job.ctime, job.id))
        now = {job.id: state_of(job) for job in jobs}
        for job_id, (state, holders) in now.items():
            name, known = self.names.of(job_id), before.get(job_id)
            if known is None:
                self.say(f"{machine.name}  {name} + {state} {holders}")
            elif known[0] != state:
                self.say(f"{machine.name}  {name} {known[0]} → {state}{'' if known[1] == holders else ' ' + holders}")
            elif known[1] != holders:
                self.say(f"{machine.name}  {name} {holders}")
        for job_id in before:
            if job_id not in now:
                self.say(f"{machine.name}  {self.names.of(job_id)} gone")
        self._known[machine.name] = now
        replies, messages = self._turn.pop(machine.name, ([], []))
        for line in replies + messages:
            self.say(line)

    def forget(self, name: str) -> None:
        """Forget a node's states without output, because its memory is gone."""
        self._known.pop(name, None)

    def _loses(self, sender: str, receiver: str, kind: int, item: Any) -> bool:
        wanted = (NAMES[kind], sender, receiver)
        if wanted in self.losing:
            self.losing.remove(wanted)
            return True
        return False


class Play:
    """The player of one story's commands."""

    def __init__(self) -> None:
        self.stage: Stage
        self.talkers: dict[str, Talker] = {}

    def run(self, commands: list[str]) -> list[str]:
        """Run the commands of one block, and return the lines of output."""
        lines: list[str] = []
        for command in commands:
            word, _, rest = command.partition(" ")
            if word == "cluster":
                self.begin(rest)
                continue
            stage = self.stage
            stage.lines = []
            stage.block_ms = stage.now_ms if word == "wait" else 1 << 62
            if "@" in word:
                self.client(word, rest)
            else:
                getattr(self, "do_" + word)(rest)
            lines += stage.lines
        return lines

    def begin(self, words: str) -> None:
        """Begin a story: cluster a b c [name value …]. Output begins when the nodes have met."""
        names, settings = "", {}
        rest = words.split()
        while rest and len(rest[0]) == 1:
            names += rest.pop(0)
        for name, value in zip(rest[::2], rest[1::2], strict=True):
            attribute = {"node-timeout": "cluster_node_timeout", "delay": "delay_ms"}.get(name, name.replace("-", "_"))
            settings[attribute] = span_ms(value) if SPAN.fullmatch(value) else int(value)
        self.stage = Stage(names, **settings)
        self.talkers = {}
        if len(names) > 1:
            self.stage.join()
        self.stage.run(300)

    def client(self, name: str, words: str) -> None:
        """x@a COMMAND …"""
        stage = self.stage
        talker = self.talkers.get(name)
        if talker is None:
            talker = self.talkers[name] = stage.client(name.partition("@")[2])
            talker.name = name
        command, _, talker.wanted["only"] = words.partition(" | ")
        talker.say(*[self.argument(word) for word in command.split()])

    def argument(self, word: str) -> str | bytes:
        """Return a word's value: j1 and <a> are ids, "" is an empty word, x*100 is a long one."""
        if re.fullmatch(r"j[0-9]+", word):
            return self.stage.names.id_of(word)
        if re.fullmatch(r"<[a-z]>", word):
            return self.stage.machines[word[1]].node_id.hex()
        if match := re.fullmatch(r"(.)\*([0-9]+)", word):
            return match[1] * int(match[2])
        return "" if word == '""' else word

    # -- setting the stage ---------------------------------------------------------------------------

    def do_given(self, words: str) -> None:
        """j1 on a b [retry 5s] [queue q] [queued on a] [leased on b]; a knows a b c; b and c know b c"""
        head, *clauses = [part.split() for part in words.replace(",", " ").split(";")]
        name, where = head[0], head[head.index("on", 1) + 1 :]
        on = where[: next((at for at, word in enumerate(where) if len(word) > 1), len(where))]
        options = dict(zip(where[len(on) :: 2], where[len(on) + 1 :: 2], strict=True)) if len(where) > len(on) else {}
        knows = dict.fromkeys(on, on)
        queued = leased = ""
        for clause in clauses:
            if clause[0] in ("queued", "leased"):
                queued, leased = (clause[2], leased) if clause[0] == "queued" else (queued, clause[2])
                continue
            at = next(at for at, word in enumerate(clause) if word.startswith("know"))
            for knower in clause[:at]:
                if len(knower) == 1:
                    knows[knower] = clause[at + 1 :]
        retry_ms = span_ms(options.get("retry", "300s"))
        for node in on:
            machine = self.stage.machines[node]
            machine.open()
            job = self.put(machine, name, options.get("queue", "q"), retry_ms, knows[node])
            if node in (queued, leased):
                queue = lifecycle.enqueue(machine.broker, job)
                if node == leased:
                    lifecycle.fetch(machine.broker, queue)
                    lifecycle.lease(machine.broker, job)
            machine.close()
        self.stage.lines = []

    def put(self, machine: Machine, name: str, queue: str, retry_ms: int, holders: list[str]) -> Job:
        """Give a node a copy, as if REPLJOB had brought it."""
        broker = machine.broker
        job_id = self.stage.names.id_of(name, is_retried=retry_ms > 0)
        nodes = [self.node(machine, holder) for holder in holders]
        day_ms = UNITS_MS["d"]
        terms = terms_of(broker.terms, queue.encode(), retry_ms, 0, len(holders))
        job = Job(job_id, terms, name.encode(), broker.next_ctime(), broker.now_ms + day_ms, broker.sets.of(nodes))
        job.was_queued = True
        job.requeue_at_ms = broker.now_ms + retry_ms if retry_ms else 0
        lifecycle.register(broker, job)
        lifecycle.arm(broker, job)
        return job

    def node(self, machine: Machine, name: str) -> Node:
        """Return a machine's object for another node."""
        return machine.membership.table.intern(self.stage.machines[name].node_id)

    # -- time, weather, looking ------------------------------------------------------------------------

    def do_deliver(self, _: str) -> None:
        self.stage.until(lambda: not self.stage.traffic.flying)

    def do_wait(self, words: str) -> None:
        self.stage.run(span_ms(words))

    def do_cut(self, words: str) -> None:
        names = [word for word in words.split() if len(word) == 1]
        self.stage.cut(*names, both=" to " not in words, silently="silently" in words)

    def do_heal(self, _: str) -> None:
        self.stage.heal()

    def do_crash(self, words: str) -> None:
        self.stage.crash(words)
        self.stage.forget(words)

    def do_restart(self, words: str) -> None:
        self.stage.restart(words)

    def do_stop(self, words: str) -> None:
        self.stage.pause(words)

    def do_go(self, words: str) -> None:
        self.stage.resume(words.split()[1])

    def do_join(self, words: str) -> None:
        first = next(iter(self.stage.machines))
        self.stage.add(words)
        self.stage.meet(words, first)

    def do_hang(self, words: str) -> None:
        self.talkers.pop(words.split()[1]).hang_up()

    def do_lose(self, words: str) -> None:
        kind, one, other, *often = words.split()
        self.stage.losing += [(kind, one, other)] * {"twice": 2}.get("".join(often), 1)

    def do_memory(self, words: str) -> None:
        name, share = words.split()
        broker = self.stage[name]
        broker.settings.maxmemory = broker.used_memory * 100 // int(share[:-1]) or 1
        broker.apply_maxmemory()

    def do_clock(self, words: str) -> None:
        name, span = words.split()
        self.stage.machines[name].wall_offset_ms += span_ms(span)

    def do_states(self, _: str) -> None:
        stage = self.stage
        for name, machine in stage.machines.items():
            for job_id, (state, holders) in stage._known.get(name, {}).items():
                job = machine.broker.find(job_id)
                assert job is not None
                lease = " leased" if job.is_leased_here and job.state == ACTIVE else ""
                more = " listed" if job.state == QUEUED and not job.is_listed else ""
                stage.lines.append(f"{name}  {stage.names.of(job_id)} {state}{lease}{more} {holders}")


def span_ms(text: str) -> int:
    """500ms, 1.5s, 2m, 1h, 1d."""
    match = SPAN.fullmatch(text)
    assert match is not None, text
    return int(float(match[1]) * UNITS_MS[match[2]])


# -- files -----------------------------------------------------------------------------------------------


def perform(text: str) -> str:
    """Return the same text with the current outputs."""
    play = Play()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        before, _, _ = block.partition("\n----")
        lines = before.split("\n")
        commands = [line for line in lines if line and not line.startswith("#")]
        if not commands:
            blocks.append(before)
            continue
        output = play.run(commands)
        silent = all(command.split()[0] in ("cluster", "given") for command in commands)
        blocks.append(before if silent and not output else "\n".join([before, "----", *output]))
    return "\n\n".join(blocks) + "\n"


def stories(folder: Path) -> list[Path]:
    """Return all transcripts."""
    return sorted(folder.glob("*.txt"))
