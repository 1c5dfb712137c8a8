"""INFO: this node's fields about itself, in sections.

Names, order and meaning of the original's fields are those of spec R8. Our own fields follow them within a section, and
the sections cluster, federation and events follow the original's. docs/info.md explains each field. Nothing is
estimated: a field about a part that doesn't exist here, such as forks, shows the value that is true without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from disque_py import __version__
from disque_py.commands import cluster
from disque_py.core import repair
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.resp.replies import bulk
from disque_py.resp.sizes import human_bytes

Fields = list[tuple[str, str | int]]

SECONDS_PER_DAY: Final = 86_400

# Fields that only the process knows (ports.Host.info_fields), in the server section's order.
_HOST_BUILD: Final = ("disque_build_id", "os", "arch_bits", "multiplexing_api", "gcc_version", "process_id")
_HOST_ELSEWHERE: Final = ("tcp_port", "executable", "config_file", "mem_allocator")


def info(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """INFO [section]: all sections but commandstats, or one, or `all`. An unknown section is empty."""
    if len(argv) > 2:
        raise CommandError(SYNTAX)
    wanted = argv[1].lower().decode("latin-1") if len(argv) == 2 else "default"
    texts = [
        f"# {name.capitalize() if name != 'cpu' else 'CPU'}\r\n{_lines(fields(broker))}"
        for name, fields in SECTIONS.items()
        if wanted in (name, "all") or (wanted == "default" and name != "commandstats")
    ]
    return bulk("\r\n".join(texts))


def _lines(fields: Iterable[tuple[str, str | int]]) -> str:
    return "".join(f"{name}:{value}\r\n" for name, value in fields)


def _server(broker: Broker) -> Fields:
    host = dict(broker.host.info_fields())
    settings = broker.settings
    uptime_s = max(0, broker.now_ms - broker.started_ms) // 1000
    known = (*_HOST_BUILD, *_HOST_ELSEWHERE)
    return [
        ("disque_version", __version__),
        ("disque_git_sha1", "00000000"),  # The original's value when it is built outside a checkout.
        ("disque_git_dirty", 0),
        *((name, host[name]) for name in _HOST_BUILD if name in host),
        ("run_id", broker.run_name),
        ("tcp_port", host.get("tcp_port", settings.port)),
        ("uptime_in_seconds", uptime_s),
        ("uptime_in_days", uptime_s // SECONDS_PER_DAY),
        ("hz", settings.hz),
        ("executable", host.get("executable", "")),
        ("config_file", host.get("config_file", "")),
        *((name, value) for name, value in host.items() if name not in known),
    ]


def _clients(broker: Broker) -> Fields:
    clients = broker.clients.values()
    return [
        ("connected_clients", len(clients)),
        ("client_longest_output_list", max((len(client.out) for client in clients), default=0)),
        ("client_biggest_input_buf", max((client.port.input_bytes() for client in clients), default=0)),
        ("blocked_clients", sum(1 for client in clients if client.waiting)),
        ("monitor_clients", len(broker.monitors)),
        ("maxclients", broker.settings.maxclients),
    ]


def _memory(broker: Broker) -> Fields:
    used = broker.used_memory
    peak = max(used, broker.memory.peak)
    rss = broker.host.rss_bytes()
    limit = broker.settings.maxmemory
    allocator = dict(broker.host.info_fields()).get("mem_allocator")
    return [
        ("used_memory", used),
        ("used_memory_human", human_bytes(used)),
        ("used_memory_rss", rss),
        ("used_memory_peak", peak),
        ("used_memory_peak_human", human_bytes(peak)),
        ("mem_fragmentation_ratio", f"{rss / used if used else 0:.2f}"),
        *([("mem_allocator", allocator)] if allocator is not None else []),
        ("maxmemory", limit),
        ("maxmemory_human", human_bytes(limit)),
        ("maxmemory_policy", broker.settings.maxmemory_policy),
        ("memory_level", broker.memory_level),
        *_spill(broker),
    ]


def _spill(broker: Broker) -> Fields:
    spill = broker.spill
    return [
        ("spill_enabled", int(spill.is_on)),
        ("spilled_jobs", broker.memory.spilled_count),
        ("spilled_bytes", spill.bytes_on_disk),
        ("spill_files", spill.files),
        ("spill_file_bytes", spill.file_bytes),
        ("spill_writing_bytes", spill.writing_bytes),
        ("spill_waiting_clients", len(spill.blocked_producers)),
        ("spill_trouble", spill.trouble),
        ("total_bodies_spilled", spill.written),
        ("total_bodies_read_back", spill.read),
        ("total_bodies_rescued", spill.rescued),
        ("total_bodies_lost", spill.lost),
    ]


def _jobs(broker: Broker) -> Fields:
    stats = broker.stats
    waiting = len(broker.copies.waiting_repl)
    queued = sum(queue.pending for queue in broker.queues.values())
    return [
        ("registered_jobs", broker.job_count),
        ("queued_jobs", queued),
        ("active_jobs", broker.job_count - queued - waiting - broker.memory.acked_count),
        ("waiting_replication_jobs", waiting),
        ("acked_jobs", broker.memory.acked_count),
        ("remembered_done_jobs", len(broker.tombstones)),
        ("used_keys", len(broker.producers.keys)),
        ("keys_asked_for", len(broker.producers.searches)),
        ("tokens", len(broker.tokens.by_name)),
        ("total_jobs_added", stats.jobs_added),
        ("total_jobs_delivered", stats.jobs_delivered),
        ("total_jobs_acked", stats.jobs_acked),
        ("total_jobs_nacked", stats.jobs_nacked),
        ("total_jobs_errored", stats.jobs_errored),
        ("total_jobs_dead_lettered", stats.jobs_dead_lettered),
        ("total_jobs_canceled", stats.jobs_canceled),
        ("total_jobs_requeued", stats.jobs_requeued),
        ("total_jobs_expired", stats.jobs_expired),
        ("total_jobs_evicted", stats.jobs_evicted),
        ("results", len(broker.results.by_id)),
        ("total_results_dropped", stats.results_dropped),
        ("total_replication_timeouts", stats.replication_timeouts),
        ("total_replication_refusals", stats.refusals_received),
        ("total_replication_short_of_nodes", stats.replication_short_of_nodes),
        ("total_replication_short_of_zones", stats.replication_short_of_zones),
        ("total_at_most_once_lost_in_handover", stats.once_lost_in_handover),
        ("total_at_most_once_dropped_leaving", stats.once_dropped_leaving),
        ("total_copies_missing_leaving", stats.copies_missing_leaving),
        ("repair_jobs_waiting", repair.waiting_count(broker)),
        ("repair_missing_copies", broker.repairs.missing),
        ("total_copies_repaired", stats.copies_repaired),
        ("total_repair_refusals", stats.repair_refusals),
    ]


def _queues(broker: Broker) -> Fields:
    return [
        ("registered_queues", len(broker.queues)),
        ("queues_with_settings", len(broker.queue_settings.in_force)),
    ]


def _persistence(broker: Broker) -> Fields:
    return [
        *broker.host.journal_fields(),
        ("queue_settings_trouble", broker.queue_settings.exchange.trouble),
        ("votes_trouble", broker.claims.trouble),
        ("nodes_file_trouble", broker.host.nodes_file_trouble()),
    ]


def _events(broker: Broker) -> Fields:
    if broker.event_source is None:
        return [("events_enabled", 0), ("events_state", "off")]
    return broker.event_source.fields()


def _stats(broker: Broker) -> Fields:
    stats = broker.stats
    operations, input_kib, output_kib = stats.rates()
    return [
        ("total_connections_received", stats.connections_received),
        ("total_commands_processed", stats.commands_processed),
        ("instantaneous_ops_per_sec", int(operations)),
        ("total_net_input_bytes", stats.net_input_bytes),
        ("total_net_output_bytes", stats.net_output_bytes),
        ("instantaneous_input_kbps", f"{input_kib:.2f}"),
        ("instantaneous_output_kbps", f"{output_kib:.2f}"),
        ("rejected_connections", stats.connections_rejected),
        ("latest_fork_usec", 0),
        ("slowlog_len", len(stats.slowlog)),
        ("rejected_for_memory", stats.memory_refusals),
        ("rejected_passwords", stats.wrong_passwords),
        ("rejected_permissions", stats.access_refusals),
        ("rejected_limits", stats.limit_refusals),
    ]


def _cpu(broker: Broker) -> Fields:
    names = ("used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children")
    return [(name, f"{seconds:.2f}") for name, seconds in zip(names, broker.host.cpu_seconds(), strict=True)]


def _cluster(broker: Broker) -> Fields:
    stats = broker.stats
    return [
        *cluster.info_fields(broker),
        ("cluster_linked_nodes", len(broker.cluster.linked)),
        ("cluster_stats_messages_ignored", stats.messages_ignored + sum(broker.membership.ignored.values())),
        *_reasons("cluster_ignored_", stats.reject_reasons),
        *_reasons("cluster_ignored_", broker.membership.ignored),
        *_reasons("cluster_links_rejected_", broker.host.links_rejected()),
    ]


def _reasons(prefix: str, counts: dict[str, int]) -> list[tuple[str, str | int]]:
    """Return a field for each reason that occurred. Its name consists of letters and underscores."""
    return [(prefix + field_word(reason), count) for reason, count in sorted(counts.items())]


def field_word(reason: str) -> str:
    """Return a reason as part of a field's name: `job of a closed link` → `job_of_a_closed_link`."""
    return "_".join("".join(char if char.isalnum() else " " for char in reason.lower()).split())


