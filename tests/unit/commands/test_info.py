"""INFO."""

from __future__ import annotations

import errno
from pathlib import Path

from brokers import add_node, ask, ask_parsed, fields_of, host_of, make_broker, make_client, pass_time, port_of
from disque_py import __version__
from disque_py.commands.info import field_word
from disque_py.core import settings_sync

ORIGINAL = {
    "Server": "disque_version disque_git_sha1 disque_git_dirty disque_build_id os arch_bits multiplexing_api"
    " gcc_version process_id run_id tcp_port uptime_in_seconds uptime_in_days hz executable config_file",
    "Clients": "connected_clients client_longest_output_list client_biggest_input_buf blocked_clients",
    "Memory": "used_memory used_memory_human used_memory_rss used_memory_peak used_memory_peak_human"
    " mem_fragmentation_ratio mem_allocator",
    "Jobs": "registered_jobs",
    "Queues": "registered_queues",
    "Persistence": "loading aof_enabled aof_state aof_rewrite_in_progress aof_rewrite_scheduled"
    " aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_last_write_status",
    "Stats": "total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes"
    " total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections latest_fork_usec",
    "CPU": "used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children",
}


def info(broker, *words):
    return ask_parsed(broker, make_client(broker), "INFO", *words)


def sections(text):
    found = {}
    for part in text.decode().split("\r\n\r\n"):
        title, _, lines = part.partition("\r\n")
        found[title.removeprefix("# ")] = [line.partition(":")[0] for line in lines.split("\r\n") if line]
    return found


def test_every_section_begins_with_the_original_fields_in_their_order():
    broker = make_broker()
    broker.host.fields.append(("disque_build_id", "c0ffee"))
    found = sections(info(broker))
    assert list(found) == [*ORIGINAL, "Cluster", "Federation", "Events"]
    for title, names in ORIGINAL.items():
        assert found[title][: len(names.split())] == names.split()


def test_info_shows_one_section_all_sections_or_none():
    broker = make_broker()
    assert list(sections(info(broker, "QUEUES"))) == ["Queues"]
    assert list(sections(info(broker, "all")))[-1] == "Commandstats"
    assert info(broker, "default").startswith(b"# Server\r\n")
    assert info(broker, "weather") == b""
    assert ask(broker, make_client(broker), "INFO", "a", "b") == b"-ERR syntax error\r\n"


def test_the_server_section_identifies_the_node():
    broker = make_broker()
    pass_time(broker, 90_000_000)
    fields = fields_of(info(broker, "server"))
    assert fields["disque_version"] == __version__
    assert (fields["uptime_in_seconds"], fields["uptime_in_days"]) == ("90000", "1")
    assert (fields["process_id"], fields["bus_port"], len(fields["run_id"])) == ("4242", "17711", 40)


def test_jobs_are_counted_by_state():
    broker = make_broker()
    client = make_client(broker)
    add_node(broker, 2)
    for _ in range(3):
        ask(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    ask(broker, make_client(broker), "ACKJOB", b"D-02020202-" + b"A" * 24 + b"-05a1")
    fields = {name: int(value) for name, value in fields_of(info(broker, "jobs")).items()}
    assert fields["registered_jobs"] == 5
    assert (fields["queued_jobs"], fields["active_jobs"], fields["waiting_replication_jobs"]) == (2, 1, 1)
    assert (fields["acked_jobs"], fields["total_jobs_added"], fields["total_jobs_delivered"]) == (1, 3, 1)


def test_clients_are_counted():
    broker = make_broker(maxclients=77)
    client = make_client(broker)
    port_of(client).input = 500
    ask(broker, client, "GETJOB", "FROM", "q")
    fields = fields_of(info(broker, "clients"))
    assert (fields["connected_clients"], fields["blocked_clients"]) == ("2", "1")
    assert (fields["client_biggest_input_buf"], fields["maxclients"]) == ("500", "77")


def test_used_memory_is_the_figure_that_maxmemory_limits():
    broker = make_broker(maxmemory=4096)
    ask(broker, make_client(broker), "ADDJOB", "q", "x" * 1800, 0)
    fields = fields_of(info(broker, "memory"))
    assert int(fields["used_memory"]) == broker.used_memory == int(fields["used_memory_peak"])
    assert (fields["maxmemory_human"], fields["memory_level"]) == ("4.00K", "1")
    assert float(fields["mem_fragmentation_ratio"]) > 1


def test_an_empty_node_has_no_fragmentation_ratio():
    assert fields_of(info(make_broker(), "memory"))["mem_fragmentation_ratio"] == "0.00"


def test_commandstats_show_called_commands_by_original_names():
    broker = make_broker(rename_command=(("ping", "pong"),))
    client = make_client(broker)
    ask(broker, client, "PONG")
    ask(broker, client, "PONG")
    broker.commands[b"pong"].nanoseconds = 5_000
    fields = fields_of(info(broker, "commandstats"))
    assert fields == {"cmdstat_ping": "calls=2,usec=5,usec_per_call=2.50"}


def test_the_reasons_of_ignored_messages_are_fields():
    broker = make_broker()
    broker.stats.ignored("holders of an unknown job")
    broker.membership.ignored["stranger"] += 2
    fields = fields_of(info(broker, "cluster"))
    assert fields["cluster_stats_messages_ignored"] == "3"
    assert fields["cluster_ignored_holders_of_an_unknown_job"] == "1"
    assert (fields["cluster_ignored_stranger"], fields["cluster_links_rejected_wrong_secret"]) == ("2", "2")


def test_a_reason_becomes_a_word():
    assert field_word("Version 9, out of range!") == "version_9_out_of_range"


def test_every_field_is_explained_in_the_docs():
    """docs/info.md has each field of every section, and each field of CLUSTER INFO on a leaving node."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "info.md").read_text(encoding="utf-8")
    broker = make_broker()
    broker.host.fields.append(("disque_build_id", "c0ffee"))
    broker.membership.set_leaving(True)
    shown = fields_of(info(broker, "default"))
    reasons = ("cluster_ignored_", "cluster_links_rejected_")
    assert [name for name in shown if f"`{name}`" not in text and not name.startswith(reasons)] == []


def test_persistence_has_the_error_of_a_file_that_cannot_be_written_until_it_is():
    broker = make_broker()
    host_of(broker).failures["write_queue_settings"] = OSError(errno.ENOSPC, "No space left on device")
    ask(broker, make_client(broker), "QUEUE", "SET", "q", "maxlen", 5)
    assert fields_of(info(broker, "persistence"))["queue_settings_trouble"] == "No space left on device"
    host_of(broker).failures.clear()
    pass_time(broker, settings_sync.RETRY_MS)
    settings_sync.step(broker)
    assert fields_of(info(broker, "persistence"))["queue_settings_trouble"] == ""
