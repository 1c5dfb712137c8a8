"""The answers of commands as typed objects, and their parsers.

Spec R5 has the formats. Later versions may add pairs to name-value replies, and words to GETJOB entries. So every
parser reads by name, and keeps unknown fields in `more`. Queue names and ids are text. Bodies stay bytes, because only
the program knows their encoding. `Job.value` decodes a body on demand, so that an error is raised in the handler. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from disque_py.client.address import Address
from disque_py.client.protocol import Reply, text, word
from disque_py.client.spans import whole
from disque_py.event_format import JobStatus

# The name of an encoding, or a function that makes a value of a body (`json.loads`).
Decode: TypeAlias = "str | Callable[[bytes], Any] | None"

ID_LENGTH: Final = 40
# The node's limits of a progress (spec RW4).
PERCENT_MAX: Final = 100
NOTE_BYTES_MAX: Final = 256


def checked_percent(percent: int, note: str) -> int:
    """Return the percentage of a progress as an int. Raises ValueError if a node would refuse it or its note."""
    percent = whole("percent", percent)
    if not 0 <= percent <= PERCENT_MAX:
        raise ValueError(f"percent must be a number from 0 to {PERCENT_MAX}, not {percent}")
    if len(word(note)) > NOTE_BYTES_MAX:
        raise ValueError(f"note must have at most {NOTE_BYTES_MAX} bytes")
    return percent


@dataclass(slots=True)
class Job:
    """A job as GETJOB and QPEEK return it.

    id                             its id, 40 characters
    queue                          the name of its queue
    body                           its content, in bytes; `value` and `text` decode it
    nacks, additional_deliveries   its counters; None unless `withcounters=True`
    meta                           the pairs that it was added with; None unless `withmeta=True`
    lease_ms, attempt              milliseconds of the lease, and number of this delivery; None unless `withlease=True`
    fence                          the fence of its claim (docs/exclusive.md); None unless `withlease=True`, 0 without a
                                   claim
    more                           further name-value pairs of the entry
    is_canceled                    set by a worker when the job is canceled. A handler in a thread should check it
    node                           the node that delivered it: WORKING and NACK only work where the job is known
    decode                         the client's setting `decode`, which `value` uses
    tell                           set by a worker: the function to which `progress` passes its arguments
    """

    queue: str
    id: str
    body: bytes
    nacks: int | None = None
    additional_deliveries: int | None = None
    meta: dict[str, str] | None = None
    lease_ms: int | None = None
    attempt: int | None = None
    fence: int | None = None
    more: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    is_canceled: bool = field(default=False, repr=False, compare=False)
    node: Address | None = field(default=None, repr=False, compare=False)
    decode: Decode = field(default=None, repr=False, compare=False)
    tell: Callable[[Job, int, str], None] | None = field(default=None, repr=False, compare=False)

    def progress(self, percent: int, note: str = "") -> None:
        """Report how far a worker's handler is with this job: 0 to 100, and a note of at most 256 bytes.

        It returns immediately, also in a thread. The worker sends the newest report. Raises RuntimeError for a job that
        no worker handles. A percentage that is not whole or out of range raises ValueError, and so does a note that is
        too long or no UTF-8.
        """
        if self.tell is None:
            raise RuntimeError("no worker handles this job: use the client's progress")
        self.tell(self, checked_percent(percent, note), note)

    @property
    def delivery_count(self) -> int | None:
        """The number of deliveries, including this one, as far as the counters show; None without counters.

        It comes from `attempt` (`withlease=True`), or from `nacks` and `additional_deliveries` (`withcounters=True`).
        """
        if self.attempt is not None:
            return self.attempt
        if self.nacks is None and self.additional_deliveries is None:
            return None
        return 1 + (self.nacks or 0) + (self.additional_deliveries or 0)

    @property
    def value(self) -> Any:
        """The body, decoded by the client's `decode`; the bytes without one. Raises the errors of `decode`."""
        if self.decode is None:
            return self.body
        return self.body.decode(self.decode) if isinstance(self.decode, str) else self.decode(self.body)

    @property
    def text(self) -> str:
        """The body as UTF-8 text. Raises UnicodeDecodeError."""
        return self.body.decode()


