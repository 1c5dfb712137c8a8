"""The table of metrics: names, kinds, labels, help texts, and the source of each value.

A metric is declared only here. families.py emits the table, docs/metrics.md is written from it, and tests compare it
with docs/info.md and with running nodes. So every figure has a source.

Names follow Prometheus: base units (seconds, bytes), `_total` for counters. Every metric has the label `node`, the
node's address, except those that are counted from the events of all nodes. Ids are not labels, except `node_id` of
disque_node_info, because nodes are few.

A node counts only its own actions. The copies of a job are records on several nodes. So a sum over nodes counts each
job once only if the help text of the metric is about jobs. Metrics that count records say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from disque_py import event_format

Kind = Literal["gauge", "counter", "histogram"]

NODE: Final = "node"
# The label value for all queues without their own label. A queue of this name is one of them.
OTHER: Final = "_other"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of INFO that gives one sample of a metric.

    name      the field
    label     value of the metric's second label; empty if it has only `node`
    scale     the sample is the field's number times this
    word      the sample is 1 if the field has this text, else 0; None: the field is a number
    is_text   the sample is 1 if the field has any text, else 0
    """

    name: str
    label: str = ""
    scale: float = 1
    word: str | None = None
    is_text: bool = False

    def value(self, found: str | int | float) -> float | None:
        """Return the sample of a field's value; None if a number is needed and it is not one."""
        if self.word is not None:
            return float(found == self.word)
        if self.is_text:
            return float(found != "")
        return None if isinstance(found, str) else found * self.scale


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    labels   names of its labels
    source   the command that gives it, and the fields; for people
    fields   fields of INFO, one per sample
    prefix   instead of fields: each field of INFO with this prefix is a sample, labelled with the rest of its name
    part     with `prefix`: the sample is this part of the value (`seq=1,lag=2`)
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = (NODE,)
    source: str = ""
    fields: tuple[Field, ...] = ()
    prefix: str = ""
    part: str = ""


def _info(
    name: str,
    kind: Kind,
    text: str,
    section: str,
    *fields: Field | str,
    label: str = "",
    prefix: str = "",
    part: str = "",
) -> Metric:
    """Return the metric of fields of one section of INFO."""
    found = tuple(Field(field) if isinstance(field, str) else field for field in fields)
    told = ", ".join(f"`{field.name}`" for field in found) or f"`{prefix}…`"
    labels = (NODE, label) if label else (NODE,)
    return Metric(name, kind, text, labels, f"INFO {section}: {told}", found, prefix, part)


def _of_queue(name: str, kind: Kind, text: str, source: str, *labels: str) -> Metric:
    return Metric(name, kind, text, (NODE, "queue", *labels), source)


# -- About nodes and the exporter -------------------------------------------------------------------

UP: Final = Metric(
    "disque_up",
    "gauge",
    "1 if the node answered this scrape in time, else 0.",
    source="the exporter: the answer to INFO",
)
SCRAPE_SECONDS: Final = Metric(
    "disque_scrape_seconds",
    "gauge",
    "Time that the node took to answer all commands of this scrape.",
    source="the exporter",
)
ANSWERED: Final = Metric(
    "disque_scrape_command_answered",
    "gauge",
    "1 if the node answered the command, 0 if it refused it, for example an older node or a user without permission.",
    (NODE, "command"),
    "the exporter: the answers to INFO, HELLO, CLUSTER NODES, QSCAN and QSTAT",
)
NODE_INFO: Final = Metric(
    "disque_node_info",
    "gauge",
    "Always 1; the labels are the node's id, version and build.",
    (NODE, "node_id", "version", "build"),
    "HELLO: the node's id; INFO server: `disque_version`, `build`",
)
LINK_UP: Final = Metric(
    "disque_link_up",
    "gauge",
    "1 if this node's link to the peer is connected, else 0.",
    (NODE, "peer"),
    "CLUSTER NODES: address, link",
)

# -- Queues -----------------------------------------------------------------------------------------

