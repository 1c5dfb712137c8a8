"""The table of answers: the record that each operation answers with, and the fields of each record.

OpenAPI's schemas of answers, the reference and docs/gateway.md are made from this table. shapes.py and actions/ make
the answers themselves. Tests compare every answer that they get with its record.

A record of the table has all fields that this version sends. Schemas don't forbid further ones, because later versions
may add some: a program should ignore fields that it does not know. Words that nodes choose, such as states, are text
without a list of words for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from disque_py.event_format import JOB_STATUSES
from disque_py.gateway.operations import STATUSES, Operation
from disque_py.gateway.problems import BY_CODE

Schema = dict[str, Any]
REF: Final = "#/components/schemas/"

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
INT: Final[Schema] = {"type": "integer", "format": "int64"}
NUMBER: Final[Schema] = {"type": "number"}
BASE64: Final[Schema] = {"type": "string", "contentEncoding": "base64"}
ANY: Final[Schema] = {}


def ref(name: str) -> Schema:
    """Return the schema of a record of the table."""
    return {"$ref": REF + name}


def list_of(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def map_of(schema: Schema) -> Schema:
    """Return the schema of an object whose names are not known before."""
    return {"type": "object", "additionalProperties": schema}


def or_null(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    if "type" in schema:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    name        its name, in snake case
    schema      its JSON Schema
    help        its meaning
    is_always   whether each such record has it
    """

    name: str
    schema: Schema
    help: str
    is_always: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """An object in answers.

    name      its name in OpenAPI
    help      its meaning, as a sentence
    fields    in order
    is_open   whether nodes may add fields that this table does not have
    """

    name: str
    help: str
    fields: tuple[Field, ...]
    is_open: bool = False

    def schema(self) -> Schema:
        """Return its JSON Schema."""
        return {
            "type": "object",
            "description": self.help,
            "required": [each.name for each in self.fields if each.is_always],
            "properties": {each.name: described(each) for each in self.fields},
        }


def described(field: Field) -> Schema:
    """Return the schema of a field with its meaning."""
    return field.schema | {"description": field.help}


def sometimes(name: str, schema: Schema, help_: str) -> Field:
    """Return a field that only some records have."""
    return Field(name, schema, help_, is_always=False)


LIST_CURSOR: Final = Field("cursor", or_null(TEXT), "the cursor of the next page; null: this is the last one")
TOTAL: Final = Field("total", INT, "number of all, also of those that the list does not show")
NODES_MISSING: Final = Field("nodes_missing", list_of(TEXT), "ids of nodes that did not answer")
BODY: Final = (
    sometimes("body", TEXT, "the body, if it is UTF-8 and the caller has the role `bodies`"),
    sometimes("body_base64", BASE64, "the body, if it is not UTF-8 and the caller has the role `bodies`"),
)
META: Final = sometimes("meta", map_of(TEXT), "its metadata, if the caller has the role `bodies`")
ID: Final = Field("id", TEXT, "id of the job")
PAUSED: Final = Field("paused", TEXT, "`none`, `in`, `out` or `all`")
FIGURES: Final = (
    Field("pending", INT, "number of pending jobs"),
    Field("running", INT, "number of jobs that a worker has"),
    Field("invisible", INT, "number of jobs that wait, for example for a delay"),
    Field("errored", INT, "number of jobs without attempts left"),
    Field("consumers", INT, "number of clients that wait for its jobs"),
    Field("jobs_in", INT, "number of jobs that were put into the queue"),
    Field("jobs_out", INT, "number of jobs that were taken from the queue"),
    Field("oldest_ms", or_null(INT), "milliseconds since the oldest pending job became ready; null: none is pending"),
    PAUSED,
    Field("rate_in", NUMBER, "jobs that were put in, per second"),
    Field("rate_out", NUMBER, "jobs that were taken, per second"),
)
EVENT_FIELDS: Final = (
    Field("seq", INT, "number of the event in its log"),
    Field("ts", INT, "moment of the event in Unix milliseconds, by the node's clock"),
    Field("job_id", or_null(TEXT), "id of the job; null in an event of the node"),
    Field("queue", or_null(TEXT), "name of the queue; null in an event of the node"),
    Field("event", TEXT, "name of the event, such as `added`"),
)

PROBLEM: Final = Record(
    "Problem",
    "An error (RFC 9457), as `application/problem+json`.",
    (
        Field("type", {"type": "string", "format": "uri"}, "a page about errors"),
        Field("title", TEXT, "the meaning of the code"),
        Field("status", INT, "the HTTP status"),
        Field("detail", TEXT, "the reason, for people"),
        Field("code", {"type": "string", "enum": sorted(BY_CODE)}, "the first word of the broker's error"),
        sometimes("unknown", FLAG, "the command may have been executed"),
        sometimes("methods", list_of(TEXT), "the methods of the path"),
    ),
)