@dataclass(slots=True)
class NodeInfo:
    """A node in the answer to HELLO.

    id           its id, 40 characters
    host, port   the address for clients that it announces
    priority     1 for a healthy node, 5 unlinked, 10 suspected, 100 failed or leaving; lower is better
    more         further fields
    """

    id: str
    host: str
    port: int
    priority: int
    more: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Hello:
    """The answer to HELLO.

    version   version of the format
    id        id of the node that answers
    nodes     the nodes that it knows, itself included
    """

    version: int
    id: str
    nodes: list[NodeInfo]


@dataclass(slots=True)
class ClusterNode:
    """A line of CLUSTER NODES: a node as another one knows it.

    id                 its id, 40 characters
    host, port         its address for clients
    flags              its flags as the node prints them, such as `myself`, `fail` or `leaving`
    ping_sent_ms       Unix milliseconds of the last PING to it that has no answer; 0 if there is none
    pong_received_ms   Unix milliseconds of its last PONG
    linked             whether the link to it is up
    """

    id: str
    host: str
    port: int
    flags: frozenset[str]
    ping_sent_ms: int
    pong_received_ms: int
    linked: bool


@dataclass(slots=True)
class QueueStat:
    """The answer to QSTAT: the figures of a queue, on one node or on all.

    name            the name of the queue
    len             number of pending jobs
    age             seconds since the queue was created
    idle            seconds since a job was last put in or taken out
    blocked         number of clients that wait for its jobs
    import_from     ids of the nodes that handed jobs over in the last seconds
    import_rate     jobs per second that other nodes hand over
    jobs_in         number of jobs that were put into the queue
    jobs_out        number of jobs that clients or other nodes fetched
    pause           none, in, out or all
    oldest_ms       milliseconds since the oldest pending job became ready; None if there is none
    invisible       number of jobs that are in no queue and with no worker, for example because of a delay
    running         number of jobs that a worker has
    errored         number of jobs without attempts left
    rate_used       deliveries that count towards the setting `rate` now; 0 without that setting
    nodes           number of nodes whose figures are included
    nodes_missing   with `cluster`: ids of known nodes that did not answer
    more            fields that this library does not know
    """

    name: str
    len: int
    age: int
    idle: int
    blocked: int
    import_from: list[str]
    import_rate: int
    jobs_in: int
    jobs_out: int
    pause: str
    oldest_ms: int | None = None
    invisible: int = 0
    running: int = 0
    errored: int = 0
    rate_used: int = 0
    nodes: int = 1
    nodes_missing: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class QueueSettings:
    """The answer to QUEUE GET: the settings of a queue, the same on all nodes.

    lease, delay, ttl   RETRY, DELAY and TTL of jobs that name none; None: as in Disque
    replicate           REPLICATE of jobs that name none: a number, `quorum`; None: as in Disque
    attempts            deliveries of jobs that name no limit; 0: any number
    backoff             back-off of jobs that name none, "": none
    dead_letter         queue for jobs without attempts left, "": none
    retention           how long errored jobs stay
    maxlen, maxsize     the most pending jobs in the cluster, the most bytes of a body; 0: any number
    require_meta        names that the META of a job must have
    index               names of META that are indexed from the start
    exclusive_by        the name of META: at most one job per value runs at a time; "": the queue is simple
    assign              "local", or "quorum": at most one worker per job
    rate, rate_by       deliveries per time, such as `100/10` (seconds), or `none`; and the name of META to whose values
                        the rate applies, "": to the whole queue
    max_running, max_running_by   the most leases at a time, 0: any number; and the name of META, likewise
    result_retention    how long results of jobs stay; None from a node without results
    type                `simple` or `exclusive`
    paused              the state that PAUSE set with BCAST: none, in, out or all
    version             number that grows with each change
    behind              known nodes that have not confirmed the newest version
    more                fields that this library does not know, as text
    """

    lease: timedelta | None
    delay: timedelta | None
    ttl: timedelta | None
    replicate: int | str | None
    attempts: int
    backoff: str
    dead_letter: str
    retention: timedelta
    maxlen: int
    maxsize: int
    require_meta: list[str]
    index: list[str]
    exclusive_by: str
    assign: str
    type: str
    paused: str
    version: int
    behind: int
    rate: str = "none"
    rate_by: str = ""
    max_running: int = 0
    max_running_by: str = ""
    result_retention: timedelta | None = None
    more: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class LockGrant:
    """The answer to LOCK ACQUIRE: the lock is this owner's.

    fence           a number that only grows for a lock; give it to the storage that the lock protects
    attempt         1 for the first owner since the work was done last, then 2, …
    attempts_left   attempts after this one; None: there is no limit
    """

    fence: int
    attempt: int
    attempts_left: int | None


