# ruff: noqa: E402 — the import path comes first
"""Upgrade a cluster of an older version to this checkout, node by node, under load: `make upgrade`.

    .venv/bin/python tests/compat/rolling_upgrade.py [--revision REV] [--seconds S] [--keep]

Three processes of the older revision form a cluster with journals. Producers and consumers work on all of them without
a pause. Then one node after the other gets SIGTERM, and starts again as this version, with its files and journal. After
each step the program checks that

- the commands of Disque work at every node, and between every two nodes, whatever versions they have;
- words that came with version 2 of the bus are refused by name while an older node is known, and work when all are new;
- no job that was acknowledged to a producer is lost, and none is delivered after its ack was answered;
- no at-most-once job comes twice, and all nodes forget the jobs that are done.

The default revision is the last one of bus version 1. It is read from git, so the program needs a checkout with its
history. The exit status is 0 if all is well, 1 if a rule was broken, 2 if the program could not begin.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "support")]

import hiredis
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from revisions import RevisionError, unpack
from servers import Cluster, Connection, Server, Word, until
from workers import running

# The last revision before cluster_bus/codec.py got PROTOCOL_MAX = 2.
OLD_REVISION: Final = "d1f034b469e6345df092b6cec1973cb7fd70709d"
PACKAGES: Final = ("disque_py", "cluster_bus", "persistence")
NODES: Final = 3
QUEUE: Final = "upgrade"
BACKLOG: Final = "upgrade-backlog"
BACKLOG_JOBS: Final = 60
# Longer than a node is away, so that no copy is queued again before its node knows of the acks that it missed.
RETRY_S: Final = 20
TTL_S: Final = 1000
PAUSE_S: Final = 0.02
GETJOB_MS: Final = 100
# The time for the end: a job that was queued at a stopped node comes after its RETRY, later on a busy machine.
DRAIN_SECONDS: Final = 60.0
FORGET_SECONDS: Final = 45.0
STEP_SECONDS: Final = 2.0
NODE_OPTIONS: Final[tuple[Word, ...]] = ("--appendonly", "yes", "--cluster-node-timeout", 2000, "--events", "no")
BODY: Final = "x" * 100
# Options of the producers' jobs, in turn. All of them are words of the older version.
KINDS: Final[tuple[tuple[Word, ...], ...]] = (
    ("REPLICATE", 2),
    ("REPLICATE", 3),
    ("REPLICATE", 2, "DELAY", 3),
    ("REPLICATE", 2, "PRIORITY", -7, "META", "tenant", "a"),
    ("REPLICATE", 2, "ASYNC"),
)
NACKED_OF: Final = 10
FAILED, CANNOT_BEGIN = 1, 2


class BrokenRuleError(Exception):
    """A rule of the upgrade is broken."""


class Book:
    """The knowledge of producers and consumers. Sets and counters grow under one lock.

    added   ids in replies to ADDJOB; only `promised` ones must not be lost
    once    at-most-once jobs
    got     id → deliveries
    acked   id → when its ACKJOB was answered, in seconds of the monotonic clock
    late    ids of jobs that came in reply to a request sent after that moment
    """

    def __init__(self) -> None:
        self.added: set[bytes] = set()
        self.promised: set[bytes] = set()
        self.once: set[bytes] = set()
        self.got: Counter[bytes] = Counter()
        self.acked: dict[bytes, float] = {}
        self.late: set[bytes] = set()
        self._lock = threading.Lock()

    def note_added(self, job_id: bytes, *, is_promised: bool = True, is_once: bool = False) -> None:
        """Note the id in a reply to ADDJOB."""
        with self._lock:
            self.added.add(job_id)
            if is_once:
                self.once.add(job_id)
            elif is_promised:
                self.promised.add(job_id)

    def note_got(self, job_id: bytes, asked_at: float) -> int:
        """Note a delivery by a GETJOB that was sent at this moment. Return the job's deliveries so far."""
        with self._lock:
            self.got[job_id] += 1
            if self.acked.get(job_id, asked_at) < asked_at:
                self.late.add(job_id)
            return self.got[job_id]

    def note_acked(self, job_ids: Sequence[bytes], now: float) -> None:
        """Note the reply to an ACKJOB."""
        with self._lock:
            for job_id in job_ids:
                self.acked.setdefault(job_id, now)

    def owed(self) -> set[bytes]:
        """Return the promised jobs whose ACKJOB was not answered yet."""
        with self._lock:
            return self.promised - self.acked.keys()

    def doubled(self) -> set[bytes]:
        """Return at-most-once jobs that came twice."""
        with self._lock:
            return {job_id for job_id in self.once if self.got[job_id] > 1}

    def check(self) -> None:
        """Raise BrokenRuleError with the first broken rule. Owed jobs are checked only at the end."""
        for jobs, what in ((self.late, "delivered after the answer to ACKJOB"), (self.doubled(), "delivered twice")):
            if jobs:
                raise BrokenRuleError(f"{len(jobs)} jobs were {what}, such as {text_of(min(jobs))}")


