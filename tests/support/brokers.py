"""A real broker for tests. Only the process around it is a stand-in, which records the calls.

`make_broker` and `make_client` build the objects, `ask` uses the same door as connections, and `pass_time` moves the
clocks. Nothing is sent: output stays in `broker.outbox` and in the tray of `broker.cluster`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import hiredis

from cluster_bus.codec import PROTOCOL_MAX, PROTOCOL_MIN
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.node import Node
from cluster_bus.nodes_file import NodeLine
from cluster_bus.outgoing import Outgoing
from disque_py.config.settings import Settings
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.job import Job
from disque_py.core.queue_settings import Item
from disque_py.server.time_zones import time_zone

ME = bytes(range(20))
NOW_MS = 1_000_000
WALL_MS = 1_700_000_000_123

# INFO persistence of a node without a journal.
NO_JOURNAL = (
    ("loading", 0),
    ("aof_enabled", 0),
    ("aof_state", "off"),
    ("aof_rewrite_in_progress", 0),
    ("aof_rewrite_scheduled", 0),
    ("aof_last_rewrite_time_sec", -1),
    ("aof_current_rewrite_time_sec", -1),
    ("aof_last_bgrewrite_status", "ok"),
    ("aof_last_write_status", "ok"),
)


class NotedHost:
    """The ports.Host of tests. `calls` has the calls so far, `failures` the errors to raise, by method name.

    Files are written immediately, or with `is_slow` when the test calls the functions in `writing`.
    """

    def __init__(self) -> None:
        self.is_slow = False
        self.writing: list[Callable[[], None]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.failures: dict[str, Exception] = {}
        self.refusal = ""
        self.settings_file: list[Any] = []
        self.votes_file: list[Any] = []
        self.acl_file = b""
        self.audited: list[str] = []
        self.is_rewriting = False
        self.fields = [
            ("os", "Linux 6.1 x86_64"),
            ("arch_bits", "64"),
            ("multiplexing_api", "uvloop"),
            ("gcc_version", "3.11.4"),
            ("process_id", "4242"),
            ("tcp_port", "7711"),
            ("executable", "/usr/bin/disque-server"),
            ("config_file", "/etc/disque.conf"),
            ("mem_allocator", "pymalloc"),
            ("bus_port", "17711"),
        ]

    def _note(self, method: str, *details: Any) -> None:
        self.calls.append((method, *details))
        if method in self.failures:
            raise self.failures[method]

    def rss_bytes(self) -> int:
        return 8 << 20

    def cpu_seconds(self) -> tuple[float, float, float, float]:
        return 1.5, 2.25, 0.0, 0.0

    def info_fields(self) -> list[tuple[str, str]]:
        return self.fields

    def links_rejected(self) -> dict[str, int]:
        return {"wrong secret": 2}

    def apply_setting(self, name: str) -> None:
        self._note("apply_setting", name)

    def has_config_file(self) -> bool:
        return bool(dict(self.fields)["config_file"])

    def rewrite_config(self, done: Callable[[OSError | None], None]) -> None:
        self._write("rewrite_config", done)

    def save_nodes(self, done: Callable[[OSError | None], None]) -> None:
        self._write("save_nodes", done)

    def write_queue_settings(self, items: list[Any], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        def note(failure: OSError | None) -> None:
            if failure is None:
                self.settings_file = [*([] if is_void else self.settings_file), *items]
            done(failure)

        self._write("write_queue_settings", note)

    def write_votes(self, items: list[Any], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        def note(failure: OSError | None) -> None:
            if failure is None:
                self.votes_file = [*([] if is_void else self.votes_file), *items]
            done(failure)

        self._write("write_votes", note)

    def write_acl_file(self, text: bytes, done: Callable[[OSError | None], None]) -> None:
        def note(failure: OSError | None) -> None:
            if failure is None:
                self.acl_file = text
            done(failure)

        self._write("write_acl_file", note)

    def read_acl_file(self, take: Callable[[bytes], None], done: Callable[[OSError | None], None]) -> None:
        take(self.acl_file)
        self._write("read_acl_file", done)

    def audit(self, line: str) -> None:
        self.audited.append(line)

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def time_zone(self, name: str) -> Callable[[int], int] | None:
        return time_zone(name)

    def _write(self, method: str, done: Callable[[OSError | None], None]) -> None:
        def end() -> None:
            try:
                self._note(method)
            except OSError as failure:
                done(failure)
            else:
                done(None)

        if self.is_slow:
            self.writing.append(end)
        else:
            end()

    def journal_fields(self) -> list[tuple[str, str | int]]:
        return list(NO_JOURNAL)

    def nodes_file_trouble(self) -> str:
        return ""

    def rewrite_journal(self) -> bool:
        self._note("rewrite_journal")
        return not self.is_rewriting

    def backup_journal(
        self, name: str, settings: list[Item], done: Callable[[tuple[str, int, int] | OSError], None]
    ) -> None:
        try:
            self._note("backup_journal", name)
        except OSError as failure:
            done(failure)
        else:
            done((f"/data/{name}", 2, 3000))

    def reload_journal(self, done: Callable[[OSError | None], None]) -> None:
        self._write("reload_journal", done)

    def shutdown_refusal(self) -> str:
        return self.refusal

    def rewrite_for_shutdown(self, done: Callable[[OSError | None], None]) -> None:
        self._write("rewrite_for_shutdown", done)

    def shutdown(self) -> None:
        self._note("shutdown")

    def restart(self, delay_ms: int, *, graceful: bool) -> None:
        self._note("restart", delay_ms, graceful)

    def crash(self, how: str) -> None:
        self._note("crash", how)

    def sleep(self, seconds: float) -> None:
        self._note("sleep", seconds)

    def log(self, level: str, text: str) -> None:
        self._note("log", level, text)


class NotedPort:
    """The ports.ClientPort of tests: it counts wake-ups, notes how it was closed, and reports given buffer sizes."""

    def __init__(self) -> None:
        self.wakes = 0
        self.closed: list[bool] = []
        self.input = 0
        self.output = 0

    def wake(self) -> None:
        self.wakes += 1

    def close(self, *, after_replies: bool) -> None:
        self.closed.append(after_replies)

    def input_bytes(self) -> int:
        return self.input

    def output_bytes(self) -> int:
        return self.output


def make_broker(*, seed: int = 1, node_id: bytes = ME, **settings: Any) -> Broker:
    """Return a single node with all commands in force. Keyword arguments are attributes of Settings."""
    from disque_py.node import dispatch

    values = Settings()
    for name, value in settings.items():
        setattr(values, name, value)
    outgoing = Outgoing()
    me = Node(node_id, "127.0.0.1", 7711, 17711)
    me.datacenter, me.zone = values.datacenter, values.zone
    membership = Membership(me, outgoing, Random(seed), node_timeout_ms=values.cluster_node_timeout)
    broker = Broker(membership, outgoing, values, Random(seed + 1), NotedHost())
    broker.started_ms = broker.upkeep.housekept_ms = NOW_MS
    _set_clock(broker, NOW_MS, WALL_MS)
    dispatch.install(broker, values.rename_command)
    return broker


def pass_time(broker: Broker, span_ms: int) -> None:
    """Move both clocks on, without doing any work that becomes due."""
    _set_clock(broker, broker.now_ms + span_ms, broker.wall_ms + span_ms)


def _set_clock(broker: Broker, now_ms: int, wall_ms: int) -> None:
    broker.now_ms = broker.cluster.now_ms = broker.waits.timeouts.now_ms = now_ms
    broker.wall_ms = broker.cluster.wall_ms = wall_ms
    broker.schedule.begin(now_ms)


def host_of(broker: Broker) -> NotedHost:
    """Return the record of the broker's calls on its process."""
    assert isinstance(broker.host, NotedHost)
    return broker.host