RECORDS: Final = (
    PROBLEM,
    Record("Added", "A job that was added.", (ID,)),
    Record("Jobs", "Jobs that were taken.", (Field("jobs", list_of(ref("Job")), "the jobs"),)),
    Record(
        "Job",
        "A job that the caller has taken.",
        (
            ID,
            Field("queue", TEXT, "name of its queue"),
            *BODY,
            Field("body_size", INT, "bytes of the body"),
            sometimes("attempt", INT, "number of this delivery"),
            sometimes("lease_ms", INT, "milliseconds of its lease"),
            sometimes("nacks", INT, "number of times that a worker gave it back"),
            sometimes("additional_deliveries", INT, "number of times that it was queued again for another reason"),
            META,
        ),
    ),
    Record("Changed", "The effect of a change.", (Field("changed", INT, "number of jobs that were changed"),)),
    Record("Lease", "A lease that began again.", (Field("lease_ms", INT, "milliseconds of the lease"),)),
    Record(
        "JobInfo",
        "A job as a node shows it.",
        (
            ID,
            Field("queue", or_null(TEXT), "name of its queue; null: the node has only its acknowledgement"),
            Field("state", TEXT, "state on this node: `wait-repl`, `active`, `queued` or `acked`"),
            Field("status", or_null(TEXT), f"{', '.join(f'`{each}`' for each in JOB_STATUSES)}; null: an older node"),
            Field("created_ms", INT, "creation in Unix milliseconds"),
            Field("ctime", INT, "creation: Unix milliseconds times 1,000,000, plus a sequence"),
            Field("repl", INT, "number of copies that it was added with"),
            Field("nacks", INT, "number of times that a worker gave it back"),
            Field("additional_deliveries", INT, "number of times that it was queued again for another reason"),
            Field("attempt", INT, "number of its deliveries"),
            Field("attempts", INT, "the most deliveries; 0: no limit"),
            Field("attempts_left", or_null(INT), "deliveries that are left; null: no limit"),
            Field("leased", FLAG, "whether this node delivered it, and its lease is not over"),
            Field("priority", or_null(INT), "lower numbers are served first"),
            Field("backoff", TEXT, "its back-off; empty: none"),
            Field("delay_ms", or_null(INT), "the delay that it was added with"),
            Field("retry_ms", or_null(INT), "the lease that it was added with"),
            Field("ttl_ms", or_null(INT), "milliseconds until it expires"),
            Field("next_requeue_within", or_null(INT), "milliseconds until it is queued again; null: never"),
            Field("next_awake_within", or_null(INT), "milliseconds until the node looks at it again"),
            sometimes("next_awake_ms", or_null(INT), "the same, in an answer to `search_jobs`"),
            Field("nodes_delivered", list_of(TEXT), "ids of nodes that may have a copy"),
            Field("nodes_confirmed", list_of(TEXT), "ids of nodes that have confirmed theirs"),
            Field("error", or_null(TEXT), "reason of its last failure, for the role `bodies`; null: none"),
            sometimes("body_size", INT, "bytes of the body, if the node has it"),
            *BODY,
            META,
            sometimes("progress", or_null(INT), "progress of its worker, 0 to 100, for the role `bodies`"),
            sometimes("progress_text", or_null(TEXT), "a note of its worker, for the role `bodies`"),
            sometimes("batch", or_null(TEXT), "the batch that it belongs to, for the role `bodies`"),
            sometimes("topic", or_null(TEXT), "the topic that it was added to, for the role `bodies`"),
            sometimes("key_window_ms", or_null(INT), "milliseconds in which its key is used, for the role `bodies`"),
            sometimes("result", or_null(TEXT), "its result, if it is UTF-8, for the role `bodies`; null: none"),
            sometimes("result_base64", BASE64, "its result, if it is not UTF-8, for the role `bodies`"),
        ),
        is_open=True,
    ),
    Record(
        "Outcome",
        "The end of a job, or its status when the wait ended.",
        (
            Field("status", TEXT, "status of the job; `unknown`: no node that answers knows it"),
            Field("is_over", FLAG, "whether the job is over"),
            sometimes("result", TEXT, "its result, if it is UTF-8, for the role `bodies` on every queue"),
            sometimes("result_base64", BASE64, "its result, if it is not UTF-8, for the role `bodies` on every queue"),
            sometimes("job", ref("JobInfo"), "the job, if a node still has it"),
        ),
    ),
    Record(
        "History",
        "Events of a job.",
        (
            Field("events", list_of(ref("Event")), "the events, the oldest first"),
            Field("is_complete", FLAG, "false: there may be others, for example on a node that did not answer"),
        ),
    ),
    Record(
        "Event",
        "An event of a node's log. It has all fields of its line in the log.",
        EVENT_FIELDS,
        is_open=True,
    ),
    Record(
        "Notice",
        "A notice in a stream of events: `trimmed` or `log-ended`.",
        (Field("log", TEXT, "id of the log"),),
        is_open=True,
    ),
    Record(
        "Found",
        "Jobs by their keys.",
        (Field("ids", map_of(or_null(TEXT)), "key → id of its job; null: there is none"),),
    ),
    Record(
        "SearchPage",
        "A page of a search.",
        (
            Field("jobs", list_of(ref("JobInfo")), "the jobs of the page, the oldest first"),
            LIST_CURSOR,
            Field("matching", INT, "number of jobs that match"),
            Field("reasons", list_of(ref("Reason")), "the most frequent reasons, for the role `bodies`"),
            Field("looked_at", INT, "number of jobs that were read"),
            Field("is_complete", FLAG, "whether all jobs of the queue were searched"),
            Field("nodes_missing", list_of(TEXT), "addresses of nodes that did not answer"),
        ),
    ),
    Record(
        "Reason",
        "Jobs of a search that failed with the same reason.",
        (Field("reason", TEXT, "the reason"), Field("jobs", INT, "number of jobs")),
    ),
    Record(
        "Operation",
        "Bulk work.",
        (
            Field("id", TEXT, "id of the operation"),
            Field("command", TEXT, "`qpurge`, `qmove`, `qredrive`, `qrebalance`; or the `action` of `change_jobs`"),
            Field("queue", TEXT, "the queue whose jobs it changes"),
            Field("state", TEXT, "`running`, `done`, `canceled` or `aborted`"),
            Field("jobs", INT, "number of jobs that were changed"),
            Field("failed", INT, "number of jobs that were left out"),
            sometimes("total", INT, "number of all its jobs, for `change_jobs`"),
            Field("nodes", or_null(INT), "number of nodes that take part; null for `change_jobs`"),
            Field("nodes_missing", list_of(TEXT), "ids of nodes that do not take part"),
            Field("started_ms", or_null(INT), "start in Unix milliseconds"),
        ),
    ),
    Record(
        "Operations",
        "Bulk work of the last hour.",
        (Field("operations", list_of(ref("Operation")), "the operations, the newest first"),),
    ),
    Record(
        "Stopped",
        "An operation that was asked to stop.",
        (Field("id", TEXT, "id of the operation"), Field("stopped", FLAG, "whether it was running")),
    ),
    Record(
        "Queues",
        "A page of queues.",
        (Field("queues", list_of(ref("QueueFigures")), "the queues of the page"), TOTAL, LIST_CURSOR),
    ),
    Record("QueueFigures", "Figures of a queue.", (Field("name", TEXT, "name of the queue"), *FIGURES)),
    Record(
        "Queue",
        "Figures and settings of a queue.",
        (
            Field("name", TEXT, "name of the queue"),
            *FIGURES,
            Field("age_s", INT, "seconds since the queue was created"),
            Field("nodes", INT, "number of nodes in the figures"),
            NODES_MISSING,
            Field("settings", or_null(ref("Settings")), "its settings; null: none"),
        ),
    ),
    Record(
        "QueueSettings",
        "Settings of a queue, by its name.",
        (
            Field("name", TEXT, "name of the queue"),
            Field("settings", or_null(ref("Settings")), "its settings; null: none"),
        ),
    ),
    Record(
        "SettingsList",
        "Queues that have settings.",
        (Field("queues", list_of(ref("QueueSettings")), "the queues, with their settings"), TOTAL),
    ),
    Record(
        "Settings",
        "Settings of a queue, as `put_queue` takes them.",
        (
            Field("lease_ms", or_null(INT), "RETRY of jobs that name none; null: the default"),
            Field("delay_ms", or_null(INT), "DELAY of jobs that name none; null: the default"),
            Field("ttl_ms", or_null(INT), "TTL of jobs that name none; null: the default"),
            Field("replicate", {"type": ["integer", "string", "null"]}, "copies: a number or `quorum`; null: default"),
            Field("attempts", INT, "deliveries of jobs that name no limit; 0: no limit"),
            Field("backoff", TEXT, "back-off of jobs that name none; empty: none"),
            Field("dead_letter", TEXT, "queue for jobs without attempts left; empty: none"),
            Field("retention_ms", INT, "milliseconds for which errored jobs stay"),
            Field("maxlen", INT, "the most pending jobs in the cluster; 0: no limit"),
            Field("maxsize", INT, "the most bytes of a body; 0: no limit"),
            Field("require_meta", list_of(TEXT), "names that the metadata must have"),
            Field("type", TEXT, "`simple` or `exclusive`"),
            PAUSED,
            Field("version", INT, "a number that grows with each change"),
            Field("behind", INT, "number of nodes that have not confirmed the newest version"),
            Field("more", map_of(ANY), "further settings, by the broker's names"),
        ),
    ),
    Record(
        "JobPage",
        "A page of jobs.",
        (Field("jobs", list_of(ref("ListedJob")), "the jobs of the page, in the queue's order"), LIST_CURSOR),
    ),
    Record(
        "ListedJob",
        "A job of a list. If no node shows it any more, it has only what the queue knows.",
        (
            ID,
            Field("queue", TEXT, "name of its queue"),
            Field("status", {"type": "string", "enum": list(STATUSES)}, "the status of the request"),
            *BODY,
            Field("body_size", INT, "bytes of the body"),
            META,
            sometimes("attempt", INT, "number of its deliveries"),
            sometimes("nacks", INT, "number of times that a worker gave it back"),
            sometimes("additional_deliveries", INT, "number of times that it was queued again for another reason"),
            sometimes("attempts", INT, "the most deliveries; 0: no limit"),
            sometimes("priority", or_null(INT), "lower numbers are served first"),
            sometimes("created_ms", INT, "creation in Unix milliseconds"),
            sometimes("ttl_ms", or_null(INT), "milliseconds until it expires"),
            sometimes("next_awake_ms", or_null(INT), "milliseconds until the node looks at it again"),
            sometimes("error", or_null(TEXT), "reason of its last failure, for the role `bodies`; null: none"),
        ),
    ),
    Record("Depth", "Jobs by status.", tuple(Field(each, INT, f"number of {each} jobs") for each in STATUSES)),
    Record("Pause", "The pause of a queue.", (PAUSED,)),
    Record("Nodes", "The nodes of the cluster.", (Field("nodes", list_of(ref("Node")), "the nodes"),)),
    Record(
        "Node",
        "A node. Without an answer of the node, there are only its address and the error.",
        (
            Field("address", TEXT, "host and port"),
            Field("is_up", FLAG, "whether it answered"),
            sometimes("error", TEXT, "the reason why it did not answer"),
            sometimes("id", or_null(TEXT), "its id"),
            sometimes("version", TEXT, "its version"),
            sometimes("uptime_s", INT, "seconds since its start"),
            sometimes("clients", INT, "number of connections of clients"),
            sometimes("memory_used", INT, "bytes of memory in use"),
            sometimes("memory_max", INT, "the most bytes of memory; 0: no limit"),
            sometimes("jobs", INT, "number of jobs of which it has a copy"),
            sometimes("queued", INT, "number of jobs in its queues"),
            sometimes("queues", INT, "number of its queues"),
            sometimes("journal", INT, "1: it has a journal"),
            sometimes("journal_status", TEXT, "`ok`, or `err` after a write that failed"),
            sometimes("journal_bytes", INT, "bytes of the journal"),
            sometimes("state", TEXT, "`fail`: it is in the minority; else `ok`"),
            sometimes("zone", TEXT, "its zone; empty: none"),
            sometimes("datacenter", TEXT, "its data centre; empty: none"),
            sometimes("leaving", TEXT, "`yes`: it gives its jobs away; else `no`"),
            sometimes("leaving_remaining", INT, "number of jobs that it still has to give away"),
            sometimes("leaving_blocked_by", TEXT, "the reason why jobs can't move"),
            sometimes("links", list_of(ref("Link")), "its links to other nodes"),
        ),
    ),
    Record(
        "Link",
        "The link of a node to another one.",
        (
            Field("id", TEXT, "id of the other node"),
            Field("address", TEXT, "its host and port"),
            Field("is_linked", FLAG, "whether the link is up"),
            Field("flags", list_of(TEXT), "flags of CLUSTER NODES"),
        ),
    ),
    Record("Locks", "Locks.", (Field("locks", list_of(ref("Lock")), "the first 200 locks"), TOTAL)),
    Record(
        "Lock",
        "A lock. One that is free and forgotten has only its name.",
        (
            Field("name", TEXT, "name of the lock"),
            Field("owner", or_null(TEXT), "its owner; null: it is free"),
            sometimes("fence", INT, "fence of the last owner"),
            sometimes("attempt", INT, "number of attempts so far"),
            sometimes("ms_left", INT, "milliseconds that its lease lasts"),
            sometimes("done_ms_left", INT, "milliseconds for which the end of the work is remembered"),
        ),
    ),
    Record(
        "Schedules",
        "A page of schedules.",
        (
            Field("schedules", list_of(ref("Schedule")), "the schedules of the page, in the order of their names"),
            TOTAL,
            LIST_CURSOR,
        ),
    ),
    Record(
        "Schedule",
        "A schedule.",
        (
            Field("name", TEXT, "name of the schedule"),
            Field("cron", or_null(TEXT), "its cron expression; null: it has an interval"),
            Field("every", or_null(TEXT), "its interval; null: it has a cron expression"),
            Field("tz", TEXT, "its time zone"),
            Field("catchup", TEXT, "`none`, `last` or `all`"),
            Field("overlap", TEXT, "`allow` or `skip`"),
            Field("queue", TEXT, "the queue that it adds jobs to"),
            sometimes("body", or_null(TEXT), "body of its jobs, for the role `bodies`"),
            sometimes("options", list_of(TEXT), "options of its jobs, for the role `bodies`"),
            Field("paused", INT, "1: it is paused"),
            Field("next", or_null(INT), "its next tick in Unix milliseconds"),
            Field("last", or_null(INT), "its last tick in Unix milliseconds"),
            Field("last_id", or_null(TEXT), "id of its last job"),
            Field("fired", INT, "number of jobs that it added"),
            Field("missed", INT, "number of ticks that it missed"),
            Field("behind", INT, "number of nodes that have not confirmed its newest version"),
        ),
        is_open=True,
    ),
    Record("ScheduleName", "A schedule that was changed.", (Field("name", TEXT, "name of the schedule"),)),
)  # fmt: skip
BY_NAME: Final = {record.name: record for record in RECORDS}

