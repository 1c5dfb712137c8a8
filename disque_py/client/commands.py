"""Every command, once: typed arguments → Request.

The faces (AsyncDisque, Disque, the pipelines) derive their methods from these functions, so a
signature and its documentation stand here only. Pure. Spec: spec/disque/commands.md; times are
seconds where Disque takes seconds, and arguments ending in `_ms` are milliseconds.
What is not here goes by `execute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from disque_py.client import results
from disque_py.client.address import Address
from disque_py.client.protocol import Reply, Word, text, word
from disque_py.client.request import Lane, Repeat, Request, words
from disque_py.client.results import ClusterNode, Hello, Job, JobInfo, QueueStat

Body: TypeAlias = "bytes | bytearray | memoryview | str"
JobRef: TypeAlias = "Job | str | bytes"
Meta: TypeAlias = Mapping[str, str | bytes]
PauseState: TypeAlias = Literal["in", "out", "all", "none"]
JobState: TypeAlias = Literal["wait-repl", "active", "queued", "acked"]

# How long a node may take for the copies of a job. Disque makes every caller choose; ours may leave it out.
ADD_TIMEOUT_MS: Final = 5_000


def add_options(
    *,
    replicate: int | None = None,
    delay: int | None = None,
    retry: int | None = None,
    ttl: int | None = None,
    maxlen: int | None = None,
    async_: bool = False,
    priority: int | None = None,
    meta: Meta | None = None,
    key: str | bytes | None = None,
) -> tuple[bytes, ...]:
    """ADDJOB's words after the timeout; None leaves the choice to the node."""
    options: list[bytes] = []
    for name, value in (
        (b"REPLICATE", replicate),
        (b"DELAY", delay),
        (b"RETRY", retry),
        (b"TTL", ttl),
        (b"MAXLEN", maxlen),
        (b"PRIORITY", priority),
    ):
        if value is not None:
            options += (name, b"%d" % value)
    if async_:
        options.append(b"ASYNC")
    for name_of_pair, value_of_pair in (meta or {}).items():
        options += (b"META", word(name_of_pair), word(value_of_pair))
    if key is not None:
        options += (b"KEY", word(key))
    return tuple(options)


def add_job(
    queue: str | bytes,
    body: Body,
    *,
    timeout_ms: int = ADD_TIMEOUT_MS,
    replicate: int | None = None,
    delay: int | None = None,
    retry: int | None = None,
    ttl: int | None = None,
    maxlen: int | None = None,
    async_: bool = False,
    priority: int | None = None,
    meta: Meta | None = None,
    key: str | bytes | None = None,
    retry_unsafe: bool | None = None,
) -> Request[str]:
    """ADDJOB → the job's id. `delay`, `retry`, `ttl` in seconds; `timeout_ms` 0 waits for ever.

    priority   a lower one is served first; without one the creation time in Unix milliseconds
    meta       pairs that travel with the job
    key        one job per queue and key: if there is one already, the answer is its id. It may be sent again safely

    Raises NoReplError, PausedError, MaxLenError, OutOfMemoryError, UnreachableError; ConnectionLostError when the
    connection broke and nobody knows whether the job exists. With `retry_unsafe` it is sent again
    then, and the job may exist twice; None takes the client's setting.
    """
    options = add_options(
        replicate=replicate,
        delay=delay,
        retry=retry,
        ttl=ttl,
        maxlen=maxlen,
        async_=async_,
        priority=priority,
        meta=meta,
        key=key,
    )
    argv = (b"ADDJOB", word(queue), word(body), b"%d" % timeout_ms, *options)
    repeat = _allowed(retry_unsafe) if key is None else Repeat.SAFE
    return Request(argv, results.job_id, repeat, Lane.ADDS, timeout_ms)


def _allowed(retry_unsafe: bool | None) -> Repeat:
    if retry_unsafe is None:
        return Repeat.ASK
    return Repeat.SAFE if retry_unsafe else Repeat.NEVER


