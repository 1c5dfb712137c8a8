"""The table of operations: everything that an interface can do.

A row has the operation's name, its HTTP method and path, and the role that it needs. It also has the arguments, the
broker's commands behind it, and its errors besides the common ones. HTTP routes, OpenAPI, the reference, permission
checks and the gRPC mapping are derived from the table. actions/ has a function for each row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from disque_py.event_format import JOB_STATUSES
from disque_py.gateway.fields import MS_MAX, Argument, Choice, Flag, Kind, Octets, Pairs, Text, Texts, Whole

# The thing that a permission is about. `queue`, `name`: the argument of this name. `job`: the queue of the job. `any`: the role
# on some queue is enough, and the answer has only what the caller may see. `all`: the role on every queue.
Scope = Literal["queue", "name", "job", "any", "all"]

# Statuses of jobs that nodes keep, and those in which bulk work may change jobs.
STATUSES: Final = tuple(name for name in JOB_STATUSES if name not in ("completed", "canceled"))
CHANGED: Final = tuple(name for name in STATUSES if name != "running")
# Errors that any operation can have.
COMMON_ERRORS: Final = (
    "ERR",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "HOST",
    "LIMIT",
    "TOOBIG",
    "FAULT",
    "UNSUPPORTED",
    "UNKNOWN",
    "NONODE",
    "ISSUER",
    "LOADING",
    "LEAVING",
    "ENDING",
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One row.

    name        its name, in snake case
    verb, path  of HTTP, behind the base path
    role        the role that it needs
    scope       the names on which the caller must have the role
    summary     its effect, as a sentence
    command     the broker's command, or commands
    arguments   in order
    errors      error codes besides the common ones
    status      HTTP status of a success
    changes     whether it changes something. Then a read-only gateway refuses it, and it is audited
    waits       whether it may wait for long, so that the gateway must notice a caller that hangs up
    form        form of the answer: `json`, `lines` (NDJSON), `events` (SSE)
    has_body    whether HTTP has a JSON body
    kinds       name of an argument -> its kind
    required    names of arguments that must be given
    """

    name: str
    verb: str
    path: str
    role: str
    scope: Scope
    summary: str
    command: str
    arguments: tuple[Argument, ...] = ()
    errors: tuple[str, ...] = ()
    status: int = 200
    changes: bool = False
    waits: bool = False
    form: Literal["json", "lines", "events"] = "json"
    has_body: bool = field(init=False, default=False)
    kinds: dict[str, Kind] = field(init=False, compare=False, default_factory=dict)
    required: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_body", any(argument.place == "body" for argument in self.arguments))
        object.__setattr__(self, "kinds", {argument.name: argument.kind for argument in self.arguments})
        object.__setattr__(self, "required", tuple(each.name for each in self.arguments if each.required))

    def all_errors(self) -> tuple[str, ...]:
        """Return all error codes of the operation."""
        return (*COMMON_ERRORS, *self.errors)


def _path(name: str, help_: str, kind: Kind) -> Argument:
    return Argument(name, kind, help_, "path", required=True)


def _query(name: str, kind: Kind, help_: str) -> Argument:
    return Argument(name, kind, help_, "query")


MS: Final = Whole(0, MS_MAX)
SPAN: Final = Whole(1, MS_MAX)
# Any text is a name. A backslash in a name has no special meaning.
NAME: Final = Text(1, 1024, is_name=True)
QUEUE: Final = _path("queue", "name of the queue, percent-encoded", NAME)
JOB: Final = _path("id", "id of the job", Text(1, 64))
SCHEDULE: Final = _path("name", "name of the schedule, percent-encoded", NAME)
TASK: Final = _path("id", "id of the operation", Text(1, 256))
WHERE: Final = Argument("where", Pairs(8), "only jobs whose metadata have all these pairs")
WHERE_QUERY: Final = _query("where", Pairs(8), "`name:value`: only jobs with this metadata; may be repeated")
ATTEMPT: Final = Argument(
    "attempt", Whole(1, 2**31), "number of the delivery; if a later one is known, the answer is STALE"
)
FENCE: Final = Argument(
    "fence", Whole(1, 2**63 - 1), "fence of the claim; if a later one is known, the answer is FENCED"
)
LIMIT: Final = Argument("limit", SPAN, "the most jobs")
RATE: Final = Argument("rate", Whole(1, 1_000_000), "the most jobs per second")
SEARCH: Final = (
    Argument("status", Choice(STATUSES), "jobs of this status; `pending` by default"),
    WHERE,
    Argument("reason", Text(1, 1024), "only jobs whose last failure has this text in its reason"),
    Argument("older_ms", MS, "only jobs that were added at least this many milliseconds ago"),
)
CHANGED_SEARCH: Final = (Argument("status", Choice(CHANGED), "jobs of this status; `pending` by default"), *SEARCH[1:])
REQUEST_ID: Final = "a repeated request with the same id takes effect once"