QUEUES_OTHER: Final = Metric(
    "disque_queues_other", "gauge", f"Queues of this node that are counted as {OTHER}.", source="INFO queues: `registered_queues`, minus the queues with labels"
)  # fmt: skip
QUEUE_JOBS: Final = _of_queue(
    "disque_queue_jobs",
    "gauge",
    "Jobs of the queue by state, counted on this node. Each job counts on one node, so sums over nodes are numbers of jobs.",
    "QSTAT: `len` (pending), `running`, `invisible`, `errored`; `_other`: INFO jobs `queued_jobs`, minus the queues with labels",
    "state",
)
OLDEST_AGE: Final = _of_queue(
    "disque_queue_oldest_job_age_seconds",
    "gauge",
    "Time since the oldest pending job of the queue on this node became ready; absent without pending jobs.",
    "QSTAT: `oldest-ms`",
)
JOBS_IN: Final = _of_queue(
    "disque_queue_jobs_in_total",
    "counter",
    "Jobs put into the queue on this node; a job that is queued again or moves between nodes counts again.",
    "QSTAT: `jobs-in`",
)
JOBS_OUT: Final = _of_queue(
    "disque_queue_jobs_out_total",
    "counter",
    "Jobs fetched from the queue on this node, by clients or for other nodes.",
    "QSTAT: `jobs-out`",
)
CONSUMERS: Final = _of_queue(
    "disque_queue_waiting_consumers",
    "gauge",
    "Clients of this node that wait for jobs of the queue.",
    "QSTAT: `blocked`",
)
PAUSED: Final = _of_queue(
    "disque_queue_paused",
    "gauge",
    "1 if the queue is paused on this node in this direction, else absent.",
    "QSTAT: `pause`",
    "direction",
)

SPECIAL: Final = (
    UP,
    SCRAPE_SECONDS,
    ANSWERED,
    NODE_INFO,
    LINK_UP,
    QUEUES_OTHER,
    QUEUE_JOBS,
    OLDEST_AGE,
    JOBS_IN,
    JOBS_OUT,
    CONSUMERS,
    PAUSED,
)

# -- Queues of the cluster, from events ---------------------------------------------------------------


def _of_events(name: str, kind: Kind, text: str, *codes: int) -> Metric:
    told = ", ".join(f"`{event_format.CODES[code][0]}`" for code in codes)
    return Metric(name, kind, text, ("queue",), f"events: {told}")


# The order is that of the counters in transitions.py.
TRANSITIONS: Final = (
    _of_events("disque_jobs_added_total", "counter", "Jobs that were added.", event_format.ADDED),
    _of_events("disque_jobs_delivered_total", "counter", "Deliveries to consumers.", event_format.DELIVERED),
    _of_events("disque_jobs_completed_total", "counter", "Jobs that were acknowledged.", event_format.ACKED),
    _of_events("disque_jobs_failed_total", "counter", "Deliveries that consumers gave back, and that were not the last one.",
               event_format.NACKED),
    _of_events("disque_jobs_requeued_total", "counter", "Jobs queued again because a lease was over.",
               event_format.REQUEUED),
    _of_events("disque_jobs_expired_total", "counter", "Jobs whose TTL was over.", event_format.EXPIRED_EVENT),
    _of_events("disque_jobs_errored_total", "counter", "Jobs that became errored, without attempts left.",
               event_format.ERRORED_EVENT),
    _of_events("disque_jobs_canceled_total", "counter", "Jobs that were canceled or deleted.",
               event_format.CANCELED_EVENT, event_format.DELETED),
)  # fmt: skip
WAIT_SECONDS: Final = _of_events(
    "disque_queue_wait_seconds", "histogram", "Time from a job being ready to its delivery.", event_format.DELIVERED
)
RUN_SECONDS: Final = _of_events(
    "disque_queue_run_seconds",
    "histogram",
    "Time from a delivery to the end of the work: an ack, a NACK or a cancellation.",
    event_format.ACKED,
    event_format.NACKED,
    event_format.ERRORED_EVENT,
    event_format.DEAD_LETTERED,
    event_format.CANCELED_EVENT,
)
UNCOUNTED: Final = Metric(
    "disque_events_uncounted_total",
    "counter",
    "Events that are missing in the counters of queues.",
    ("reason",),
    "the program: `trimmed`, the log had dropped them; `unreadable`, the node sent something else",
)
EVENT_METRICS: Final = (*TRANSITIONS, WAIT_SECONDS, RUN_SECONDS, UNCOUNTED)

# -- The gateway itself -----------------------------------------------------------------------------