@dataclass(slots=True)
class LockInfo:
    """The answer to LOCK SHOW.

    owner          the owner that has the lock; None: it is free
    fence          of the last owner
    attempt        number of attempts so far
    ms_left        milliseconds that the lease still lasts, 0 if the lock is free
    done_ms_left   milliseconds for which the end of the work is still remembered, 0 if it is not done
    more           fields that this library does not know
    """

    owner: str | None
    fence: int
    attempt: int
    ms_left: int
    done_ms_left: int
    more: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Voters:
    """The answer to CLUSTER VOTERS: the nodes that grant claims, as the node asked knows them.

    epoch             number of the list; 0: there is none
    lease_max         seconds of the longest lease
    voters            ids of the voters
    state             `none`, `ready`, `changing` or `conflict`
    mute              ids of voters that must not vote now
    reachable_count   voters that answered the node
    recovered         ids of voters that lost their memory and grant claims again. They take no part in the next change
                      of the list, and are full voters after it
    more              fields that this library does not know
    """

    epoch: int
    lease_max: int
    voters: list[str]
    state: str
    mute: list[str]
    reachable_count: int
    recovered: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class JobInfo:
    """The answer to SHOW: a job as one node sees it.

    id                        its id, 40 characters
    state                     wait-repl, active, queued or acked
    ttl, delay, retry         seconds; ttl is the remaining time
    ctime                     the creation: milliseconds times 1,000,000, plus a sequence
    nodes_delivered           ids of the nodes that may have a copy
    nodes_confirmed           ids of those that have confirmed their copy, or an acknowledgement
    next_requeue_within       milliseconds until it is queued again; None: never
    next_awake_within         milliseconds until the node checks it
    nacks                     how often it was queued again because of a NACK
    additional_deliveries     how often it was queued again for another reason
    queue, body               None for an ack of a job that the node never had
    attempt                   the number of deliveries
    leased                    whether this node delivered it, and its lease is not over
    priority, meta            those that it was added with; None from an older node
    status                    invisible, pending, running, completed, canceled or errored; None from an older node
    attempts, attempts_left   the limit of deliveries (0: any number), and how many are left of it (None: any number)
    error                     the reason of the last NACK, or of the end of the last attempt; None: none
    backoff                   the back-off that it was added with, "": none
    delay_ms, retry_ms        DELAY and RETRY in milliseconds
    ttl_ms                    the remaining time in milliseconds
    progress, progress_text   how far its worker is, 0 to 100, and a note; None if the worker reported nothing
    result                    the bytes that it was acknowledged with, on a node that has them; None: none
    batch, topic              the batch that it belongs to, the topic that it was added to; None: none
    key_window_ms             milliseconds for which its key is used, 0: until the job is over; None: it has no window
    more                      fields that this library does not know
    """

    id: str
    queue: str | None
    state: str
    repl: int
    ttl: int
    ctime: int
    delay: int
    retry: int
    nacks: int
    additional_deliveries: int
    nodes_delivered: list[str]
    nodes_confirmed: list[str]
    next_requeue_within: int | None
    next_awake_within: int | None
    body: bytes | None
    attempt: int = 0
    leased: bool = False
    priority: int | None = None
    meta: dict[str, str] | None = None
    status: JobStatus | None = None
    attempts: int = 0
    attempts_left: int | None = None
    error: str | None = None
    backoff: str = ""
    delay_ms: int | None = None
    retry_ms: int | None = None
    ttl_ms: int | None = None
    progress: int | None = None
    progress_text: str | None = None
    result: bytes | None = None
    batch: str | None = None
    topic: str | None = None
    key_window_ms: int | None = None
    more: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Task:
    """Work on the jobs of a queue, on all nodes: QPURGE, QMOVE, QREDRIVE or QREBALANCE.

    id              its id, which the node that started it knows for one hour after its end
    command         `qpurge`, `qmove`, `qredrive` or `qrebalance`
    queue           the queue whose jobs it changes
    state           `running`, `done`, `canceled` or `aborted`; None in the answer of a command that waited for the end
    jobs            number of jobs that it has changed so far
    failed          number of jobs that it left out, because a worker took them or they were being handed over
    nodes           number of nodes that take part, or have finished
    nodes_missing   ids of the nodes that did not: repeat the command when they are back
    started         its start in Unix milliseconds; None in the answer of a command that waited
    more            further name-value pairs
    node            the node that started it
    """

    id: str
    command: str
    queue: str
    state: str | None
    jobs: int = 0
    failed: int = 0
    nodes: int = 0
    nodes_missing: list[str] = field(default_factory=list)
    started: int | None = None
    more: dict[str, Any] = field(default_factory=dict, repr=False)
    node: Address | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job, as `wait` saw it.

    status   "completed", "canceled", "errored" or "expired"; "gone": no known node has the job any more. It was
             completed or canceled and is forgotten, or its TTL was over, or the id was never known
    job      the job as it was shown last; None if it was not shown
    result   the bytes that it was acknowledged with; None without any
    reason   the error that the node reported; None without one
    """

    status: JobStatus | Literal["gone", "expired"]
    job: JobInfo | None
    result: bytes | None = None
    reason: str | None = None

    @property
    def error(self) -> str | None:
        """The last error that a worker gave as its reason; None without one."""
        return self.reason if self.job is None else self.job.error


MILLISECOND: Final = timedelta(milliseconds=1)
SPAN_MS_MAX: Final = timedelta.max // MILLISECOND
# How long errored jobs stay where nothing else is set.
RETENTION_DEFAULT: Final = timedelta(days=7)


def job_id(reply: Reply) -> str:
    """Return an id, the answer to ADDJOB."""
    return str(reply, "ascii")


def is_at_most_once(text_id: str) -> bool:
    """Return whether an id belongs to a job of RETRY 0: its TTL field is even (spec F4)."""
    return text_id[-1:] in "02468aceACE"


def jobs(reply: Reply) -> list[Job]:
    """Return the jobs of GETJOB's or QPEEK's array; none if there is no array."""
    return [_job(entry) for entry in reply] if reply else []


def depths(reply: Reply) -> dict[bytes | None, int]:
    """Return QDEPTH's flat array of values and numbers."""
    return {value: int(number) for value, number in zip(reply[::2], reply[1::2], strict=True)}