ENQUEUE_OPTIONS: Final = (
    Argument("timeout_ms", MS, "milliseconds for making copies; 5000 by default"),
    Argument("replicate", Whole(1, 65535), "number of nodes that have a copy before the response"),
    Argument("delay_ms", MS, "milliseconds until the job is pending"),
    Argument("retry_ms", MS, "milliseconds of a lease; 0: deliver at most once"),
    Argument("ttl_ms", SPAN, "milliseconds after which the job is deleted, even if it is not done"),
    Argument("maxlen", Whole(1, 2**62), "refuse the job if the queue has this many jobs"),
    Argument("async", Flag(), "respond before the copies are made"),
    Argument("priority", Whole(-(2**63), 2**63 - 1), "lower numbers are served first"),
    Argument("meta", Pairs(), "pairs that travel with the job; in a query `name:value`, repeated"),
    Argument("key", Text(1, 1024), "add only one job per queue and key"),
    Argument("attempts", Whole(0, 10**9), "deliveries before the job is errored; 0: no limit"),
    Argument("backoff", Text(0, 200), "delay after a failure, such as `exponential:1000:60000:20`"),
    Argument("request_id", Text(1, 256), f"{REQUEST_ID}; it is the job's key"),
    Argument("window_ms", MS, "milliseconds in which the key is used, rounded up to seconds; 0: until the job is over"),
    Argument("replace", Flag(), "replace the key's job if that still waits for its delay"),
    Argument("batch", NAME, "the batch that the job belongs to"),
    Argument("zones", Whole(1, 65535), "number of zones that have a copy before the response"),
)
RESULTS: Final = (
    Argument("result", Text(0, 2**30), "the result of the job, as text"),
    Argument("result_base64", Octets(), "the result, as Base64"),
)
BODIES: Final = (
    Argument("body", Text(0, 2**30), "the body, as text"),
    Argument("body_base64", Octets(), "the body, as Base64"),
)
ENQUEUE_ERRORS: Final = (
    "PAUSED",
    "CLOSED",
    "NOROUTE",
    "MAXLEN",
    "TOOBIG",
    "NOKEY",
    "NOREPL",
    "UNREACHABLE",
    "OOM",
    "MISCONF",
)
SETTLE_ERRORS: Final = ("BADID", "STALE", "FENCED", "NOJOB")
TASK_ERRORS: Final = ("OOM", "MISCONF")

QUEUE_FIELDS: Final = (
    Argument("lease_ms", MS, "RETRY of jobs that name none; 0: the default"),
    Argument("delay_ms", MS, "DELAY of jobs that name none"),
    Argument("ttl_ms", MS, "TTL of jobs that name none; 0: the default"),
    Argument("replicate", Text(0, 16), "copies of jobs that name no number: a number, or `quorum`"),
    Argument("attempts", Whole(0, 10**9), "deliveries of jobs that name no limit; 0: no limit"),
    Argument("backoff", Text(0, 200), "back-off of jobs that name none"),
    Argument("dead_letter", Text(0, 1024), "queue for jobs without attempts left"),
    Argument("retention_ms", MS, "how long errored jobs stay; 0: the default"),
    Argument("maxlen", Whole(0, 2**62), "the most pending jobs in the cluster; 0: no limit"),
    Argument("maxsize", Whole(0, 2**40), "the most bytes of a body; 0: no limit"),
    Argument("require_meta", Texts(256, 8, 0), "names that the metadata must have; `[]`: none"),
    Argument("more", Pairs(), "further settings of newer nodes, by the broker's names"),
)

