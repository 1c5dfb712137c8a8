"""The process as administrative commands see it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

from disque_py.config.settings import DirectiveError, Settings
from disque_py.server.file_writer import FileWriter
from disque_py.server.framed_store import FramedStore
from disque_py.server.host import Ending, ProcessHost
from disque_py.server.nodes_file_saver import NodesFileSaver
from disque_py.server.settings_file import Configuration
from disque_py.storage.queue_settings_file import QUEUE_SETTINGS
from disque_py.storage.votes_file import VOTES


class Noted:
    """Stands in for the bus, the listeners and the watchdog, and records calls."""

    port = 17711

    def __init__(self):
        self.rejected = Counter({"wrong secret": 2})
        self.calls = []

    def set_keepalive(self, seconds):
        self.calls.append(("keepalive", seconds))

    def watch(self, period_ms):
        self.calls.append(("watch", period_ms))


@pytest.fixture
def configuration(tmp_path):
    configuration = Configuration(Settings(), str(tmp_path / "disque.conf"))
    (tmp_path / "disque.conf").write_text("timeout 5\n")
    return configuration


@pytest.fixture
def endings():
    """Return the ways to end that the host requested from the server."""
    return []


def stores_of(tmp_path):
    """Return the stores for queue settings and for votes."""
    return (
        FramedStore(str(tmp_path / "nodes.conf.queues"), QUEUE_SETTINGS, "queue-settings-torn", "", print),
        FramedStore(str(tmp_path / "nodes.conf.votes"), VOTES, "votes-torn", "", print),
    )


@pytest.fixture
def host(configuration, endings, tmp_path):
    file_writer = FileWriter()
    saver = NodesFileSaver(str(tmp_path / "nodes.conf"), file_writer, print)
    settings, votes = stores_of(tmp_path)
    host = ProcessHost(configuration, file_writer, saver, settings, votes, endings.append, may_restart=True)
    host.bus = host.listeners = host.watchdog = Noted()
    host.begin_turn = lambda: host.watchdog.calls.append("turn")
    with asyncio.Runner() as runner:  # The file writer serves one loop.
        host.runner = runner
        yield host
    file_writer.close()


def write(host, *deeds):
    """Have the host start these writes in order. Return how each ended."""

    async def main():
        ends = []
        for deed in deeds:
            deed(lambda failure: ends.append(failure))
        while len(ends) < len(deeds):
            await asyncio.sleep(0.005)
        return ends

    return host.runner.run(main())


def test_the_process_has_memory_and_uses_time(host):
    assert host.rss_bytes() > 1 << 20
    assert len(host.cpu_seconds()) == 4


def test_info_has_the_fields_of_the_original(host, configuration):
    fields = dict(host.info_fields())
    assert list(fields)[:10] == [
        *("disque_build_id", "os", "arch_bits", "multiplexing_api", "gcc_version", "process_id", "tcp_port"),
        *("executable", "config_file", "mem_allocator"),
    ]
    assert fields["process_id"] == str(os.getpid())
    assert fields["tcp_port"] == "7711"
    assert fields["config_file"] == configuration.path
    assert fields["bus_port"] == "17711"
    assert os.path.isabs(fields["executable"])
    assert len(fields["disque_build_id"]) == 16
    assert all(value == value.strip() for value in fields.values())


def test_info_has_the_bus_count_of_links_closed_for_a_reason(host):
    assert host.links_rejected() == {"wrong secret": 2}


def test_a_changed_setting_reaches_the_part_that_it_concerns(host, configuration):
    configuration.settings.tcp_keepalive = 30
    host.apply_setting("tcp-keepalive")
    configuration.settings.watchdog_period = 50
    host.apply_setting("watchdog-period")
    host.apply_setting("timeout")
    assert host.watchdog.calls == [("keepalive", 30), ("watch", 200)]


def test_a_setting_that_cannot_be_put_into_effect_is_refused(host, configuration):
    configuration.settings.dir = "/no/such/directory"
    with pytest.raises(DirectiveError, match="ERR Changing directory: No such file or directory"):
        host.apply_setting("dir")


def test_an_acl_file_that_is_gone_is_no_file_without_users(host, tmp_path):
    """ACL LOAD would remove all users (spec US7)."""
    host.acl_path = str(tmp_path / "users.acl")
    texts = []
    [failure] = write(host, lambda done: host.read_acl_file(texts.append, done))
    assert isinstance(failure, FileNotFoundError)
    assert texts == []
    (tmp_path / "users.acl").write_bytes(b"user ann on\n")
    assert write(host, lambda done: host.read_acl_file(texts.append, done)) == [None]
    assert texts == [b"user ann on\n"]


def test_the_config_file_is_rewritten(host, configuration):
    configuration.settings.timeout = 6
    assert write(host, host.rewrite_config) == [None]
    with open(configuration.path) as file:
        assert file.read().startswith("timeout 6\n")
    assert host.watchdog.calls == ["turn"]


def test_of_several_rewrites_the_last_one_wins(host, configuration):
    def with_timeout(seconds):
        def deed(done):
            configuration.settings.timeout = seconds
            host.rewrite_config(done)

        return deed

    assert write(host, *map(with_timeout, range(6, 15))) == [None] * 9
    with open(configuration.path) as file:
        assert file.read().startswith("timeout 14\n")


def test_without_a_config_file_there_is_nothing_to_rewrite(host, configuration):
    assert host.has_config_file()
    configuration.path = ""
    assert not host.has_config_file()


def test_the_nodes_file_is_saved_or_the_reason_is_given(host, tmp_path):
    assert write(host, host.save_nodes) == [None]
    assert (tmp_path / "nodes.conf").read_text().startswith("version 1\n")
    (tmp_path / "nodes.conf").unlink()
    (tmp_path / "nodes.conf").mkdir()
    assert [failure.strerror for failure in write(host, host.save_nodes)] == ["Is a directory"]


def test_shutdown_is_an_orderly_end(host, endings):
    host.shutdown()
    assert endings == [Ending(0, -1, True)]


def test_a_graceful_restart_is_an_orderly_end(host, endings):
    host.restart(10, graceful=True)
    assert endings == [Ending(0, 10, True)]


def test_a_restart_like_a_crash_saves_nothing(host, endings, configuration):
    configuration.settings.timeout = 7
    host.restart(0, graceful=False)
    assert endings == [Ending(0, 0, False)]
    with open(configuration.path) as file:
        assert file.read() == "timeout 5\n"


def test_a_restart_is_not_possible_when_the_configuration_cannot_be_read_again(configuration, endings, tmp_path):
    saver = NodesFileSaver(str(tmp_path / "nodes.conf"), FileWriter(), print)
    settings, votes = stores_of(tmp_path)
    host = ProcessHost(configuration, FileWriter(), saver, settings, votes, endings.append, may_restart=False)
    with pytest.raises(LookupError, match="standard input"):
        host.restart(0, graceful=False)
    assert endings == []


def test_sleep_blocks_the_process(host):
    begun = time.monotonic()
    host.sleep(0.02)
    assert time.monotonic() - begun >= 0.02


def test_lines_go_into_the_log(host, caplog):
    with caplog.at_level(logging.WARNING):
        host.log("warning", "100% of it")
    assert "100% of it" in caplog.text


def test_a_crash_ends_the_process():
    code = "from disque_py.server.host import ProcessHost; ProcessHost.crash(None, 'assert')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == -6