def get_jobs(
    *queues: str | bytes,
    count: int = 1,
    timeout_ms: int = 0,
    nohang: bool = False,
    withcounters: bool = False,
    withmeta: bool = False,
    withlease: bool = False,
    lease: int | None = None,
    token: str | bytes | None = None,
    node: Address | None = None,
) -> Request[list[Job]]:
    """GETJOB → up to `count` jobs; an empty list when none came in `timeout_ms` (0: for ever), or with `nohang`.

    lease   seconds for which these deliveries last, instead of each job's RETRY
    token   the same token on the same node is answered with the same jobs, as long as they are leased; `ack_token`,
            `nack_token` and `extend_token` are for all of them. With either, jobs of RETRY 0 are passed by
    node    ask this one, and no other: a token belongs to the node that answered (`Job.node`)

    A call that had to wait gets one job, whatever the count. A connection that breaks while
    waiting is replaced; jobs lost on the way come again after their RETRY.
    """
    if not queues:
        raise ValueError("GETJOB needs at least one queue")
    argv = [b"GETJOB"]
    wait_word: int | None = None
    if nohang:
        argv.append(b"NOHANG")
    else:
        argv += (b"TIMEOUT", b"%d" % timeout_ms)
        wait_word = 2
    if count != 1:
        argv += (b"COUNT", b"%d" % count)
    if withcounters:
        argv.append(b"WITHCOUNTERS")
    if withmeta:
        argv.append(b"WITHMETA")
    if withlease:
        argv.append(b"WITHLEASE")
    _add(argv, b"LEASE", lease)
    _add(argv, b"TOKEN", token)
    argv.append(b"FROM")
    argv += [word(queue) for queue in queues]
    is_pinned = node is not None
    if nohang:
        return Request(tuple(argv), results.jobs, node=node, is_consumers=True, is_pinned=is_pinned)
    return Request(
        tuple(argv),
        results.jobs,
        Repeat.SAFE,
        Lane.OWN,
        timeout_ms,
        wait_word,
        node=node,
        is_consumers=True,
        is_pinned=is_pinned,
    )


def by_node(jobs: Iterable[JobRef]) -> dict[Address | None, list[JobRef]]:
    """Jobs grouped by the node that delivered them: there their lease is known."""
    groups: dict[Address | None, list[JobRef]] = {}
    for job in jobs:
        groups.setdefault(job.node if isinstance(job, Job) else None, []).append(job)
    return groups


def _about_jobs(name: bytes, jobs: Iterable[JobRef], repeat: Repeat) -> Request[int]:
    node: Address | None = None
    argv = [name]
    for job in jobs:
        if isinstance(job, Job):
            node = job.node
            argv.append(job.id.encode())
        else:
            argv.append(word(job))
    return Request(tuple(argv), int, repeat, node=node, is_consumers=True)


def ack(*jobs: JobRef) -> Request[int]:
    """ACKJOB → how many the node knew. Jobs it does not know are acknowledged all the same."""
    return _about_jobs(b"ACKJOB", jobs, Repeat.SAFE)


def fast_ack(*jobs: JobRef) -> Request[int]:
    """FASTACK → how many the node knew: cheaper than `ack`, more second deliveries when nodes fail."""
    return _about_jobs(b"FASTACK", jobs, Repeat.SAFE)


def nack(*jobs: JobRef) -> Request[int]:
    """NACK → how many were put back. For jobs that could not be processed; ids the node does not know count 0.

    Not sent a second time by itself: it could hit the next delivery.
    """
    return _about_jobs(b"NACK", jobs, Repeat.ASK)


def ack_token(*tokens: str | bytes, node: Address | None = None) -> Request[int]:
    """ACKTOKEN → how many jobs were acknowledged: all that are still leased under these tokens.

    node   the one that answered the GETJOB; another one knows nothing of them, and answers 0
    """
    return _about_tokens(b"ACKTOKEN", tokens, node)


def nack_token(*tokens: str | bytes, node: Address | None = None) -> Request[int]:
    """NACKTOKEN → how many jobs were put back: all that are still leased under these tokens."""
    return _about_tokens(b"NACKTOKEN", tokens, node)


def extend_token(token: str | bytes, seconds: int, *, node: Address | None = None) -> Request[int]:
    """EXTENDTOKEN → how many leases last `seconds` from now: all that still run under this token."""
    return _about_tokens(b"EXTENDTOKEN", (token, b"%d" % seconds), node)


def _about_tokens(name: bytes, argv: Iterable[str | bytes], node: Address | None) -> Request[int]:
    is_pinned = node is not None
    return Request((name, *map(word, argv)), int, Repeat.SAFE, node=node, is_consumers=True, is_pinned=is_pinned)