def make_client(broker: Broker, addr: str = "127.0.0.1:50001") -> Client:
    """Return a connected client that the broker knows."""
    number = max(broker.clients, default=0) + 1
    client = Client(number, NotedPort(), addr, broker.now_ms, fd=8 + number)
    client.user = broker.users.of_clients
    broker.clients[number] = client
    return client


def port_of(client: Client) -> NotedPort:
    """Return the record of the broker's calls on a client's connection."""
    assert isinstance(client.port, NotedPort)
    return client.port


def add_node(
    broker: Broker,
    number: int = 2,
    *,
    is_linked: bool = True,
    protocol: int = PROTOCOL_MAX,
    place: tuple[str, str] | None = ("", ""),
) -> Node:
    """Add a node to the cluster, at 127.0.0.<number>:7711. Its id is that number twenty times.

    place   its data centre and its zone; None: it has never announced them
    """
    node_id = bytes([number]) * 20
    membership = broker.membership
    membership.load([NodeLine(node_id, f"127.0.0.{number}", 7711, 17711, 0, 0, 0, place=place)])
    node = broker.cluster.intern(node_id)
    if is_linked:
        hello = Hello(node_id, bytes([number]) * 8, "", 7711, 17711, "0.1.0", (PROTOCOL_MIN, protocol))
        assert membership.link_up(node, hello, node.host, "127.0.0.1") is node
    return node


def make_cluster(count: int = 2) -> tuple[Any, ...]:
    """Return a broker and the other nodes of its cluster."""
    broker = make_broker()
    return broker, *[add_node(broker, number) for number in range(2, 2 + count)]


def ask(broker: Broker, client: Client, *words: str | bytes | int) -> bytes:
    """Execute one command as its connection would. Return the bytes of all replies that are ready; b"": none."""
    from disque_py.node import dispatch

    argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    assert dispatch.execute(broker, client, [argv]) == 1
    data = b"".join(client.out)
    client.out.clear()
    return data


def error_of(broker: Broker, client: Client, *words: str | bytes | int) -> str:
    """Return the error that a command is refused with."""
    reply = ask(broker, client, *words)
    assert reply.startswith(b"-"), reply
    return reply[1:-2].decode()


def ask_parsed(broker: Broker, client: Client, *words: str | bytes | int) -> Any:
    """Execute one command, and return its only reply as Python values (an error as hiredis.ReplyError)."""
    reader = hiredis.Reader()
    reader.feed(ask(broker, client, *words))
    reply = reader.gets()
    assert reply is not False
    assert reader.gets() is False
    return reply


def add_job(broker: Broker, client: Client, *words: str | bytes | int) -> Job:
    """Add a job to the queue `q` with these options, by an ADDJOB that is answered immediately. Return its id."""
    reply = ask(broker, client, "ADDJOB", "q", "body", 0, *words)
    assert reply.startswith(b"+D-"), reply
    job = broker.find(reply[1:-2])
    assert job is not None
    return job


def shown(broker: Broker, client: Client, job_id: bytes) -> dict[str, Any]:
    """Return the fields of SHOW."""
    values = ask_parsed(broker, client, "SHOW", job_id)
    return {name.decode(): value for name, value in zip(values[::2], values[1::2], strict=True)}


def fields_of(text: bytes) -> dict[str, str]:
    """Return the `name:value` lines of INFO or CLUSTER INFO as a dictionary."""
    return dict(line.split(":", 1) for line in text.decode().split("\r\n") if ":" in line)