def first_job(reply: Reply) -> Job | None:
    """Return the first job of GETJOB's array; None without any."""
    return _job(reply[0]) if reply else None


def _job(entry: Reply) -> Job:
    job = Job(text(entry[0]), str(entry[1], "ascii"), entry[2])
    for at in range(3, len(entry) - 1, 2):
        name, value = entry[at], entry[at + 1]
        if name == b"nacks":
            job.nacks = value
        elif name == b"additional-deliveries":
            job.additional_deliveries = value
        elif name == b"lease-ms":
            job.lease_ms = value
        elif name == b"attempt":
            job.attempt = value
        elif name == b"fence":
            job.fence = value
        elif name == b"meta":
            job.meta = _pairs(value) if value else {}
        else:
            job.more[text(name)] = _readable(value)
    return job


def hello(reply: Reply) -> Hello:
    """Return HELLO's answer: a format, the node's own id, then one array of four strings per node."""
    nodes = [
        NodeInfo(text(entry[0]), text(entry[1]), int(entry[2]), int(entry[3]), _pairs(entry[4:])) for entry in reply[2:]
    ]
    return Hello(int(reply[0]), text(reply[1]), nodes)


def cluster_nodes(reply: Reply) -> list[ClusterNode]:
    """Return the lines of CLUSTER NODES: six fields each. Later fields are ignored."""
    nodes = []
    for line in text(reply).splitlines():
        if not line.strip():
            continue
        node_id, address, flags, ping_ms, pong_ms, link = line.split(" ")[:6]
        host, _, port = address.rpartition(":")
        words = frozenset(flag for flag in flags.split(",") if flag not in ("", "-", "noflags"))
        nodes.append(ClusterNode(node_id, host, int(port), words, int(ping_ms), int(pong_ms), link == "connected"))
    return nodes