REQUEST_SECONDS: Final = Metric(
    "disque_gateway_request_duration_seconds",
    "histogram",
    "Duration of a request to this gateway.",
    ("door", "operation", "code"),
    "the gateway",
)

# -- Fields of INFO ---------------------------------------------------------------------------------

_MS: Final = 0.001

# fmt: off
INFO_METRICS: Final = (
    _info("disque_uptime_seconds", "gauge", "Time since the process started.", "server", "uptime_in_seconds"),
    _info("disque_clients", "gauge", "Connected clients.", "clients", "connected_clients"),
    _info("disque_clients_blocked", "gauge", "Clients that wait in ADDJOB or GETJOB.", "clients", "blocked_clients"),
    _info("disque_clients_limit", "gauge", "The most clients that the node accepts.", "clients", "maxclients"),
    _info("disque_memory_used_bytes", "gauge", "Memory of jobs and queues, as maxmemory counts it.", "memory", "used_memory"),
    _info("disque_memory_limit_bytes", "gauge", "The directive maxmemory; 0 means no limit.", "memory", "maxmemory"),
    _info("disque_memory_peak_bytes", "gauge", "Highest memory of jobs and queues so far.", "memory", "used_memory_peak"),
    _info("disque_memory_resident_bytes", "gauge", "Memory of the whole process.", "memory", "used_memory_rss"),
    _info("disque_memory_level", "gauge", (
        "0: normal; 1: copies go elsewhere; 2: copies are refused; 3: ADDJOB is refused."
    ),
          "memory", "memory_level"),
    _info("disque_spilled_jobs", "gauge", "Records whose bodies are on disk.", "memory", "spilled_jobs"),
    _info("disque_spilled_bytes", "gauge", "Bodies that are on disk.", "memory", "spilled_bytes"),
    _info("disque_spill_failing", "gauge", "1 while bodies can't be written to disk, else 0.", "memory",
          Field("spill_trouble", is_text=True)),
    _info("disque_file_failing", "gauge", "1 while this file can't be written, else 0.", "persistence",
          Field("queue_settings_trouble", "queue_settings", is_text=True), Field("votes_trouble", "votes", is_text=True),
          Field("nodes_file_trouble", "nodes", is_text=True), label="file"),
    _info("disque_spill_waiting_clients", "gauge", "Producers that wait until bodies are on disk.", "memory",
          "spill_waiting_clients"),
    _info("disque_bodies_spilled_total", "counter", "Bodies that left memory.", "memory", "total_bodies_spilled"),
    _info("disque_bodies_read_back_total", "counter", "Bodies that were read back from disk.", "memory",
          "total_bodies_read_back"),
    _info("disque_bodies_rescued_total", "counter", "Bodies that had to be taken from the journal.", "memory",
          "total_bodies_rescued"),
    _info("disque_records", "gauge", (
        "Records of jobs on this node by state, copies included; not the number of jobs."
    ), "jobs",
          Field("queued_jobs", "queued"), Field("active_jobs", "active"),
          Field("waiting_replication_jobs", "waiting_replication"), Field("acked_jobs", "acked"), label="state"),
    _info("disque_keys", "gauge", "Keys of ADDJOB … KEY that this node remembers.", "jobs", "used_keys"),
    _info("disque_tokens", "gauge", "Replies of GETJOB … TOKEN that can be requested again.", "jobs", "tokens"),
    _info("disque_node_jobs_added_total", "counter", "Jobs that producers of this node added.", "jobs", "total_jobs_added"),
    _info("disque_node_jobs_delivered_total", "counter", "Jobs that consumers of this node got.", "jobs", "total_jobs_delivered"),
    _info("disque_node_jobs_failed_total", "counter", "Jobs that consumers of this node gave back with NACK.", "jobs",
          "total_jobs_nacked"),
    _info("disque_node_jobs_requeued_total", "counter", "Jobs queued again here because their RETRY was over.", "jobs",
          "total_jobs_requeued"),
    _info("disque_node_jobs_errored_total", "counter", "Jobs that became errored here, without attempts left.", "jobs",
          "total_jobs_errored"),
    _info("disque_node_jobs_dead_lettered_total", "counter", "Jobs that moved to a dead-letter queue here.", "jobs",
          "total_jobs_dead_lettered"),
    _info("disque_node_jobs_canceled_total", "counter", "Jobs that were canceled here.", "jobs", "total_jobs_canceled"),
    _info("disque_records_acked_total", "counter", "Records that became acknowledged on this node, copies included.", "jobs",
          "total_jobs_acked"),
    _info("disque_records_expired_total", "counter", "Records whose TTL was over before an ack, copies included.", "jobs",
          "total_jobs_expired"),
    _info("disque_records_evicted_total", "counter", "Records dropped to make room, copies included.", "jobs",
          "total_jobs_evicted"),
    _info("disque_replication_failures_total", "counter", (
        "ADDJOBs that failed to get their copies (timeout, too few nodes or zones), and copies that other nodes"
        " refused."
    ),
          "jobs", Field("total_replication_timeouts", "timeout"), Field("total_replication_refusals", "refused"),
          Field("total_replication_short_of_nodes", "nodes"), Field("total_replication_short_of_zones", "zones"),
          label="reason"),
    _info("disque_jobs_lost_total", "counter", (
        "Jobs that this node lost: at-most-once jobs, and jobs with unreadable bodies."
    ),
          "jobs, persistence, memory", Field("total_at_most_once_lost_in_handover", "handover"),
          Field("total_at_most_once_dropped_leaving", "leaving"),
          Field("total_at_most_once_lost_in_restart", "restart"), Field("total_bodies_lost", "body"), label="reason"),
    _info("disque_copies_missing_total", "counter", "Copies that this node gave up when it was leaving.", "jobs",
          "total_copies_missing_leaving"),
    _info("disque_queues", "gauge", "Queues that exist on this node.", "queues", "registered_queues"),
    _info("disque_loading", "gauge", "1 while the node reads its journal, else 0.", "persistence", "loading"),
    _info("disque_journal_enabled", "gauge", "1 if the node has a journal, else 0.", "persistence", "aof_enabled"),
    _info("disque_journal_bytes", "gauge", "Records of the journal on disk.", "persistence", "aof_current_size"),
    _info("disque_journal_live_bytes", "gauge", "Records of the journal that are still needed.", "persistence",
          "aof_live_bytes"),
    _info("disque_journal_unsynced_bytes", "gauge", "Records that a power cut would lose now.", "persistence",
          "aof_unsynced_bytes"),
    _info("disque_journal_unsynced_seconds", "gauge", "Age of the oldest record that a power cut would lose now.",
          "persistence", Field("aof_oldest_unsynced_ms", scale=_MS)),
    _info("disque_journal_refusing", "gauge", "0 to 3: commands that are refused because of the disk.", "persistence",
          "aof_refusing"),
    _info("disque_journal_write_failing", "gauge", "1 while writing the journal fails, else 0.",
          "persistence", Field("aof_last_write_status", word="err")),
    _info("disque_journal_rewrite_failing", "gauge", "1 if the last rewrite failed, else 0.", "persistence",
          Field("aof_last_bgrewrite_status", word="err")),
    _info("disque_journal_rewriting", "gauge", (
        "1 while the journal is rewritten to free disk space, else 0."
    ), "persistence",
          "aof_rewrite_in_progress"),
    _info("disque_journal_delayed_fsyncs_total", "counter", "Times that replies had to wait for the disk with everysec.",
          "persistence", "aof_delayed_fsync"),
    _info("disque_journal_fsyncs_total", "counter", "Calls of fsync for the journal.", "persistence", "aof_fsyncs"),
    _info("disque_connections_total", "counter", "Clients accepted.", "stats", "total_connections_received"),
    _info("disque_connections_rejected_total", "counter", "Clients turned away: maxclients, protected mode.", "stats",
          "rejected_connections"),
    _info("disque_commands_total", "counter", "Commands that clients sent.", "stats", "total_commands_processed"),
    _info("disque_commands_refused_for_memory_total", "counter", "Commands that were refused with -OOM.", "stats", "rejected_for_memory"),
    _info("disque_wrong_passwords_total", "counter", "Wrong passwords of AUTH and HELLO.", "stats", "rejected_passwords"),
    _info("disque_access_refusals_total", "counter", "Commands that users may not run.", "stats", "rejected_permissions"),
    _info("disque_limit_refusals_total", "counter", "Commands and logins beyond users' limits.", "stats", "rejected_limits"),
    _info("disque_client_bytes_total", "counter", "Bytes from (in) and to (out) clients; not the bus.", "stats",
          Field("total_net_input_bytes", "in"), Field("total_net_output_bytes", "out"), label="direction"),
    _info("disque_cpu_seconds_total", "counter", "CPU time of the process.", "cpu", Field("used_cpu_user", "user"),
          Field("used_cpu_sys", "system"), label="mode"),
    _info("disque_cluster_ok", "gauge", "1 if the node sees a majority of the cluster, else 0.", "cluster",
          Field("cluster_state", word="ok")),
    _info("disque_cluster_nodes", "gauge", (
        "Nodes that this one knows, itself included; those in handshake don't count."
    ), "cluster",
          "cluster_size"),
    _info("disque_cluster_reachable_nodes", "gauge", "Other nodes that may be asked for copies.", "cluster",
          "cluster_reachable_nodes"),
    _info("disque_cluster_full_nodes", "gauge", "Other nodes that have no room for copies, because of their memory or their disk.",
          "cluster", "cluster_full_nodes"),
    _info("disque_cluster_linked_nodes", "gauge", "Other nodes to which this node's link is up.", "cluster",
          "cluster_linked_nodes"),
    _info("disque_leaving", "gauge", "1 while the node gives its jobs away (CLUSTER LEAVING), else 0.", "cluster",
          Field("cluster_leaving", word="yes")),
    _info("disque_bus_messages_total", "counter", "Messages on the bus.", "cluster",
          Field("cluster_stats_messages_sent", "out"), Field("cluster_stats_messages_received", "in"), label="direction"),
    _info("disque_bus_messages_ignored_total", "counter", "Messages of other nodes that had no effect.", "cluster",
          prefix="cluster_ignored_", label="reason"),
    _info("disque_bus_links_rejected_total", "counter", "Connections to the bus that the node closed.", "cluster",
          prefix="cluster_links_rejected_", label="reason"),
    _info("disque_federated_jobs_total", "counter", "Jobs handed over to this node (in) and by it (out).", "federation",
          Field("total_jobs_imported", "in"), Field("total_jobs_exported", "out"), label="direction"),
    _info("disque_events_enabled", "gauge", "1 unless the directive events is no.", "events", "events_enabled"),
    _info("disque_events_log_open", "gauge", "1 if the log of events is written, else 0.", "events",
          Field("events_state", word="on")),
    _info("disque_events_missed_total", "counter", "Events of this process that are in no log.", "events", "events_missed"),
    _info("disque_events_bytes", "gauge", "The log of events on disk.", "events", "events_bytes"),
    _info("disque_event_reader_lag_events", "gauge", "Events that a reader with a name has not asked for yet.", "events",
          prefix="events_reader_", label="reader", part="lag"),
)
# fmt: on

