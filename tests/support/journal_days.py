"""Random days of a node with a journal: requests of clients and other nodes, drawn from a seed.

Each `Day(node, rng).step()` does one thing. There are jobs of both kinds in three queues, leases, acks, pauses, copies
that other nodes send and acknowledge, and passing time. Other steps change the journal: policies, rewrites, FLUSHALL.
"""

from __future__ import annotations

from random import Random

from cluster_bus.messages import DELJOB, GOTACK, LEASED, QUEUED, REPLJOB, SETACK, TOOK, WILLQUEUE, YOURJOBS
from copies import make_id
from journaled import OTHER, JournaledNode
from persistence.layouts import HEADER

QUEUES = ("q", "r", "s")
POLICIES = ("always", "everysec", "no")


class Day:
    """One node's day.

    weights   how often each step is done, by name; a step that is left out is never done
    """

    def __init__(self, node: JournaledNode, rng: Random, *, without: tuple[str, ...] = ()) -> None:
        self.node = node
        self.rng = rng
        self.number = rng.randrange(1 << 30)
        self.deeds = [deed for deed, weight in DEEDS for _ in range(weight) if deed not in without]

    def step(self) -> str:
        """Do one step, and return its name."""
        deed = self.rng.choice(self.deeds)
        getattr(self, deed)()
        return deed

    def _ids(self) -> list[bytes]:
        return sorted(job_id for shard in filter(None, self.node.broker.shards) for job_id in shard)

    def _id(self) -> bytes:
        ids = self._ids()
        return self.rng.choice(ids) if ids and self.rng.random() < 0.95 else make_id(self.rng.randrange(50))

    def _client(self) -> int:
        return self.rng.randrange(2)

    def _ask(self, *words: str | bytes | int) -> None:
        self.node.ask(*words, client=self._client())

    # -- clients -----------------------------------------------------------------------------------

    def add(self) -> None:
        rng = self.rng
        options: list[str | int] = ["RETRY", rng.choice((0, 0, 1, 5, 30)), "TTL", rng.choice((40, 100, 4000))]
        if rng.random() < 0.2:
            options += ["DELAY", rng.choice((1, 10))]
        if not self.node.broker.cluster.linked or rng.random() < 0.7:
            options += ["REPLICATE", 1]
        elif options[1]:
            options += ["REPLICATE", 2]
        if rng.random() < 0.3:
            options += ["ASYNC"]
        self._ask("ADDJOB", rng.choice(QUEUES), b"x" * rng.choice((0, 5, 40, 300)), 0, *options)

    def get(self) -> None:
        self._ask("GETJOB", "NOHANG", "COUNT", self.rng.choice((1, 1, 4)), "FROM", *self.rng.sample(QUEUES, 2))

    def wait(self) -> None:
        self._ask("GETJOB", "TIMEOUT", 50, "FROM", *self.rng.sample(QUEUES, 2))

    def ack(self) -> None:
        self._ask("ACKJOB", *(self._id() for _ in range(self.rng.choice((1, 1, 3)))))

    def tell(self) -> None:
        self._ask(self.rng.choice(("NACK", "NACK", "WORKING", "ENQUEUE", "DEQUEUE")), self._id())

    def delete(self) -> None:
        self._ask(self.rng.choice(("FASTACK", "DELJOB")), self._id())

    def pause(self) -> None:
        words = self.rng.choice((("in",), ("out",), ("all",), ("none",), ("none",), ("in", "bcast"), ("none", "bcast")))
        self._ask("PAUSE", self.rng.choice(QUEUES), *words)

    def several(self) -> None:
        """Do several inputs in one turn."""
        node = self.node
        node.driver.begin()
        job_id = self._id()
        for words in self.rng.sample(
            (
                ("GETJOB", "NOHANG", "FROM", "q"),
                ("ADDJOB", "q", b"y" * 20, 0, "RETRY", 0),
                ("ACKJOB", job_id),
                ("DELJOB", job_id),
                ("NACK", job_id),
                ("PAUSE", "r", "in"),
                ("PAUSE", "r", "none"),
            ),
            3,
        ):
            node.put(*words, client=self._client())
        if self.rng.random() < 0.5:
            node.driver.tick()
        node.end_turn()

    # -- other nodes -------------------------------------------------------------------------------

    def hear(self) -> None:
        rng = self.rng
        node = self.node
        other = node.other()
        job_id = self._id()
        me = node.broker.me.id
        both = b"".join(sorted((me, OTHER)))
        kind = rng.choice((REPLJOB, REPLJOB, SETACK, GOTACK, DELJOB, LEASED, QUEUED, WILLQUEUE, YOURJOBS, TOOK))
        if kind in (REPLJOB, YOURJOBS):
            retry_s = rng.choice((1, 30)) if kind == REPLJOB else rng.choice((0, 1, 30))
            snapshot = self._snapshot(retry_s, both if retry_s else me)
            if kind == REPLJOB:
                node.say(other, kind, (snapshot, 0))
            else:
                self.number += 1
                node.say(other, kind, (self.number, 0, [(*snapshot, rng.choice((0, 0, 3_000)))]))
        elif kind == SETACK:
            node.say(other, kind, (job_id, rng.choice((both, both, b"", OTHER))))
        elif kind == GOTACK:
            node.say(other, kind, (job_id, rng.choice((both, b"")), rng.choice((0, 1))))
        elif kind == DELJOB:
            node.say(other, kind, (job_id, rng.choice((both, None, OTHER))))
        elif kind == LEASED:
            node.say(other, kind, (job_id, rng.choice((100, 5_000)), rng.randrange(5)))
        elif kind == QUEUED:
            node.say(other, kind, (job_id, rng.choice((1, 2)), rng.randrange(5), rng.randrange(3), rng.randrange(3)))
        elif kind == WILLQUEUE:
            node.say(other, kind, (job_id, rng.randrange(5)))
        else:
            self._took()

    def _snapshot(self, retry_s: int, holders: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        rng = self.rng
        job_id = make_id(rng.randrange(50) + (0 if retry_s else 1000 + self.number), retry_s=retry_s, ttl_s=240)
        ctime = (self.node.wall - 10) * 1_000_000 + rng.randrange(1000)
        header = HEADER.pack(ctime, 240_000, retry_s * 1000, 0, 2 if retry_s else 1, 0, 0, 0)
        return (job_id, header, rng.choice(QUEUES).encode(), b"z" * rng.randrange(60), holders)

    def pull(self) -> None:
        """Let the other node ask for jobs for its clients."""
        from cluster_bus.messages import NEEDJOBS

        self.node.say(self.node.other(), NEEDJOBS, (self.rng.choice(QUEUES).encode(), 3, 1))

    def _took(self) -> None:
        from disque_py.core.handover import exchange

        other = self.node.other()
        pending = exchange(other).pending
        for number, batch in list(pending.items()):
            answers = bytes(self.rng.choice((0, 0, 1, 4)) for _ in batch.jobs)
            self.node.say(other, TOOK, (number, answers))

    def copied(self) -> None:
        """Confirm copies for which clients wait."""
        from cluster_bus.messages import GOTJOB

        ids = [job.id for job in self.node.broker.copies.waiting_repl]
        if ids:
            self.node.say(self.node.other(), GOTJOB, *ids)

    # -- time and the journal ----------------------------------------------------------------------

    def pass_time(self) -> None:
        self.node.pass_ms(self.rng.choice((1, 5, 30, 200, 1_000, 6_000)))
        self.node.tick()

    def tick(self) -> None:
        self.node.tick()

    def work(self) -> None:
        """Let the disk do work, in a random lane."""
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            lanes = sorted({lane for lane, _, _ in self.node.disk.waiting})
            if lanes:
                self.node.work(self.rng.choice(lanes))

    def settle(self) -> None:
        self.node.settle()

    def set_policy(self) -> None:
        self._ask("CONFIG", "SET", "appendfsync", self.rng.choice(POLICIES))

    def rewrite(self) -> None:
        self._ask("BGREWRITEAOF")

    def flush(self) -> None:
        self._ask("DEBUG", "FLUSHALL")

    def reload(self) -> None:
        self._ask("DEBUG", "LOADAOF")
        self.node.settle()

    def switch(self) -> None:
        self._ask("CONFIG", "SET", "appendonly", self.rng.choice(("yes", "no")))


DEEDS = (
    ("add", 14), ("get", 10), ("wait", 3), ("ack", 8), ("tell", 5), ("delete", 2), ("pause", 1), ("several", 4),
    ("hear", 6), ("pull", 2), ("copied", 3), ("pass_time", 5), ("tick", 2), ("work", 16), ("settle", 3),
    ("set_policy", 1), ("rewrite", 1), ("flush", 0), ("reload", 0), ("switch", 0),
)  # fmt: skip