def queue_stat(reply: Reply) -> QueueStat | None:
    """Return QSTAT's answer; None for a queue that the node does not have."""
    if reply is None:
        return None
    # Programs ask for thousands of queues at a time, so only values that are not numbers are converted.
    pairs: dict[bytes, Any] = dict(zip(reply[::2], reply[1::2], strict=True))
    take = pairs.pop
    found = QueueStat(
        name=text(take(b"name")),
        len=take(b"len"),
        age=take(b"age", 0),
        idle=take(b"idle", 0),
        blocked=take(b"blocked", 0),
        import_from=_readable(take(b"import-from", [])),
        import_rate=take(b"import-rate", 0),
        jobs_in=take(b"jobs-in", 0),
        jobs_out=take(b"jobs-out", 0),
        pause=text(take(b"pause", b"none")),
        oldest_ms=take(b"oldest-ms", None),
        invisible=take(b"invisible", 0),
        running=take(b"running", 0),
        errored=take(b"errored", 0),
        rate_used=take(b"rate-used", 0),
        nodes=take(b"nodes", 1),
        nodes_missing=_readable(take(b"nodes-missing", [])),
    )
    if pairs:
        found.more = {text(name): _readable(value) for name, value in pairs.items()}
    return found


def begun_task(reply: Reply, command: str, queue: str) -> Task:
    """Return the task whose id is the answer to a command with ASYNC."""
    return Task(text(reply), command, queue, "running")


def ended_task(reply: Reply, command: str, queue: str) -> Task:
    """Return the finished task in the answer of a command that waited for it."""
    return _task(_pairs(reply) | {"command": command, "queue": queue})


def task(reply: Reply) -> Task | None:
    """Return QTASK SHOW's answer; None for a task that the node does not know."""
    return None if reply is None else _task(_pairs(reply))


def tasks(reply: Reply) -> list[Task]:
    """Return QTASK LIST's answer."""
    return [_task(_pairs(entry)) for entry in reply]


def _task(pairs: dict[str, Any]) -> Task:
    return Task(
        id=pairs.pop("task"),
        command=pairs.pop("command", ""),
        queue=pairs.pop("queue", ""),
        state=pairs.pop("state", None),
        jobs=pairs.pop("jobs", 0),
        failed=pairs.pop("failed", 0),
        nodes=pairs.pop("nodes", 0),
        nodes_missing=pairs.pop("nodes-missing", []),
        started=pairs.pop("started", None),
        more=pairs,
    )


def _exclusive_by(name: str, kind: str) -> str:
    return name if kind == "exclusive" else ""


def queue_settings(reply: Reply) -> QueueSettings | None:
    """Return QUEUE GET's answer; None for a queue that never had settings."""
    if reply is None:
        return None
    pairs = _pairs(reply)
    replicate = pairs.pop("replicate", "")
    return QueueSettings(
        lease=_span(pairs.pop("lease", "")),
        delay=_span(pairs.pop("delay", "")),
        ttl=_span(pairs.pop("ttl", "")),
        replicate=int(replicate) if replicate.isdigit() else replicate or None,
        attempts=int(pairs.pop("attempts", 0)),
        backoff=pairs.pop("backoff", ""),
        dead_letter=pairs.pop("dead-letter", ""),
        retention=_span(pairs.pop("retention", "")) or RETENTION_DEFAULT,
        maxlen=int(pairs.pop("maxlen", 0)),
        maxsize=int(pairs.pop("maxsize", 0)),
        require_meta=[name for name in pairs.pop("require-meta", "").split(",") if name],
        index=[name for name in pairs.pop("index", "").split(",") if name],
        exclusive_by=_exclusive_by(pairs.pop("exclusive-by", ""), pairs.get("type", "")),
        assign=pairs.pop("assign", "local"),
        rate=pairs.pop("rate", "none"),
        rate_by=pairs.pop("rate-by", ""),
        max_running=int(pairs.pop("max-running", 0)),
        max_running_by=pairs.pop("max-running-by", ""),
        type=pairs.pop("type", "simple"),
        paused=pairs.pop("paused", "none"),
        version=pairs.pop("version", 0),
        behind=pairs.pop("behind", 0),
        result_retention=_span(pairs.pop("result-retention", "")),
        more=pairs,
    )


def lock_grant(reply: Reply) -> LockGrant | None:
    """Return LOCK ACQUIRE's answer; None if another owner has the lock."""
    if reply is None:
        return None
    fence, attempt, left = reply[:3]
    return LockGrant(fence, attempt, None if left < 0 else left)


def lock_info(reply: Reply) -> LockInfo | None:
    """Return LOCK SHOW's answer; None for a lock that is free and of which nothing is remembered."""
    if reply is None:
        return None
    pairs = _pairs(reply)
    return LockInfo(
        owner=pairs.pop("owner", None),
        fence=pairs.pop("fence", 0),
        attempt=pairs.pop("attempt", 0),
        ms_left=pairs.pop("ms-left", 0),
        done_ms_left=pairs.pop("done-ms-left", 0),
        more=pairs,
    )