# All metrics of a look.
METRICS: Final = (*SPECIAL, *INFO_METRICS)
# The most samples of one metric with a prefix. Its labels come from a node, which has names of readers from clients.
PREFIX_SAMPLES_MAX: Final = 100


def info_samples(metric: Metric, info: dict[str, str | int | float]) -> list[tuple[tuple[str, ...], float]]:
    """Return label values after `node`, and the sample, for each field that the node has. Pure."""
    if metric.prefix:
        return _prefixed(metric, info)
    found: list[tuple[tuple[str, ...], float]] = []
    for field in metric.fields:
        value = field.value(info[field.name]) if field.name in info else None
        if value is not None:
            found.append(((field.label,) if field.label else (), value))
    return found


def _prefixed(metric: Metric, info: dict[str, str | int | float]) -> list[tuple[tuple[str, ...], float]]:
    found: list[tuple[tuple[str, ...], float]] = []
    for name, value in info.items():
        if name.startswith(metric.prefix) and name != metric.prefix and len(found) < PREFIX_SAMPLES_MAX:
            number = _part(value, metric.part) if metric.part else value
            if isinstance(number, (int, float)):
                found.append(((label_value(name.removeprefix(metric.prefix)),), number))
    return found


def _part(value: str | int | float, part: str) -> int | None:
    """Return the number of one part of `seq=1,lag=2`."""
    for pair in str(value).split(","):
        name, _, number = pair.partition("=")
        if name == part and number.isdigit():
            return int(number)
    return None


def label_value(name: str) -> str:
    """Return a name as UTF-8 text. Other bytes are escaped (`\\\\xff`), so that no name spoils a scrape."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