# Operation -> the record of its answer; for a batch and a stream that of a line and of an event.
ANSWERS: Final = {
    "enqueue": "Added",
    "enqueue_batch": "Added",
    "dequeue": "Jobs",
    "complete_batch": "Changed",
    "complete": "Changed",
    "fail": "Changed",
    "extend": "Lease",
    "cancel": "Changed",
    "promote": "Changed",
    "reschedule": "Changed",
    "move_job": "Changed",
    "requeue": "Changed",
    "get_job": "JobInfo",
    "wait_job": "Outcome",
    "job_history": "History",
    "find_jobs": "Found",
    "search_jobs": "SearchPage",
    "change_jobs": "Operation",
    "list_queues": "Queues",
    "list_settings": "SettingsList",
    "get_queue": "Queue",
    "put_queue": "QueueSettings",
    "purge_queue": "Operation",
    "list_jobs": "JobPage",
    "depth": "Depth",
    "move": "Operation",
    "pause": "Pause",
    "resume": "Pause",
    "redrive": "Operation",
    "list_nodes": "Nodes",
    "list_locks": "Locks",
    "list_schedules": "Schedules",
    "run_schedule": "Added",
    "pause_schedule": "ScheduleName",
    "resume_schedule": "ScheduleName",
    "delete_schedule": "ScheduleName",
    "list_operations": "Operations",
    "get_operation": "Operation",
    "stop_operation": "Stopped",
    "watch_events": "Event",
}


def type_text(schema: Schema) -> str:
    """Return the words for a schema's type, for people."""
    if "$ref" in schema:
        return str(schema["$ref"].removeprefix(REF))
    if "anyOf" in schema:
        return " or ".join(map(type_text, schema["anyOf"]))
    types = schema.get("type", "any value")
    return " or ".join(_word(schema, word) for word in ([types] if isinstance(types, str) else types))


def _word(schema: Schema, word: str) -> str:
    if word == "array":
        return f"list of {type_text(schema['items'])}"
    if word == "object":
        return f"object of {type_text(schema['additionalProperties'])}"
    if word == "string":
        return "Base64" if "contentEncoding" in schema else "text"
    return {"boolean": "true or false"}.get(word, word)


def answer_text(operation: Operation) -> str:
    """Return the answer of an operation, for people: the name of its record."""
    name = ANSWERS[operation.name]
    if operation.form == "lines":
        return f"lines of {name} or {PROBLEM.name}"
    return f"events of {name} or Notice" if operation.form == "events" else name