def text_of(reply: object) -> str:
    """Return a reply as text."""
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


# -- load ---------------------------------------------------------------------------------------------


def producer(server: Server, book: Book) -> Callable[[threading.Event], None]:
    """Adds a job every PAUSE_S at one node. While the node is away, it tries to connect."""

    def produce(over: threading.Event) -> None:
        kinds = itertools.cycle(KINDS)
        while not over.is_set():
            try:
                with server.connect(8) as client:
                    while not over.wait(PAUSE_S):
                        kind = next(kinds)
                        client.send("ADDJOB", QUEUE, BODY, 2000, "RETRY", RETRY_S, "TTL", TTL_S, *kind)
                        reply = client.read()
                        if isinstance(reply, hiredis.ReplyError):
                            continue  # -NOREPL while a node is away, -LOADING: nothing was promised.
                        book.note_added(reply, is_promised="ASYNC" not in kind)
                        if kind is KINDS[0]:
                            once = client.command("ADDJOB", QUEUE, BODY, 2000, "RETRY", 0, "TTL", TTL_S)
                            book.note_added(once, is_once=True)
            except (OSError, EOFError, hiredis.ReplyError):
                over.wait(0.05)

    return produce


def consumer(server: Server, book: Book) -> Callable[[threading.Event], None]:
    """Takes and acknowledges jobs at one node. One of NACKED_OF deliveries is given back once."""

    def consume(over: threading.Event) -> None:
        while not over.is_set():
            try:
                with server.connect(8) as client:
                    while not over.is_set():
                        _serve(client, book)
            except (OSError, EOFError, hiredis.ReplyError):
                over.wait(0.05)

    return consume


def _serve(client: Connection, book: Book) -> None:
    asked_at = time.monotonic()
    jobs = client.command("GETJOB", "TIMEOUT", GETJOB_MS, "COUNT", 20, "FROM", QUEUE) or []
    done = []
    for _, job_id, _ in jobs:
        is_first = book.note_got(job_id, asked_at) == 1
        if is_first and sum(job_id) % NACKED_OF == 0 and job_id not in book.once:
            client.command("NACK", job_id)
        else:
            done.append(job_id)
    if done:
        client.command("ACKJOB", *done)
        book.note_acked(done, time.monotonic())


# -- Disque's commands ----------------------------------------------------------------------------------


def check_commands(servers: Sequence[Server]) -> None:
    """Check jobs that are added, taken and acknowledged at all combinations of nodes. Raises BrokenRuleError."""
    for number, (adder, getter) in enumerate(itertools.product(servers, servers)):
        acker = servers[number % len(servers)]
        try:
            _pass_on(adder, getter, acker, servers)
        except (AssertionError, hiredis.ReplyError, OSError, EOFError) as error:
            raise BrokenRuleError(f"add at {adder.port}, get at {getter.port}, ack at {acker.port}: {error}") from error


def _pass_on(adder: Server, getter: Server, acker: Server, servers: Sequence[Server]) -> None:
    """Check the life of one job: added, shown, taken, given back, taken again, acknowledged, forgotten by all."""
    queue = f"check-{time.monotonic_ns()}"
    job_id = adder.command(
        "ADDJOB", queue, "body", 5000, "REPLICATE", len(servers), "RETRY", RETRY_S, "TTL", TTL_S, "META", "k", "v"
    )
    _equal("QLEN", adder.command("QLEN", queue), 1)
    for server in servers:
        _equal("SHOW", _shown(server, job_id).get("queue"), queue.encode())
    _equal("QPEEK", [job[1] for job in adder.command("QPEEK", queue, 1)], [job_id])
    _equal("DEQUEUE", adder.command("DEQUEUE", job_id), 1)
    _equal("QLEN", adder.command("QLEN", queue), 0)
    _equal("ENQUEUE", adder.command("ENQUEUE", job_id), 1)
    _equal("GETJOB", _get(getter, queue), job_id)
    assert getter.command("WORKING", job_id) > 0, "WORKING"
    _equal("NACK", getter.command("NACK", job_id), 1)
    _equal("GETJOB after NACK", _get(getter, queue), job_id)
    _equal("ACKJOB", acker.command("ACKJOB", job_id), 1)
    until(lambda: not any(_shown(server, job_id) for server in servers))