def _federation(broker: Broker) -> Fields:
    stats = broker.stats
    return [
        ("queues_wanted_here", len(broker.consumers.told_interest)),
        ("queues_wanted_elsewhere", sum(1 for nodes in broker.consumers.interest.values() if nodes)),
        ("total_jobs_imported", stats.jobs_imported),
        ("total_jobs_exported", stats.jobs_exported),
        ("total_hints_sent", stats.hints_sent),
        ("total_hints_received", stats.hints_received),
        ("total_pulls_sent", stats.pulls_sent),
        ("total_pulls_received", stats.pulls_received),
    ]


def _commandstats(broker: Broker) -> Fields:
    """Return the commands that were called, in the order of the table, by their original names."""
    fields: Fields = []
    for row in dict.fromkeys(broker.commands.values()):
        if row.calls:
            usec = row.nanoseconds // 1000
            per_call = row.nanoseconds / 1000 / row.calls
            fields.append((f"cmdstat_{row.name}", f"calls={row.calls},usec={usec},usec_per_call={per_call:.2f}"))
    return fields


SECTIONS: Final[dict[str, Callable[[Broker], Fields]]] = {
    "server": _server,
    "clients": _clients,
    "memory": _memory,
    "jobs": _jobs,
    "queues": _queues,
    "persistence": _persistence,
    "stats": _stats,
    "cpu": _cpu,
    "cluster": _cluster,
    "federation": _federation,
    "events": _events,
    "commandstats": _commandstats,
}