def enqueue(*jobs: JobRef) -> Request[int]:
    """ENQUEUE → how many were put into their queue."""
    return _about_jobs(b"ENQUEUE", jobs, Repeat.ASK)


def dequeue(*jobs: JobRef) -> Request[int]:
    """DEQUEUE → how many were taken out of their queue, on the node asked."""
    return _about_jobs(b"DEQUEUE", jobs, Repeat.NEVER)


def delete(*jobs: JobRef) -> Request[int]:
    """DELJOB → how many were removed, on the node asked only."""
    return _about_jobs(b"DELJOB", jobs, Repeat.NEVER)


def working(job: JobRef, seconds: int | None = None) -> Request[int]:
    """WORKING → seconds for which its next delivery is put off: these, or the job's RETRY.

    Raises NoJobError, TooLateError.
    """
    ask = _about_jobs(b"WORKING", (job,), Repeat.SAFE)
    if seconds is None:
        return ask
    return Request((*ask.argv, b"%d" % seconds), int, Repeat.SAFE, node=ask.node, is_consumers=True)


def show(job: JobRef) -> Request[JobInfo | None]:
    """SHOW → the job as the node sees it, None if it does not know it."""
    ask = _about_jobs(b"SHOW", (job,), Repeat.SAFE)
    return Request(ask.argv, results.job_info, node=ask.node, is_consumers=True)


def qlen(queue: str | bytes) -> Request[int]:
    """QLEN → jobs queued on the node asked."""
    return Request((b"QLEN", word(queue)), int)


def qpeek(queue: str | bytes, count: int) -> Request[list[Job]]:
    """QPEEK → jobs of the queue, not fetched: the oldest first, or with a negative count the newest first."""
    return Request(words(b"QPEEK", queue, count), results.jobs)


def qstat(queue: str | bytes) -> Request[QueueStat | None]:
    """QSTAT → the queue's figures on the node asked, None if it has no such queue."""
    return Request((b"QSTAT", word(queue)), results.queue_stat)


def pause(queue: str | bytes, *states: PauseState, bcast: bool = False) -> Request[str]:
    """PAUSE → the state afterwards: none, in, out or all. Replaces the state; without one only reports it."""
    argv = [b"PAUSE", word(queue), *words(*states)]
    if bcast:
        argv.append(b"bcast")
    if not states:
        argv.append(b"state")
    return Request(tuple(argv), text, Repeat.NEVER if states and not bcast else Repeat.SAFE)


def qscan_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    minlen: int | None = None,
    maxlen: int | None = None,
    importrate: int | None = None,
) -> Request[tuple[int, list[str]]]:
    """QSCAN → the next cursor (0: done) and names of queues. Cursors mean something on their node only."""
    argv = [b"QSCAN", b"%d" % cursor]
    _add(argv, b"COUNT", count)
    if busyloop:
        argv.append(b"BUSYLOOP")
    _add(argv, b"MINLEN", minlen)
    _add(argv, b"MAXLEN", maxlen)
    _add(argv, b"IMPORTRATE", importrate)
    return Request(tuple(argv), _names_page, Repeat.NEVER if cursor else Repeat.SAFE)


def jscan_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
) -> Request[tuple[int, list[str]]]:
    """JSCAN → the next cursor (0: done) and ids of jobs."""
    argv = _jscan(cursor, count, busyloop, queue, states)
    return Request(argv, _names_page, Repeat.NEVER if cursor else Repeat.SAFE)


def jscan_info_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
) -> Request[tuple[int, list[JobInfo]]]:
    """JSCAN REPLY all → the next cursor (0: done) and jobs as SHOW shows them."""
    argv = (*_jscan(cursor, count, busyloop, queue, states), b"REPLY", b"all")
    return Request(argv, _infos_page, Repeat.NEVER if cursor else Repeat.SAFE)


def _jscan(
    cursor: int, count: int | None, busyloop: bool, queue: str | bytes | None, states: Iterable[JobState]
) -> tuple[bytes, ...]:
    argv = [b"JSCAN", b"%d" % cursor]
    _add(argv, b"COUNT", count)
    if busyloop:
        argv.append(b"BUSYLOOP")
    _add(argv, b"QUEUE", queue)
    for state in states:
        _add(argv, b"STATE", state)
    return tuple(argv)