def _equal(step: str, found: object, wanted: object) -> None:
    assert found == wanted, f"{step} answers {text_of(found)} instead of {text_of(wanted)}"


def _get(server: Server, queue: str) -> object:
    with server.connect() as client:
        jobs = client.command("GETJOB", "TIMEOUT", 9000, "FROM", queue)
    return jobs[0][1] if jobs else None


def _shown(server: Server, job_id: bytes) -> dict[str, object]:
    """Return the reply to SHOW as a dictionary; an empty one for a job that is unknown or done."""
    pairs = server.command("SHOW", job_id) or []
    fields = {text_of(name): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    return {} if fields.get("state") == b"acked" else fields


# -- words of version 2 ---------------------------------------------------------------------------------


def new_words(job_id: bytes, node_id: str) -> tuple[tuple[Word, ...], ...]:
    """Return commands with words that a node of version 1 would ignore. Spec Y1."""
    return (
        ("ADDJOB", "words", "body", 1000, "ATTEMPTS", 3),
        ("ADDJOB", "words", "body", 1000, "BACKOFF", "fixed:10:10"),
        ("QUEUE", "SET", "words", "retention", 60),
        ("NACK", job_id, "REASON", "why"),
        ("NACK", job_id, "DELAY", 1),
        ("NACK", job_id, "FINAL"),
        ("ACKJOB", job_id, "ATTEMPT", 1),
        ("CANCELJOB", job_id),
        ("PROMOTE", job_id),
        ("RESCHEDULE", job_id, "PRIORITY", 5),
        ("MOVEJOB", job_id, "TO", "others"),
        ("QMOVE", "words", "others"),
        ("QPURGE", "words"),
        ("QREDRIVE", "words"),
        ("NACKTOKEN", "token", "REASON", "why"),
        ("CLUSTER", "VOTERS", "INIT", node_id),
    )


def check_refusals(servers: Sequence[Server], old_ids: Sequence[str]) -> None:
    """Check that new nodes refuse new words by name while an older node is known, and that old nodes do nothing.

    An old node replies with an error. Its reply to NACKTOKEN is 0, because it takes the words for unknown tokens.
    """
    job_id = servers[0].command("ADDJOB", "words", "body", 5000, "RETRY", RETRY_S, "DELAY", 500, "TTL", TTL_S)
    names = {f"ERR not while node {node_id} runs an older version" for node_id in old_ids}
    for server in servers:
        is_new = server.node_id not in old_ids
        for words in new_words(job_id, server.node_id):
            answer = answer_of(server, words)
            if str(answer) not in names if is_new else not (isinstance(answer, hiredis.ReplyError) or answer == 0):
                shown = " ".join(map(text_of, words))
                raise BrokenRuleError(f"node {server.port} answered {text_of(answer)!r} to {shown}")
    servers[0].command("DELJOB", job_id)
    for server in servers:
        server.command("DELJOB", job_id)


def answer_of(server: Server, words: Sequence[Word]) -> object:
    """Return the reply, or the error reply as a value."""
    try:
        return server.command(*words)
    except hiredis.ReplyError as error:
        return error


def check_new_words(servers: Sequence[Server], old_job: bytes) -> None:
    """Check that the words work at each node when all are new, even for a job that the older version made."""
    first, last = servers[0], servers[-1]
    until(lambda: not any(isinstance(answer_of(server, _SETTING), hiredis.ReplyError) for server in servers))
    for server in servers:
        until(lambda server=server: b"77" in server.command("QUEUE", "GET", "settings"))
        try:
            _spend(server, first, last)
        except (AssertionError, hiredis.ReplyError) as error:
            raise BrokenRuleError(f"new words at {server.port}: {error}") from error
    try:
        _equal("NACK REASON", last.command("NACK", old_job, "REASON", "after the upgrade"), 1)
        _equal("SHOW", _shown(last, old_job).get("error"), b"after the upgrade")
        _equal("CANCELJOB", first.command("CANCELJOB", old_job), 1)
        until(lambda: not any(_shown(server, old_job) for server in servers))
    except (AssertionError, hiredis.ReplyError) as error:
        raise BrokenRuleError(f"new words with a job of the older version: {error}") from error


_SETTING: Final[tuple[Word, ...]] = ("QUEUE", "SET", "settings", "retention", 77)


def _spend(server: Server, first: Server, last: Server) -> None:
    """Add a job of two attempts, spend both, find it errored at the other nodes, and cancel it."""
    queue = f"spent-{server.port}"
    job_id = server.command("ADDJOB", queue, "body", 5000, "REPLICATE", NODES, "ATTEMPTS", 2, "RETRY", RETRY_S)
    for _ in range(2):
        _equal("GETJOB", _get(server, queue), job_id)
        _equal("NACK", server.command("NACK", job_id, "REASON", "spent"), 1)
    until(lambda: all(_shown(other, job_id).get("status") == b"errored" for other in (first, last)))
    _equal("CANCELJOB", first.command("CANCELJOB", job_id), 1)


# -- the upgrade ----------------------------------------------------------------------------------------


def add_backlog(servers: Sequence[Server], book: Book) -> list[bytes]:
    """Add jobs on all nodes that wait until the upgrade is done. Return their ids."""
    words = ("ADDJOB", BACKLOG, BODY, 5000, "REPLICATE", 2, "RETRY", RETRY_S, "TTL", TTL_S)
    ids = [servers[number % NODES].command(*words) for number in range(BACKLOG_JOBS)]
    for job_id in ids:
        book.note_added(job_id)
    return ids


def take_backlog(servers: Sequence[Server], book: Book, count: int) -> None:
    """Take and acknowledge all jobs that waited. Raises BrokenRuleError if some don't come."""
    deadline = time.monotonic() + DRAIN_SECONDS
    taken: set[bytes] = set()
    while len(taken) < count and time.monotonic() < deadline:
        for server in servers:
            asked_at = time.monotonic()
            for _, job_id, _ in server.command("GETJOB", "TIMEOUT", GETJOB_MS, "COUNT", 20, "FROM", BACKLOG) or []:
                book.note_got(job_id, asked_at)
                server.command("ACKJOB", job_id)
                book.note_acked([job_id], time.monotonic())
                taken.add(job_id)
    if len(taken) < count:
        raise BrokenRuleError(f"{count - len(taken)} of {count} jobs that waited during the upgrade are lost")


def upgrade(old_tree: Path, folder: Path, step_s: float, say: Callable[[str], None]) -> Book:
    """Upgrade a cluster of the old tree to this one. Raises BrokenRuleError, or AssertionError if a node fails.

    say   function that is called with the name of each step, before the step
    """
    book = Book()
    cluster = Cluster(folder, NODES, NODE_OPTIONS)
    for server in cluster.servers:
        server.environment = {"PYTHONPATH": str(old_tree)}
    say("the older version starts")
    with cluster:
        servers = cluster.servers
        old_ids = [server.node_id for server in servers]
        waiting = add_backlog(servers, book)
        say("load begins")
        with ExitStack() as load:
            load.enter_context(running(*(consumer(server, book) for server in servers)))
            with running(*(producer(server, book) for server in servers)):
                check_commands(servers)
                check_refusals(servers, old_ids)
                time.sleep(step_s)
                for number, server in enumerate(servers):
                    _replace(cluster, number, book, say)
                    old_ids.remove(server.node_id)
                    say(f"node {number + 1} is new: commands")
                    check_commands(servers)
                    say(f"node {number + 1} is new: words")
                    if old_ids:
                        check_refusals(servers, old_ids)
                    time.sleep(step_s)
                    book.check()
            say("jobs that waited")
            special = _take_one(servers, waiting)
            check_new_words(servers, special)
            book.note_acked([special], time.monotonic())
            take_backlog(servers, book, len(waiting) - 1)
            say("the rest is delivered")
            _drain(servers, book)
            # The consumers still run, because a job whose ACKJOB had no reply comes again after its RETRY.
            say("all nodes forget")
            _wait_forgotten(servers, book)
        book.check()
        faults = [server.output() for server in servers if "Traceback" in server.output()]
        if faults:
            raise BrokenRuleError(f"a node reported an error of its own:\n{faults[0][-4000:]}")
    return book


# The number of steps that `upgrade` reports, for the progress bar.
STEPS: Final = 2 + 4 * NODES + 3


def _replace(cluster: Cluster, number: int, book: Book, say: Callable[[str], None]) -> None:
    """Stop a node, check the others meanwhile, and start it as this version."""
    server = cluster[number]
    others = [other for other in cluster.servers if other is not server]
    say(f"node {number + 1} stops")
    before = len(book.acked)
    status = server.stop()
    if status:
        raise BrokenRuleError(f"node {server.port} ended with status {status}")
    until(lambda: len(book.acked) > before)
    server.environment = {}
    say(f"node {number + 1} starts as this version")
    server.restart()
    cluster.wait_whole()
    for other in others:
        if not other.is_running:
            raise BrokenRuleError(f"node {other.port} ended when its neighbor was replaced")


def _take_one(servers: Sequence[Server], waiting: Sequence[bytes]) -> bytes:
    """Return the id of a waiting job that the last node delivered."""
    last = servers[-1]
    found: list[object] = []

    def is_there() -> bool:
        found[:] = [_get(last, BACKLOG)]
        return found[0] is not None

    until(is_there, DRAIN_SECONDS)
    assert isinstance(found[0], bytes)
    if found[0] not in waiting:
        raise BrokenRuleError(f"job {text_of(found[0])} was never added")
    return found[0]


def _drain(servers: Sequence[Server], book: Book) -> None:
    try:
        until(lambda: not book.owed(), DRAIN_SECONDS)
    except AssertionError:
        owed = book.owed()
        states = [_shown(server, min(owed)).get("state") for server in servers]
        raise BrokenRuleError(f"{len(owed)} jobs are lost, such as {text_of(min(owed))}: {states}") from None


def _wait_forgotten(servers: Sequence[Server], book: Book) -> None:
    """Wait until all nodes have forgotten all jobs, except at-most-once jobs.

    An at-most-once job that was delivered to a broken connection stays until its TTL.
    """

    def left() -> list[tuple[Server, bytes]]:
        found = [(server, job_id) for server in servers for job_id in server.command("JSCAN", 0, "BUSYLOOP")[1]]
        return [(server, job_id) for server, job_id in found if job_id not in book.once]

    try:
        until(lambda: not left(), FORGET_SECONDS)
    except AssertionError:
        found = left()
        server, job_id = found[0]
        pairs = server.command("SHOW", job_id) or []
        raise BrokenRuleError(
            f"the nodes still have {len(found)} jobs {FORGET_SECONDS:g} s after the last ack, such as this at"
            f" {server.port}, delivered {book.got[job_id]} times, acknowledged: {job_id in book.acked}:"
            f" {' '.join(map(text_of, pairs))}"
        ) from None


def main(argv: list[str]) -> int:
    """Run the upgrade. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="rolling_upgrade.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--revision", default=OLD_REVISION, help=f"the older version, as git names it ({OLD_REVISION})")
    parser.add_argument("--seconds", type=float, default=STEP_SECONDS, help=f"of load at each step ({STEP_SECONDS:g})")
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder with logs and journals, also if all is well"
    )
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="disque-upgrade."))
    began = time.monotonic()
    columns = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    keep = options.keep
    try:
        unpack(options.revision, folder / "old", PACKAGES)
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("", total=STEPS)
            done = itertools.count()
            book = upgrade(
                folder / "old",
                folder,
                options.seconds,
                lambda text: progress.update(bar, description=text, completed=next(done)),
            )
            progress.update(bar, description="done", completed=STEPS)
    except RevisionError as error:
        print(f"rolling_upgrade.py: {error}", file=sys.stderr)
        return CANNOT_BEGIN
    except (BrokenRuleError, AssertionError) as error:
        keep = True
        print(f"rolling_upgrade.py: {error}\nfolder: {folder}", file=sys.stderr)
        return FAILED
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{options.revision[:12]} → this version: {len(book.added):,} jobs, none lost, {len(book.once):,} at most once,"
        f" none twice, none delivered after its ack; {time.monotonic() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