TABLE: Final = (
    Operation(
        "enqueue", "POST", "/v1/queues/{queue}/jobs", "produce", "queue", "Add a job to a queue.", "ADDJOB",
        (QUEUE, *BODIES, *ENQUEUE_OPTIONS), ENQUEUE_ERRORS, 201, changes=True,
    ),
    Operation(
        "enqueue_batch", "POST", "/v1/queues/{queue}/jobs:batch", "produce", "queue",
        "Add many jobs: each line is the body of an `enqueue`, and each line of the response its result.", "ADDJOB",
        (QUEUE,), ENQUEUE_ERRORS, 200, changes=True, form="lines",
    ),
    Operation(
        "dequeue", "POST", "/v1/queues/{queue}/dequeue", "consume", "queue",
        "Fetch jobs from a queue, or wait for one. If the caller disconnects, its jobs are put back.", "GETJOB",
        (
            QUEUE,
            Argument("max", Whole(1, 10_000), "the most jobs; 1 by default"),
            Argument("wait_ms", MS, "milliseconds to wait for a job; 0, the default: don't wait"),
            Argument("lease_ms", SPAN, "the lease in milliseconds; by default that of each job"),
            WHERE,
            Argument("request_id", Text(1, 256), f"{REQUEST_ID}: the same jobs, as long as they are leased"),
        ),
        ("OOM",), changes=True, waits=True,
    ),
    Operation(
        "complete_batch", "POST", "/v1/jobs:complete", "consume", "job", "Complete jobs: they are done.", "ACKJOB",
        (Argument("ids", Texts(64, 10_000), "ids of the jobs", required=True),), ("BADID",), changes=True,
    ),
    Operation(
        "complete", "POST", "/v1/jobs/{id}/complete", "consume", "job", "Complete a job: it is done.", "ACKJOB",
        (JOB, ATTEMPT, FENCE, *RESULTS), SETTLE_ERRORS, changes=True,
    ),
    Operation(
        "fail", "POST", "/v1/jobs/{id}/fail", "consume", "job", "Give a job back: its processing failed.", "NACK",
        (
            JOB,
            ATTEMPT,
            FENCE,
            Argument("delay_ms", MS, "milliseconds until the next delivery; by default the back-off decides"),
            Argument("reason", Text(0, 4096), "the error; it is cut to 1024 bytes"),
            Argument("final", Flag(), "use up all attempts: the job becomes errored, or a dead letter"),
        ),
        (*SETTLE_ERRORS, "OOM"), changes=True,
    ),
    Operation(
        "extend", "POST", "/v1/jobs/{id}/extend", "consume", "job", "Start the lease of a job again.", "WORKING",
        (JOB, ATTEMPT, FENCE, Argument("lease_ms", SPAN, "milliseconds from now; by default the job's own")),
        (*SETTLE_ERRORS, "CANCELED", "TOOLATE"), changes=True,
    ),
    Operation(
        "cancel", "POST", "/v1/jobs/{id}/cancel", "operate", "job", "Cancel a job, on all nodes.", "CANCELJOB",
        (JOB,), ("BADID",), changes=True,
    ),
    Operation(
        "promote", "POST", "/v1/jobs/{id}/promote", "operate", "job", "End the delay of a job.", "PROMOTE",
        (JOB,), ("BADID", "UNREACHABLE", "OOM"), changes=True,
    ),
    Operation(
        "reschedule", "POST", "/v1/jobs/{id}/reschedule", "operate", "job",
        "Give a waiting job another delay or priority.", "RESCHEDULE",
        (
            JOB,
            Argument("delay_ms", MS, "milliseconds from now"),
            Argument("priority", Whole(-(2**63), 2**63 - 1), "lower numbers are served first"),
        ),
        ("BADID", "UNREACHABLE", "OOM"), changes=True,
    ),
    Operation(
        "move_job", "POST", "/v1/jobs/{id}/move", "operate", "job",
        "Move a job to another queue, unchanged.", "MOVEJOB",
        (JOB, Argument("to", NAME, "the other queue", required=True)), ("BADID", "UNREACHABLE", "OOM"), changes=True,
    ),
    Operation(
        "requeue", "POST", "/v1/jobs/{id}/requeue", "operate", "job",
        "Queue a job now; an errored one gets new attempts.", "ENQUEUE",
        (JOB,), ("BADID", "PAUSED", "OOM"), changes=True,
    ),
    Operation(
        "get_job", "GET", "/v1/jobs/{id}", "read", "job", "Describe a job; body and metadata need the role `bodies`.",
        "SHOW", (JOB,), ("BADID", "NOJOB"),
    ),
    Operation(
        "wait_job", "GET", "/v1/jobs/{id}/wait", "read", "job", "Wait for the end of a job.", "SHOW",
        (JOB, _query("timeout_ms", MS, "milliseconds to wait; the limit `wait-max-ms` by default")), ("BADID",),
        waits=True,
    ),
    Operation(
        "job_history", "GET", "/v1/jobs/{id}/history", "bodies", "job",
        "List the events of a job that the nodes' logs still have.", "EVENTS SEEK, EVENTS READ",
        (JOB,), ("BADID",),
    ),
    Operation(
        "find_jobs", "POST", "/v1/queues/{queue}/jobs:find", "read", "queue",
        "Find the ids of the jobs that were added with these keys.", "JOBID",
        (QUEUE, Argument("keys", Texts(1024, 1000), "keys, or request ids", required=True)), ("UNREACHABLE",),
    ),
    Operation(
        "search_jobs", "POST", "/v1/queues/{queue}/jobs:search", "read", "queue",
        "Search all jobs of a queue, the oldest first, by metadata, age, and the reason of their last failure.",
        "JSCAN, SHOW",
        (
            QUEUE,
            *SEARCH,
            Argument("cursor", Text(1, 64), "the `cursor` of the previous page"),
            Argument("limit", Whole(1, 1000), "the most jobs; 50 by default"),
        ),
    ),
    Operation(
        "change_jobs", "POST", "/v1/queues/{queue}/jobs:change", "operate", "queue",
        "Queue, cancel or move every job that a search finds, as an operation of this gateway.",
        "JSCAN, SHOW, ENQUEUE, CANCELJOB, MOVEJOB",
        (
            QUEUE,
            Argument(
                "action", Choice(("requeue", "cancel", "move")), "`requeue`: queue it now; `cancel`; `move`", required=True
            ),
            Argument("to", NAME, "the other queue of a `move`"),
            *CHANGED_SEARCH,
            Argument("expected", Whole(0, 2**62), "refuse with CONFIRM if another number of jobs matches"),
        ),
        ("CONFIRM",), 202, changes=True,
    ),
    Operation(
        "list_queues", "GET", "/v1/queues", "read", "any", "List queues with their figures.", "QSCAN, QSTAT",
        (
            _query("match", Text(1, 200), "pattern of names (`*`, `?`, `[ab]`)"),
            _query("sort", Choice(("name", "pending", "running", "errored", "oldest", "rate")), "order; `name` by default"),
            _query("status", Choice(STATUSES), "only queues with jobs of this status"),
            _query("cursor", Text(1, 64), "the `cursor` of the previous page"),
            _query("limit", Whole(1, 1000), "the most queues; 100 by default"),
        ),
    ),
    Operation(
        "list_settings", "GET", "/v1/settings", "read", "any", "List the queues that have settings, with their settings.",
        "QUEUE LIST, QUEUE GET", (_query("match", Text(1, 200), "pattern of names"),),
    ),
    Operation(
        "get_queue", "GET", "/v1/queues/{queue}", "read", "queue", "Describe a queue: figures and settings.",
        "QSTAT, QUEUE GET, PAUSE", (QUEUE,), ("NOTFOUND",),
    ),
    Operation(
        "put_queue", "PUT", "/v1/queues/{queue}", "operate", "queue",
        "Change settings of a queue; fields that are not given stay.", "QUEUE SET", (QUEUE, *QUEUE_FIELDS),
        ("MISCONF",), changes=True,
    ),
    Operation(
        "purge_queue", "DELETE", "/v1/queues/{queue}", "operate", "queue",
        "Cancel the jobs of a queue. `confirm` must repeat its name.", "QPURGE",
        (
            QUEUE,
            _query("confirm", NAME, "the name of the queue, once more"),
            _query("status", Choice(CHANGED), "jobs of this status; `pending` by default"),
            WHERE_QUERY,
        ),
        ("CONFIRM", *TASK_ERRORS), 202, changes=True,
    ),
    Operation(
        "list_jobs", "GET", "/v1/queues/{queue}/jobs", "read", "queue",
        "List jobs of a queue in its order; bodies and metadata need the role `bodies`.", "QPEEK",
        (
            QUEUE,
            _query("status", Choice(STATUSES), "jobs of this status; `pending` by default"),
            WHERE_QUERY,
            _query("cursor", Text(1, 64), "the `cursor` of the previous page"),
            _query("limit", Whole(1, 1000), "the most jobs; 50 by default"),
        ),
    ),
    Operation(
        "depth", "GET", "/v1/queues/{queue}/depth", "read", "queue", "Count the jobs of a queue by status.", "QLEN",
        (QUEUE, WHERE_QUERY),
    ),
    Operation(
        "move", "POST", "/v1/queues/{queue}/move", "operate", "queue", "Move the jobs of a queue to another one.", "QMOVE",
        (
            QUEUE,
            Argument("to", NAME, "the other queue", required=True),
            Argument("status", Choice(CHANGED), "jobs of this status; `pending` by default"),
            WHERE, LIMIT, RATE,
        ),
        TASK_ERRORS, 202, changes=True,
    ),
    Operation(
        "pause", "POST", "/v1/queues/{queue}/pause", "operate", "queue", "Pause a queue on all nodes.", "PAUSE",
        (QUEUE, Argument("direction", Choice(("in", "out", "all")), "`all` by default")), (), changes=True,
    ),
    Operation(
        "resume", "POST", "/v1/queues/{queue}/resume", "operate", "queue", "End the pause of a queue.", "PAUSE",
        (QUEUE,), (), changes=True,
    ),
    Operation(
        "redrive", "POST", "/v1/queues/{queue}/redrive", "operate", "queue",
        "Queue errored jobs and dead letters again with new attempts.", "QREDRIVE",
        (QUEUE, Argument("to", NAME, "the queue that they go to; by default their own"), WHERE, LIMIT, RATE),
        TASK_ERRORS, 202, changes=True,
    ),
    Operation("list_nodes", "GET", "/v1/nodes", "read", "any", "List the nodes of the cluster.", "INFO, HELLO, CLUSTER NODES, CLUSTER INFO"),
    Operation(
        "list_locks", "GET", "/v1/locks", "read", "any", "List the locks whose names the caller's grants cover.", "LOCK LIST, LOCK SHOW",
        (_query("match", Text(1, 200), "pattern of names"),), ("NOQUORUM",),
    ),
    Operation(
        "list_schedules", "GET", "/v1/schedules", "read", "any", "List the schedules whose names the caller's grants cover.",
        "SCHEDULE LIST, SCHEDULE GET",
        (
            _query("cursor", Text(1, 64), "the `cursor` of the previous page"),
            _query("limit", Whole(1, 1000), "the most schedules; 100 by default"),
        ),
    ),
    Operation(
        "run_schedule", "POST", "/v1/schedules/{name}/run", "operate", "name", "Add a job of a schedule now.",
        "SCHEDULE RUN", (SCHEDULE,), ("NOTFOUND", *ENQUEUE_ERRORS), changes=True,
    ),
    Operation(
        "pause_schedule", "POST", "/v1/schedules/{name}/pause", "operate", "name", "Pause a schedule.",
        "SCHEDULE PAUSE", (SCHEDULE,), ("NOTFOUND", "MISCONF"), changes=True,
    ),
    Operation(
        "resume_schedule", "POST", "/v1/schedules/{name}/resume", "operate", "name", "End the pause of a schedule.",
        "SCHEDULE RESUME", (SCHEDULE,), ("NOTFOUND", "MISCONF"), changes=True,
    ),
    Operation(
        "delete_schedule", "DELETE", "/v1/schedules/{name}", "operate", "name", "Delete a schedule.",
        "SCHEDULE DEL", (SCHEDULE,), ("NOTFOUND", "MISCONF"), changes=True,
    ),
    Operation("list_operations", "GET", "/v1/operations", "read", "any", "List bulk work of the last hour.", "QTASK LIST"),
    Operation(
        "get_operation", "GET", "/v1/operations/{id}", "read", "any", "Show the progress of bulk work.", "QTASK SHOW",
        (TASK,), ("NOTFOUND",),
    ),
    Operation(
        "stop_operation", "DELETE", "/v1/operations/{id}", "operate", "any", "Stop bulk work. Finished changes stay.", "QTASK CANCEL",
        (TASK,), ("NOTFOUND",), changes=True,
    ),
    Operation(
        "watch_events", "GET", "/v1/events", "bodies", "any", "Follow the events of all nodes, as server-sent events.",
        "EVENTS INFO, EVENTS READ",
        (
            _query("queue", Text(1, 1024), "pattern of queue names"),
            _query("job", Text(1, 64), "id of one job"),
            _query("event", Text(1, 64), "name of the event, such as `added`"),
            _query("place", Text(0, 8192), "the id of the last event that the caller has read, as in the header Last-Event-ID"),
        ),
        form="events",
    ),
)  # fmt: skip
BY_NAME: Final = {operation.name: operation for operation in TABLE}
