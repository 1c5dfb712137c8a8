"""Consuming queues: the driver plans batches and acknowledges them, the executors fetch.

The guarantee is at least once. A batch is acknowledged when Spark has committed it. Spark reports the commit only
when the next batch is made. So when the queues are empty and jobs are still unacknowledged, the planner makes an
empty batch, only to get that report. Until then, a thread beside the driver extends the leases of the planned
batches. So the jobs of a long batch are not delivered a second time.

If a node is gone, its jobs can't be fetched or acknowledged. They come back after their RETRY, from a node that has a
copy. Nothing is lost, and the planner has nothing to remember.

A batch may give fewer jobs than planned: a reply ends at a megabyte, queues are paused, jobs move to other nodes.
So AvailableNow counts the jobs that came. The nodes report this number for the batch's tokens.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from disque_py.client import Address, DisqueConnectionError, DisqueError, NotConnectedError, ReplyError, results
from disque_py.spark.event_schema import TEXT_MAP
from disque_py.spark.job_tokens import (
    JOBS_PER_TOKEN,
    Offset,
    Share,
    first_offset,
    jobs_of,
    next_offset,
    shares_of,
    token,
    tokens,
)
from disque_py.spark.nodes import AwayNodes, ClusterError, Nodes
from disque_py.spark.options import (
    CONNECTION_OPTIONS,
    TIME_MAX_MS,
    ClusterOptions,
    OptionError,
    Options,
    cluster_options,
)

FORMAT: Final = "disque"
OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    "subscribe",
    "maxJobsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "leaseMs",
    "where",
)
JOBS_MAX: Final = 100_000
BYTES_MAX: Final = 256 << 20
LEASE_MS: Final = 120_000
# Tokens in one ACKTOKEN. While a node acknowledges their jobs, some ms per token, it serves no other client.
ACK_TOKENS: Final = 4
# After this many batches in a row in which a node gave none of its jobs, AvailableNow skips the node. Other queries ask
# it again after a rest: every batch costs Spark half a second, and the queue may be paused for long.
FRUITLESS_MAX: Final = 2
FRUITLESS_REST_S: Final = 2.0
# After a connection has broken, the request is repeated for LOST_S, with pauses of PAUSE_S.
LOST_S: Final = 10.0
PAUSE_S: Final = 0.2
# Acks go to this many nodes at a time.
ACK_NODES: Final = 16

SPARK_SCHEMA: Final = (
    "queue string, id string, body binary, nacks bigint, additional_deliveries bigint, meta map<string,string>, "
    "node string"
)
ARROW_SCHEMA: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("id", pa.string()),
        ("body", pa.binary()),
        ("nacks", pa.int64()),
        ("additional_deliveries", pa.int64()),
        ("meta", TEXT_MAP),
        ("node", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a query that consumes queues."""

    cluster: ClusterOptions
    queues: tuple[str, ...]
    jobs_max: int
    bytes_max: int
    piece_count_min: int
    lease_ms: int
    where: tuple[tuple[str, str], ...] = ()

    @property
    def where_words(self) -> tuple[str, ...]:
        """Return the filter as words of GETJOB and QLEN."""
        return tuple(word for name, value in self.where for word in ("WHERE", name, value))

    @property
    def lease_s(self) -> int:
        """Return the lease in whole seconds, as commands take it."""
        return -(-self.lease_ms // 1000)


def job_options(given: Any) -> JobOptions:
    """Check the options and return them. Raises OptionError."""
    options = Options(FORMAT, given, OPTIONS)
    options.required("subscribe", "mail,news")
    queues = options.names("subscribe")
    if not queues or len(set(queues)) < len(queues):
        raise OptionError(f"{FORMAT}: option subscribe must name queues, each once, not {options.text('subscribe')!r}")
    return JobOptions(
        cluster=cluster_options(options),
        queues=queues,
        jobs_max=options.integer("maxJobsPerTrigger", JOBS_MAX, 1),
        bytes_max=options.integer("maxBytesPerTrigger", BYTES_MAX, 1),
        piece_count_min=options.integer("minPartitions", 4, 1),
        lease_ms=options.integer("leaseMs", LEASE_MS, 1_000, TIME_MAX_MS),
        where=_pairs(options.text("where")),
    )


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Return `name=value,name=value`, or a JSON object of texts, as pairs. Raises OptionError."""
    wrong = OptionError(f"{FORMAT}: option where must be name=value,name=value or a JSON object of texts, not {text!r}")
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            raise wrong from None
        if not all(isinstance(value, str) for value in found.values()):
            raise wrong
        return tuple(found.items())
    pairs: dict[str, str] = {}
    for word in filter(str.strip, text.split(",")):
        name, equals, value = word.strip().partition("=")
        if not equals or not name or name in pairs:
            raise wrong
        pairs[name] = value
    if text.strip() and not pairs:
        raise wrong
    return tuple(pairs.items())


class JobPlanner:
    """A planner of batches, which also acknowledges them; one per query, in the process that Spark keeps for it."""

    def __init__(self, options: JobOptions) -> None:
        self.options = options
        self._nodes = Nodes(options.cluster)
        self._first: Offset | None = None
        # AvailableNow: the jobs that waited at its start, the jobs that came since.
        self._target: int | None = None
        self._came = 0
        # The number of the first batch that this process planned.
        self._own_first: int | None = None
        self._away = AwayNodes(
            FORMAT, "its jobs are read when it answers again, or come from other nodes after their RETRY"
        )
        # Batches in a row in which a node gave nothing, and until when it rests for that reason.
        self._fruitless: Counter[str] = Counter()
        self._rests_until: dict[str, float] = {}
        # Batches that were planned and not acknowledged, oldest first; shared with the thread that extends leases.
        self._open: dict[int, Offset] = {}
        self._acked = -1
        self._lock = threading.Lock()
        self._lease_thread: threading.Thread | None = None
        self._ended = threading.Event()

    def initial(self) -> Offset:
        """Return where a new query begins. Raises ClusterError before anything is fetched."""
        if self._first is None:
            self._nodes.discover()
            self._first = first_offset(uuid.uuid4().hex)
        return self._first

    def freeze(self) -> None:
        """Limit the query to as many jobs as wait now (AvailableNow)."""
        self._target = sum(self._waiting().values())

    def latest(self, start: Offset) -> Offset:
        """Return the end of the next batch.

        The batch is empty when only acks are due. Return `start` itself when there is nothing to do.
        """
        wanted = self.options.jobs_max
        is_due = bool(start["shares"]) and start["n"] > self._acked
        waiting: dict[str, int] = {}
        if self._target is None:
            now = time.monotonic()
            rests = self._rests_until
            waiting = {node: count for node, count in self._waiting().items() if rests.get(node, now) <= now}
        elif self._came < self._target:
            waiting = self._fruitful(self._waiting())
            is_open = is_due and self._is_own(start)
            left = self._target - self._came - (jobs_of(start) if is_open else 0)
            if left <= 0 and is_open and any(waiting.values()):
                # The plan says that all jobs of the start were fetched. Batches may have given fewer jobs than
                # planned, so ask the nodes how many came. That costs them a little.
                left = self._target - self._came - self._held(start)
            wanted = min(wanted, left)
        if wanted > 0 and any(waiting.values()):
            end = next_offset(start, waiting, wanted, self.options.bytes_max, self._runs(waiting))
            if self._own_first is None:
                self._own_first = end["n"]
        elif is_due:
            # Spark commits `start` only when it makes another batch.
            end = next_offset(start, {}, 0, 0)
        else:
            return start
        self._hold_leases(start)
        self._hold_leases(end)
        return end

    def _fruitful(self, waiting: dict[str, int]) -> dict[str, int]:
        """Leave out nodes that give none of their waiting jobs: because of them, AvailableNow would never end."""
        if self._target is None:
            return waiting
        for node, count in list(waiting.items()):
            if count and self._fruitless[node] >= FRUITLESS_MAX:
                del waiting[node]
                warnings.warn(
                    f"{FORMAT}: {count} jobs stay in {', '.join(self.options.queues)} of node {node}, which gives none "
                    "of them to consumers: the queue is paused, or their RETRY is 0",
                    stacklevel=3,
                )
        return waiting

    def _held(self, offset: Offset) -> int:
        """Return how many jobs of a batch came. Nodes report it for the batch's tokens; no answer counts as 0."""
        places = self._nodes.discover()
        count = 0
        for node, words in tokens(offset).items():
            if node in places:
                with suppress(DisqueConnectionError):
                    count += self._extend(self._nodes, places[node].address, words)
        return count

    def _extend(self, nodes: Nodes, address: Address, words: list[bytes]) -> int:
        """Extend the leases under these tokens and return their number."""
        lease_s = self.options.lease_s
        return sum(int(count) for count in nodes.ask_all(address, [(b"EXTENDTOKEN", one, lease_s) for one in words]))

    def shares(self, end: Offset) -> list[tuple[Share, Address | None]]:
        """Return the tasks of a batch with the addresses of their nodes; None for a node that is away."""
        self._hold_leases(end)
        if not end["shares"]:
            return []
        places = self._nodes.discover()
        found: list[tuple[Share, Address | None]] = []
        for share in shares_of(end, self.options.piece_count_min):
            place = places.get(share.node)
            found.append((share, None if place is None else place.address))
        return found

    def is_repeated(self, end: Offset) -> bool:
        """Return whether an earlier process has planned this batch, so that its jobs may have been read before."""
        return not self._is_own(end)

    def _is_own(self, offset: Offset) -> bool:
        """Return whether this process planned the batch."""
        return self._own_first is not None and int(offset["n"]) >= self._own_first

    def commit(self, end: Offset) -> None:
        """Acknowledge a batch, and older batches that are still open."""
        with self._lock:
            self._open.setdefault(end["n"], end)
            due = [offset for number, offset in self._open.items() if number <= end["n"]]
        places = self._nodes.discover()
        with ThreadPoolExecutor(ACK_NODES) as pool:
            for offset in due:
                addresses = {node: places[node].address if node in places else None for node in tokens(offset)}
                asked = {
                    node: pool.submit(self._ack, offset, node, addresses[node], words)
                    for node, words in tokens(offset).items()
                }
                for node, one in asked.items():
                    count, failure = one.result()
                    if failure:
                        warnings.warn(failure, stacklevel=2)
                        continue
                    self._fruitless[node] = 0 if count else self._fruitless[node] + 1
                    if self._fruitless[node] >= FRUITLESS_MAX:
                        self._rests_until[node] = time.monotonic() + FRUITLESS_REST_S
                    if self._is_own(offset):
                        self._came += count
                with self._lock:
                    self._open.pop(offset["n"], None)
        self._acked = max(self._acked, end["n"])

    def _ack(self, offset: Offset, node: str, address: Address | None, words: list[bytes]) -> tuple[int, str]:
        """Acknowledge a node's part of a batch → number of jobs, reason of a failure. Nodes are asked in parallel.

        A node that was restarted may have sent jobs whose rows never arrived. Its journal still records the delivery.
        So the jobs under these tokens are given back to the node (NACKTOKEN).
        """
        number, run = offset["n"], offset.get("runs", {}).get(node)
        try:
            if address is None:
                raise ClusterError(f"node {node} is no longer known to the cluster")
            is_same = run is None or self._run_of(address) == run
            name = b"ACKTOKEN" if is_same else b"NACKTOKEN"
            commands = [(name, *words[at : at + ACK_TOKENS]) for at in range(0, len(words), ACK_TOKENS)]
            counts = self._nodes.ask_all(address, commands)
            if not is_same:
                raise ClusterError("the node was restarted after they were requested")
        except (DisqueError, ClusterError) as error:
            return 0, (
                f"{FORMAT}: jobs of batch {number} from node {node} could not be acknowledged ({error}); "
                "they will be delivered again"
            )
        return sum(int(count) for count in counts), ""

    def stop(self) -> None:
        """End the thread and close the connections."""
        self._ended.set()
        if self._lease_thread is not None:
            self._lease_thread.join()
        self._nodes.close()

    def _waiting(self) -> dict[str, int]:
        """Count the jobs in the queues, by node, without nodes that don't answer. Raises ClusterError, ReplyError."""
        counts = {}
        away = {}
        # The commands for all queues leave together: a query may read hundreds of queues, and asks at each trigger.
        commands: list[tuple[str | bytes, ...]] = [
            (b"QLEN", queue, *self.options.where_words) for queue in self.options.queues
        ]
        for node, place in sorted(self._nodes.discover().items()):
            try:
                counts[node] = sum(int(count) for count in self._nodes.ask_all(place.address, commands))
            except DisqueConnectionError as error:
                if place.address.port:
                    away[node] = str(error)
        self._away.report(away)
        return counts

    def _runs(self, nodes: Iterable[str]) -> dict[str, str]:
        """Return the run ids of the nodes, without nodes that no longer answer."""
        found = {}
        for node in nodes:
            with suppress(DisqueConnectionError):
                found[node] = self._run_of(self._nodes.places[node].address)
        return found

    def _run_of(self, address: Address) -> str:
        """Return the run id of a node's process. Raises DisqueConnectionError, ReplyError."""
        fields = results.info(self._nodes.ask(address, b"INFO", b"server"))
        return str(fields.get("run_id", ""))

    def _hold_leases(self, offset: Offset) -> None:
        """Have the thread extend a batch's leases until the batch is acknowledged."""
        if not offset["shares"] or offset["n"] <= self._acked:
            return
        with self._lock:
            self._open[offset["n"]] = offset
        if self._lease_thread is None:
            self._lease_thread = threading.Thread(target=self._extend_leases, name="disque leases", daemon=True)
            self._lease_thread.start()

    def _extend_leases(self) -> None:
        """Run the thread, which has its own connections. Tokens that a node does not (or no longer) know do no harm."""
        nodes = Nodes(self.options.cluster)
        pause_s = self.options.lease_ms / 3000
        while not self._ended.wait(pause_s):
            with self._lock:
                batches = list(self._open.values())
            with suppress(ClusterError, DisqueError):
                places = nodes.discover()
                for node, words in (item for batch in batches for item in tokens(batch).items()):
                    with suppress(DisqueError):
                        if node in places:
                            self._extend(nodes, places[node].address, words)
        nodes.close()


def fetch(
    options: JobOptions, offset: Offset, share: Share, address: Address | None, *, is_repeated: bool = False
) -> Iterator[pa.RecordBatch]:
    """Fetch a task's jobs. Raises ClusterError when the node refuses the command.

    A node that can't be reached gives no rows and has no jobs under these tokens, so no job is acknowledged by
    mistake. Its jobs come back after their RETRY. A broken connection is different: the node may have sent jobs whose
    rows never arrived, and the batch will acknowledge their token. So the request is repeated for LOST_S. The same is
    true if an earlier attempt may have got jobs (`is_repeated`). Then every token is asked for its jobs, because any
    of them may have some.
    """
    reason = "it is no longer known to the cluster"
    if address is not None:
        try:
            yield from _batches(options, offset, share, address, is_repeated=is_repeated)
            return
        except ReplyError as error:
            raise ClusterError(f"{FORMAT}: node {share.node} refuses to hand out jobs: {error.text}") from None
        except DisqueConnectionError as error:
            reason = str(error)
    warnings.warn(
        f"{FORMAT}: jobs of batch {offset['n']} can't be fetched from node {share.node} ({reason}); they come back "
        "after their RETRY",
        stacklevel=2,
    )


def _batches(
    options: JobOptions, offset: Offset, share: Share, address: Address, *, is_repeated: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the jobs of a share, token by token, until it has its jobs or bytes, or a token gives nothing.

    The next reply is fetched while the last one is converted to rows. A repeated task goes on to the last token: an
    earlier attempt may have got jobs under it, although jobs of the tokens before have expired since, or others came.
    """
    nodes = Nodes(options.cluster)
    jobs, size = share.jobs, share.bytes

    def ask(number: int) -> Any:
        name = token(offset, share.node, share.first + number)
        may_be_sent = is_repeated or number > 0
        # Only a repeated task comes here with all its jobs. An earlier attempt may have got some under this token.
        if (jobs <= 0 or size <= 0) and not _ask(nodes, address, ("EXTENDTOKEN", name, options.lease_s), may_be_sent):
            # Either there are none, or half of their TTL is over, and then leases are not extended. The batch would
            # acknowledge them unread.
            _ask(nodes, address, ("NACKTOKEN", name), may_be_sent)
            return []
        words: tuple[str | bytes | int, ...] = (
            "GETJOB", "NOHANG", "COUNT", max(1, min(JOBS_PER_TOKEN, jobs)), "WITHCOUNTERS", "WITHMETA",
            "LEASE", options.lease_s, "TOKEN", name, *options.where_words, "FROM", *options.queues,
        )  # fmt: skip
        return _ask(nodes, address, words, may_be_sent)

    # One thread sends all requests, and nothing else uses the connection. Leaving the block waits for the thread.
    with closing(nodes), ThreadPoolExecutor(1) as beside:
        asked: Future[Any] = beside.submit(ask, 0)
        for number in range(share.tokens):
            entries = asked.result() or []
            jobs -= len(entries)
            size -= sum(len(entry[2]) for entry in entries)
            is_done = not is_repeated and (not entries or jobs <= 0 or size <= 0)
            is_last = is_done or number + 1 == share.tokens
            if not is_last:
                asked = beside.submit(ask, number + 1)
            if entries:
                yield _batch(entries, share.node)
            if is_last:
                return


def _ask(nodes: Nodes, address: Address, words: tuple[str | bytes | int, ...], may_be_sent: bool) -> Any:
    """Repeat a command about a token until it is answered. `may_be_sent`: the node may have sent jobs before.

    Raises DisqueConnectionError after LOST_S, or immediately if the node can't have sent anything.
    """
    deadline = time.monotonic() + LOST_S
    while True:
        try:
            return nodes.ask(address, *words)
        except DisqueConnectionError as error:
            may_be_sent = may_be_sent or not isinstance(error, NotConnectedError)
            if not may_be_sent or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)


def _batch(entries: list[Any], node: str) -> pa.RecordBatch:
    first = entries[0]
    # The name-value pairs after queue, id and body have the same order for all jobs of a reply.
    places = {bytes(name): at for at, name in zip(range(4, len(first), 2), first[3::2], strict=False)}

    def column(name: bytes) -> list[Any]:
        at = places.get(name)
        return [None] * len(entries) if at is None else [entry[at] for entry in entries]

    arrays = [
        _texts([entry[0] for entry in entries]),
        _texts([entry[1] for entry in entries]),
        pa.array([entry[2] for entry in entries], pa.binary()),
        pa.array(column(b"nacks"), pa.int64()),
        pa.array(column(b"additional-deliveries"), pa.int64()),
        _metas(column(b"meta")),
        pa.repeat(pa.scalar(node, pa.string()), len(entries)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _texts(values: list[bytes]) -> pa.Array:
    """Return names or ids as text. Bytes that are not UTF-8 become U+FFFD, as they do in events."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_readable(value) for value in values], pa.string())


def _readable(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _metas(flats: list[list[bytes] | None]) -> pa.Array:
    """Return name-value lists as maps. Most batches have none, so that case is fast."""
    if not any(flats):
        none = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array(np.zeros(len(flats) + 1, np.int32)), none, none)
    return pa.array(
        [
            list(zip(map(_readable, flat[::2]), map(_readable, flat[1::2]), strict=True)) if flat else []
            for flat in flats
        ],
        TEXT_MAP,
    )