def _add(argv: list[bytes], name: bytes, value: Word | None) -> None:
    if value is not None:
        argv += (name, word(value))


def _names_page(reply: Reply) -> tuple[int, list[str]]:
    return int(reply[0]), [text(name) for name in reply[1]]


def _infos_page(reply: Reply) -> tuple[int, list[JobInfo]]:
    infos = (results.job_info(entry) for entry in reply[1])
    return int(reply[0]), [entry for entry in infos if entry is not None]


def hello() -> Request[Hello]:
    """HELLO → who answers and whom it knows."""
    return Request((b"HELLO",), results.hello)


def ping() -> Request[str]:
    """PING → PONG."""
    return Request((b"PING",), text)


def time() -> Request[tuple[int, int]]:
    """TIME → the node's Unix seconds, and microseconds of that second."""
    return Request((b"TIME",), lambda reply: (int(reply[0]), int(reply[1])))


def info(section: str | None = None) -> Request[dict[str, str | int | float]]:
    """INFO → its fields; numbers as numbers."""
    return Request((b"INFO",) if section is None else words(b"INFO", section), results.info)


def config_get(pattern: str = "*") -> Request[dict[str, str]]:
    """CONFIG GET → names and values that match the pattern."""
    return Request(words(b"CONFIG", b"GET", pattern), results.pairs)


def config_set(name: str, value: Word) -> Request[str]:
    """CONFIG SET → OK, on the node asked."""
    return Request(words(b"CONFIG", b"SET", name, value), text, Repeat.NEVER)


def cluster_info() -> Request[dict[str, str | int | float]]:
    """CLUSTER INFO → its fields."""
    return Request((b"CLUSTER", b"INFO"), results.info)


def cluster_nodes() -> Request[list[ClusterNode]]:
    """CLUSTER NODES → every node the asked one knows."""
    return Request((b"CLUSTER", b"NODES"), results.cluster_nodes)


def cluster_myid() -> Request[str]:
    """CLUSTER MYID → the node's id."""
    return Request((b"CLUSTER", b"MYID"), text)


def cluster_meet(host: str, port: int, bus_port: int | None = None) -> Request[str]:
    """CLUSTER MEET → OK; the nodes shake hands afterwards."""
    argv = words(b"CLUSTER", b"MEET", host, port)
    return Request(argv if bus_port is None else (*argv, b"%d" % bus_port), text, Repeat.NEVER)


def cluster_forget(node_id: str) -> Request[str]:
    """CLUSTER FORGET → OK, on the node asked only."""
    return Request(words(b"CLUSTER", b"FORGET", node_id), text, Repeat.NEVER)


def cluster_reset(*, hard: bool = False) -> Request[str]:
    """CLUSTER RESET → OK: the node forgets its nodes, jobs and queues; `hard` also its own id."""
    return Request((b"CLUSTER", b"RESET", b"HARD" if hard else b"SOFT"), text, Repeat.NEVER)


def cluster_leaving(leaving: bool | None = None) -> Request[bool]:
    """CLUSTER LEAVING → whether the node asked is leaving; True or False sets it."""
    if leaving is None:
        return Request((b"CLUSTER", b"LEAVING"), lambda reply: bool(reply == b"yes"))
    answer = leaving
    return Request((b"CLUSTER", b"LEAVING", b"yes" if answer else b"no"), lambda _: answer, Repeat.NEVER)


def cluster_saveconfig() -> Request[str]:
    """CLUSTER SAVECONFIG → OK, the nodes file is on disk."""
    return Request((b"CLUSTER", b"SAVECONFIG"), text, Repeat.NEVER)


def execute(
    *argv: Word, repeat: bool = False, wait_ms: int | None = None, node: Address | None = None
) -> Request[Reply]:
    """Any command, any words → the reply as it came: bytes, int, None, lists.

    repeat    it may be sent twice (default: only what was never sent is sent again)
    wait_ms   it may take that long by its own word (0: for ever); it gets a connection of its own
    node      ask this one, and no other
    """
    lane = Lane.PLAIN if wait_ms is None else Lane.OWN
    again = Repeat.SAFE if repeat else Repeat.NEVER
    return Request(words(*argv), _raw, again, lane, wait_ms, node=node, is_pinned=node is not None)


def _raw(reply: Reply) -> Reply:
    return reply
