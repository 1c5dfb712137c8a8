"""A cluster of stand-in nodes for the Spark tests: the few commands that the data sources send, over real sockets.

The nodes answer in the wire format of docs/protocol.md. A job stays on its node, without copies. `StubCluster` is a
context; nodes join with `add_node` and vanish with `stop`. Tests set faults: `refuse` (queue → error), `read_limit`
(lines per EVENTS READ), `swallow` (command → how many answers are lost), `paused` (queues that have jobs and give
none).
"""

from __future__ import annotations

import json
import socketserver
import threading
from typing import Any

import hiredis

# A reply of GETJOB ends after the job with which it exceeds this.
REPLY_BYTES_MAX = 1 << 20


class StubNode:
    """One node: its event log, its queues, the tokens it gave out."""

    def __init__(self, cluster: StubCluster, number: int) -> None:
        self.cluster = cluster
        self.id = f"{number:040x}"
        # The other nodes' view of this node: an id that listened here before, a port that they have lost.
        self.known_as = ""
        self.has_address = True
        self.log = f"log{number}a"
        self.old_logs: dict[str, list[bytes]] = {}
        self.first = 0
        self.lines: list[bytes] = []
        self.jobs: dict[str, list[tuple[str, bytes, dict[str, str]]]] = {}
        self.added: list[list[bytes]] = []
        self.keys: dict[bytes, str] = {}
        self.tokens: dict[bytes, list[Any]] = {}
        self.aged: set[bytes] = set()  # Tokens whose jobs have lived for half of their TTL.
        self.acked: list[str] = []
        self.filled = 0
        # Queues that look empty to GETJOB, and only to it.
        self.paused: set[bytes] = set()
        self.extended: list[bytes] = []
        self.run = f"run-{number}-1"
        self.refuse: dict[bytes, bytes] = {}
        self.password: bytes | None = None
        self.is_loading = False
        self.restarts_at: bytes | None = None  # A command with this word is the first that comes while the node loads.
        self.hang_up_after: int | None = None
        self.swallow: dict[bytes, int] = {}
        self.round_trips = 0  # Commands that come together count once.
        self.lock = threading.Lock()
        node = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                reader = hiredis.Reader()
                while data := self.receive():
                    reader.feed(data)
                    out = []
                    while (argv := reader.gets()) is not False:
                        with node.lock:
                            answer = node.answer(argv)
                        if answer is None:
                            return
                        out.append(answer)
                    node.round_trips += 1
                    self.request.sendall(b"".join(out))

            def receive(self) -> bytes:
                try:
                    return self.request.recv(1 << 18) if node.is_up else b""
                except OSError:
                    return b""

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False

        self.is_up = True
        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def known_port(self) -> int:
        return self.port if self.has_address else 0

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.is_up = False
        self.server.shutdown()
        self.server.server_close()

    # -- events -------------------------------------------------------------------------------------

    def event(self, job_id: str, version: int, **fields: Any) -> None:
        """Append one event. Fields that are not given have the values of a plain job."""
        seq = self.first + len(self.lines)
        event = {
            "seq": seq, "ts": 1_700_000_000_000 + seq * 10, "job_id": job_id, "ctime": 1_700_000_000_000, "queue": "q",
            "version": version, "event": "added", "from_state": "", "to_state": "pending",
            "since": 1_700_000_000_000, "attempt": 0, "nacks": 0, "deliveries": 0, "priority": 1_700_000_000_000,
            "error": "", "worker": "", "meta": {}, "body_size": 3, "v": 1,
        } | fields  # fmt: skip
        self.lines.append(json.dumps(event).encode() + b"\n")

    def events(self, count: int, prefix: str = "D-") -> None:
        """Append many plain events, each of a different job."""
        at = self.first + len(self.lines)
        for number in range(at, at + count):
            self.event(f"{prefix}{self.id[-2:]}-{number}", 1)

    def trim(self, count: int) -> None:
        del self.lines[:count]
        self.first += count

    def new_log(self, name: str, *, keep: bool = False) -> None:
        if keep:
            self.old_logs[self.log] = [b""] * self.first + self.lines
        self.log, self.first, self.lines = name, 0, []

    # -- commands -----------------------------------------------------------------------------------

    def answer(self, argv: list[bytes]) -> bytes | None:
        name = argv[0].upper().decode().lower()
        if self.hang_up_after is not None:
            self.hang_up_after -= 1
            if self.hang_up_after < 0:
                self.hang_up_after = None
                return None
        self.is_loading = self.is_loading or self.restarts_at in argv
        if self.is_loading:
            return b"-LOADING The node is loading its jobs\r\n"
        if self.password is not None and name == "hello":
            return b"-NOAUTH Authentication required.\r\n"
        answer: bytes = getattr(self, f"on_{name}")(argv)
        if self.swallow.get(argv[0], 0):
            # The command was done, but its answer is lost.
            self.swallow[argv[0]] -= 1
            return None
        return answer

    def on_auth(self, argv: list[bytes]) -> bytes:
        if argv[1] != self.password:
            return b"-ERR invalid password\r\n"
        self.password = None
        return b"+OK\r\n"

    def on_hello(self, argv: list[bytes]) -> bytes:
        nodes = [
            [(node.known_as or node.id).encode(), b"127.0.0.1", b"%d" % node.known_port, b"1"]
            for node in self.cluster.listed
        ]
        return reply([1, self.id.encode(), *nodes])

    def on_ping(self, argv: list[bytes]) -> bytes:
        return b"+PONG\r\n"

    def on_info(self, argv: list[bytes]) -> bytes:
        return reply(b"# Server\r\nrun_id:" + self.run.encode() + b"\r\n")

    def on_events(self, argv: list[bytes]) -> bytes:
        word = argv[1].upper()
        if word == b"INFO":
            end = self.first + len(self.lines)
            size = sum(map(len, self.lines))
            return reply([b"log-id", self.log.encode(), b"first-seq", self.first, b"next-seq", end, b"bytes", size])
        if word == b"SEEK":
            for line in self.lines:
                event = json.loads(line)
                if event["ts"] >= int(argv[2]):
                    return reply(event["seq"])
            return reply(self.first + len(self.lines))
        lines, first = self.lines, self.first
        if argv[2].decode() != self.log:
            if argv[2].decode() not in self.old_logs:
                return b"-NOLOG %b\r\n" % argv[2]
            lines, first = self.old_logs[argv[2].decode()], 0
        options = dict(zip(argv[4::2], argv[5::2], strict=True))
        seq, count = int(argv[3]), int(options.get(b"COUNT", b"1000"))
        if seq < first:
            return b"-TRIMMED %d\r\n" % first
        if seq > first + len(lines):
            return b"-ERR event %d is behind the end of the log, which is %d\r\n" % (seq, first + len(lines))
        return reply(b"".join(lines[seq - first : seq - first + min(count, self.cluster.read_limit)]))

    def on_addjob(self, argv: list[bytes]) -> bytes:
        if argv[1] in self.refuse:
            return b"-%b\r\n" % self.refuse[argv[1]]
        if b"KEY" in argv:
            key = argv[1] + b"/" + argv[argv.index(b"KEY") + 1]
            if key in self.keys:
                return reply(self.keys[key].encode())
            self.keys[key] = f"D-{self.id[:8]}-{len(self.added):024d}-05a1"
        self.added.append(argv)
        return reply(f"D-{self.id[:8]}-{len(self.added) - 1:024d}-05a1".encode())

    def on_qlen(self, argv: list[bytes]) -> bytes:
        return reply(len(self.matching(argv[1], argv)))

    def matching(self, queue: bytes, argv: list[bytes]) -> list[tuple[str, bytes, dict[str, str]]]:
        """Return the waiting jobs of a queue that have the pairs of a command's WHERE."""
        at = [place for place, word in enumerate(argv) if word == b"WHERE"]
        pairs = {argv[place + 1].decode(): argv[place + 2].decode() for place in at}
        return [job for job in self.jobs.get(queue.decode(), ()) if pairs.items() <= job[2].items()]

    def fill(self, queue: str, count: int, size: int = 0, **meta: str) -> None:
        """Add jobs whose bodies have at least `size` bytes."""
        waiting = self.jobs.setdefault(queue, [])
        for _ in range(count):
            body = b"body-%d" % self.filled
            waiting.append((f"D-{self.id[-8:]}-{self.filled:024d}-05a1", body.ljust(size, b"."), meta))
            self.filled += 1

    def on_getjob(self, argv: list[bytes]) -> bytes:
        token = argv[argv.index(b"TOKEN") + 1]
        if token not in self.tokens:
            count = int(argv[argv.index(b"COUNT") + 1])
            taken: list[Any] = []
            size = 0
            for queue in argv[argv.index(b"FROM") + 1 :]:
                waiting = [] if queue in self.paused else self.matching(queue, argv)
                while waiting and len(taken) < count and size < REPLY_BYTES_MAX:
                    taken.append((queue, *waiting.pop(0)))
                    size += len(taken[-1][2])
                gone = {job[1] for job in taken}
                self.jobs[queue.decode()] = [job for job in self.jobs.get(queue.decode(), []) if job[0] not in gone]
            if not taken:
                return b"*-1\r\n"
            self.tokens[token] = taken
        entries = []
        for queue, job_id, body, meta in self.tokens[token]:
            entry: list[Any] = [queue, job_id.encode(), body]
            if b"WITHCOUNTERS" in argv:
                entry += [b"nacks", 0, b"additional-deliveries", 0]
            if b"WITHMETA" in argv:
                entry += [b"meta", [word.encode() for pair in meta.items() for word in pair]]
            entries.append(entry)
        return reply(entries)

    def on_acktoken(self, argv: list[bytes]) -> bytes:
        jobs = [job for token in argv[1:] for job in self.tokens.pop(token, ())]
        self.acked += [job[1] for job in jobs]
        return reply(len(jobs))

    def on_nacktoken(self, argv: list[bytes]) -> bytes:
        given = [job for token in argv[1:] for job in self.tokens.pop(token, ())]
        for queue, *job in given:
            self.jobs[queue.decode()].append(tuple(job))
        return reply(len(given))

    def on_extendtoken(self, argv: list[bytes]) -> bytes:
        self.extended.append(argv[1])
        return reply(0 if argv[1] in self.aged else len(self.tokens.get(argv[1], ())))


class StubCluster:
    """Nodes that name each other. HELLO leaves `hidden` ones out."""

    def __init__(self, count: int = 1) -> None:
        self.nodes: list[StubNode] = []
        self.hidden: set[str] = set()
        self.read_limit = 1 << 30
        for _ in range(count):
            self.add_node()

    @property
    def listed(self) -> list[StubNode]:
        return [node for node in self.nodes if node.id not in self.hidden]

    @property
    def servers(self) -> str:
        return ",".join(node.place for node in self.nodes)

    def add_node(self) -> StubNode:
        node = StubNode(self, len(self.nodes) + 1)
        self.nodes.append(node)
        return node

    def __enter__(self) -> StubCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.is_up:
                node.stop()


def reply(value: Any) -> bytes:
    """Return a value as RESP2."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n%b" % (len(value), b"".join(map(reply, value)))