def voters(reply: Reply) -> Voters:
    """Return CLUSTER VOTERS' answer."""
    pairs = _pairs(reply)
    return Voters(
        epoch=pairs.pop("epoch"),
        lease_max=pairs.pop("claim-lease-max", 0),
        voters=pairs.pop("voters", []),
        state=pairs.pop("state"),
        mute=pairs.pop("mute", []),
        reachable_count=pairs.pop("reachable", 0),
        recovered=pairs.pop("recovered", []),
        more=pairs,
    )


def _span(shown: str) -> timedelta | None:
    """Return a time as QUEUE GET shows it: seconds, or a number with ms. Spans too long for a timedelta are cut."""
    if not shown:
        return None
    number = int(shown.removesuffix("ms"))
    milliseconds = number if shown.endswith("ms") else 1000 * number
    return min(milliseconds, SPAN_MS_MAX) * MILLISECOND


def job_info(reply: Reply) -> JobInfo | None:
    """Return SHOW's answer; None for a job that the node does not know."""
    if reply is None:
        return None
    raw = dict(zip(reply[::2], reply[1::2], strict=True))
    body, result = raw.pop(b"body", None), raw.pop(b"result", None)
    pairs = {text(name): _readable(value) for name, value in raw.items()}
    return JobInfo(
        id=pairs.pop("id"),
        queue=pairs.pop("queue", None),
        state=pairs.pop("state"),
        repl=pairs.pop("repl", 0),
        ttl=pairs.pop("ttl", 0),
        ctime=pairs.pop("ctime", 0),
        delay=pairs.pop("delay", 0),
        retry=pairs.pop("retry", 0),
        nacks=pairs.pop("nacks", 0),
        additional_deliveries=pairs.pop("additional-deliveries", 0),
        nodes_delivered=pairs.pop("nodes-delivered", []),
        nodes_confirmed=pairs.pop("nodes-confirmed", []),
        next_requeue_within=pairs.pop("next-requeue-within", None),
        next_awake_within=pairs.pop("next-awake-within", None),
        body=body,
        attempt=pairs.pop("attempt", 0),
        leased=bool(pairs.pop("leased", 0)),
        priority=pairs.pop("priority", None),
        meta=None if (meta := pairs.pop("meta", None)) is None else dict(zip(meta[::2], meta[1::2], strict=True)),
        status=pairs.pop("status", None),
        attempts=pairs.pop("attempts", 0),
        attempts_left=pairs.pop("attempts-left", None),
        error=pairs.pop("error", None),
        backoff=pairs.pop("backoff", None) or "",
        delay_ms=pairs.pop("delay-ms", None),
        retry_ms=pairs.pop("retry-ms", None),
        ttl_ms=pairs.pop("ttl-ms", None),
        progress=pairs.pop("progress", None),
        progress_text=pairs.pop("progress-text", None),
        result=result,
        batch=pairs.pop("batch", None),
        topic=pairs.pop("topic", None),
        key_window_ms=pairs.pop("key-window-ms", None),
        more=pairs,
    )


def info(reply: Reply) -> dict[str, str | int | float]:
    """Return the `name:value` lines of INFO or CLUSTER INFO.

    Values that are numbers become numbers, except for TEXT_FIELDS.
    """
    fields: dict[str, str | int | float] = {}
    for line in text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[name] = value if name.endswith(TEXT_FIELDS) else _number(value)
    return fields


# Fields that are text even if they look like a number: hexadecimal ids, and names that an operator chooses.
TEXT_FIELDS: Final = ("run_id", "build_id", "sha1", "_version", "_zone", "_datacenter")


def _number(value: str) -> str | int | float:
    digits = value.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 19 and (digits[0] != "0" or digits == "0"):
        return int(value)
    whole, dot, fraction = digits.partition(".")
    if dot and whole.isdigit() and fraction.isdigit() and value.isascii():
        return float(value)
    return value


def pairs(reply: Reply) -> dict[str, str]:
    """Return the names and values of CONFIG GET, whose reply is flat."""
    return {text(name): text(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _pairs(flat: Reply) -> dict[str, Any]:
    return {text(name): _readable(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _readable(value: Reply) -> Any:
    if isinstance(value, bytes):
        return text(value)
    return [_readable(item) for item in value] if isinstance(value, list) else value
