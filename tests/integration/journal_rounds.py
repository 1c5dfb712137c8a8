"""Nodes with a journal are killed under load, again and again, and must keep what they acknowledged.

    python tests/integration/journal_rounds.py --rounds 20

In each round, producers and consumers work on all nodes of a cluster. SIGKILL hits one node, some, or all at the same
time. The nodes start again from their journals. Then the producers end, and consumers fetch every job that is owed: a
job whose ADDJOB was answered and for which no ACKJOB was ever sent. At-most-once jobs are counted over all rounds, and
none may come twice. All rounds use the same folders, so each start reads the history of earlier rounds.

test_journal_crash.py runs one round of each kind. This program runs long series.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import hiredis

from servers import Cluster, Server, until
from workers import running

QUEUE = "rounds"
ONCE_QUEUE = "rounds-once"
RETRY_S = 2
TTL_S = 1000
PIPELINE = 20
BODY = "x" * 100
# Jobs are queued again after RETRY and some questions to other holders. A busy machine needs more time.
DRAIN_SECONDS = 60.0
NODE_OPTIONS = ("--appendonly", "yes", "--cluster-node-timeout", 1000, "--auto-aof-rewrite-min-size", "256kb")

Work = Callable[[threading.Event], None]


class Oracle:
    """The knowledge of producers and consumers over all rounds. Sets grow under the interpreter's lock.

    added       ids in replies to ADDJOB
    ack_sent    ids for which an ACKJOB was sent; acked: ids whose ACKJOB was also answered
    got         id -> number of deliveries
    again       ids that were delivered although their ACKJOB had been answered
    """

    def __init__(self) -> None:
        self.added: set[str] = set()
        self.ack_sent: set[str] = set()
        self.acked: set[str] = set()
        self.got: Counter[str] = Counter()
        self.again: set[str] = set()
        self.once: set[str] = set()

    def owed(self) -> set[str]:
        """Return the jobs that still have to be delivered."""
        return self.added - self.ack_sent - self.once

    def doubled(self) -> list[str]:
        """Return at-most-once jobs that came twice."""
        return sorted(id for id in self.once if self.got[id] > 1)


def producer(server: Server, oracle: Oracle, *options: str | int, once: bool = False) -> Work:
    """Return a function that adds jobs, PIPELINE at a time, until its event is set. It retries a dead node."""
    words = ("ADDJOB", ONCE_QUEUE if once else QUEUE, BODY, 5000, "RETRY", 0 if once else RETRY_S, "TTL", TTL_S)

    def produce(over: threading.Event) -> None:
        while not over.is_set():
            try:
                with server.connect(8) as client:
                    while not over.is_set():
                        client.send_raw(hiredis.pack_command((*words, *options)) * PIPELINE)
                        for _ in range(PIPELINE):
                            reply = client.read()
                            if isinstance(reply, hiredis.ReplyError):
                                time.sleep(0.02)
                                continue
                            job_id = reply.decode()
                            if once:
                                oracle.once.add(job_id)
                            oracle.added.add(job_id)
            except (OSError, EOFError):
                time.sleep(0.05)

    return produce


def consumer(server: Server, oracle: Oracle, ack_share: float) -> Work:
    """Return a function that takes jobs of both queues until its event is set, and acknowledges this share of them."""

    def consume(over: threading.Event) -> None:
        rng = random.Random(server.port)
        while not over.is_set():
            try:
                with server.connect(8) as client:
                    while not over.is_set():
                        jobs = client.command("GETJOB", "TIMEOUT", 200, "COUNT", 50, "FROM", QUEUE, ONCE_QUEUE) or []
                        ids = [job[1].decode() for job in jobs]
                        oracle.got.update(ids)
                        oracle.again.update(id for id in ids if id in oracle.acked)
                        done = [id for id in ids if rng.random() < ack_share]
                        if done:
                            oracle.ack_sent.update(done)
                            client.command("ACKJOB", *done)
                            oracle.acked.update(done)
            except hiredis.ReplyError:
                time.sleep(0.05)
            except (OSError, EOFError):
                time.sleep(0.05)

    return consume


def load(servers: Sequence[Server], oracle: Oracle, ack_share: float) -> list[Work]:
    """Return a consumer and producers for every node: with copies on all, two or one node, and at most once."""
    count = len(servers)
    functions: list[Work] = []
    for number, server in enumerate(servers):
        functions.append(producer(server, oracle, "REPLICATE", 1 + number % count))
        functions.append(consumer(server, oracle, ack_share))
    functions.append(producer(servers[0], oracle, "REPLICATE", 1))
    functions.append(producer(servers[-1], oracle, once=True))
    return functions


def kill_at_once(victims: Sequence[Server]) -> None:
    """Send SIGKILL to all of them before waiting for any, as in a power cut."""
    for victim in victims:
        os.kill(victim.pid, signal.SIGKILL)
    for victim in victims:
        victim.kill()


def play_round(
    cluster: Cluster, oracle: Oracle, victims: Sequence[Server], *, load_seconds: float = 1.5, down_seconds: float = 0.5
) -> None:
    """Play one round. Raises AssertionError with the lost jobs."""
    with running(*load(cluster.servers, oracle, 0.5)):
        time.sleep(load_seconds)
        kill_at_once(victims)
        time.sleep(down_seconds)
        for victim in victims:
            victim.launch()
        for victim in victims:
            victim.wait_started()
    cluster.wait_whole()
    with running(*(consumer(server, oracle, 1.0) for server in cluster.servers)):
        try:
            until(lambda: not oracle.owed(), DRAIN_SECONDS)
        except AssertionError:
            owed = oracle.owed()
            raise AssertionError(f"{len(owed)} jobs were lost, such as {sorted(owed)[:3]}") from None
    assert oracle.doubled() == [], "at-most-once jobs were delivered twice"


def main() -> int:
    """Run rounds with one, two and three killed nodes in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--policy", choices=("always", "everysec", "no"), default="always")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--victims", type=int, default=0, help="so many in each round; 0: one, two … all in turn")
    parser.add_argument("--folder", type=Path, help="kept; default: one that is removed when all is well")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="disque-rounds."))
    oracle = Oracle()
    with Cluster(folder, options.nodes, (*NODE_OPTIONS, "--appendfsync", options.policy)) as cluster:
        for number in range(options.rounds):
            count = options.victims or 1 + number % options.nodes
            victims = random.sample(cluster.servers, count)
            before = len(oracle.added), len(oracle.acked), time.monotonic(), len(oracle.again)
            play_round(cluster, oracle, victims)
            print(
                f"round {number + 1}: {count} killed, {len(oracle.added) - before[0]:,} jobs added,"
                f" {len(oracle.acked) - before[1]:,} acknowledged, nothing lost,"
                f" {len(oracle.again) - before[3]} came again after their ack, {time.monotonic() - before[2]:.1f} s",
                flush=True,
            )
        unseen = sum(not oracle.got[id] for id in oracle.once)
        print(
            f"{len(oracle.added):,} jobs, none lost; {len(oracle.once):,} at most once, none came twice and"
            f" {unseen:,} never; {len(oracle.again):,} jobs came again although their ack had been answered"
        )
        faults = [server.output() for server in cluster.servers if "Traceback" in server.output()]
        print(*faults, sep="\n")
    if not options.folder:
        shutil.rmtree(folder)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
