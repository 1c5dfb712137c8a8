"""disque-exporter beside a real cluster: one of its nodes stalls, one dies, and Prometheus' tool reads the text."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("prometheus_client", reason="the extra disque-py[metrics] is not installed")

from prometheus_client.parser import text_string_to_metric_families

from disque_py.gateway.metrics.table import INFO_METRICS, METRICS
from disque_py.loopback_ports import free_port


@pytest.fixture
def exporter():
    """Start the program: exporter(*words) → its address."""
    programs = []

    def start(*words):
        program = subprocess.Popen(
            [sys.executable, "-m", "disque_py.gateway.metrics.command", "--listen", f"127.0.0.1:{free_port()}", *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        programs.append(program)
        assert program.stderr is not None
        return re.search(r"http://\S+(?=/metrics)", program.stderr.readline())[0]

    yield start
    for program in programs:
        program.send_signal(signal.SIGTERM)
        assert program.wait(10) == 0
        program.stderr.close()


def text_of(address):
    with urllib.request.urlopen(address + "/metrics", timeout=20) as answer:
        return answer.read().decode()


def scrape(address):
    """Return name → the samples, as (labels, value)."""
    found = {}
    for family in text_string_to_metric_families(text_of(address)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def ups(address):
    return {labels["node"].rpartition(":")[2]: value for labels, value in scrape(address)["disque_up"]}


def wait_until(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_metric_comes_from_a_real_node(make_cluster, exporter):
    """A row without a source would stay empty. Rows that a prefix of INFO makes need a reason or a reader first."""
    cluster = make_cluster(2, "--appendonly", "yes")
    first = cluster.servers[0]
    first.command("ADDJOB", "mail", "x", 1000)
    first.command("ADDJOB", "mail", "x", 1000)
    first.command("GETJOB", "FROM", "mail")
    first.command("PAUSE", "mail", "in")
    found = scrape(exporter("--node", f"127.0.0.1:{first.port}", "--metrics-max-queues", "5"))
    with_prefix = {metric.name for metric in INFO_METRICS if metric.prefix}
    assert {metric.name for metric in METRICS} - set(found) <= with_prefix


def test_jobs_are_counted_once_and_copies_are_not(cluster, exporter):
    a, b, _ = cluster.servers
    for server in (a, b):
        for _ in range(5):
            server.command("ADDJOB", "mail", "x", 5000, "REPLICATE", 3)
    a.command("GETJOB", "COUNT", 2, "FROM", "mail")
    address = exporter("--discover", "--node", f"127.0.0.1:{a.port}")
    wait_until(lambda: len(ups(address)) == 3)
    jobs = scrape(address)["disque_queue_jobs"]
    totals = {state: sum(n for labels, n in jobs if labels["state"] == state) for state in ("pending", "running")}
    assert totals == {"pending": 8, "running": 2}


def test_a_stopped_node_delays_one_scrape_and_the_others_answer(cluster, exporter):
    a, b, c = cluster.servers
    nodes = [word for server in (a, b, c) for word in ("--node", f"127.0.0.1:{server.port}")]
    address = exporter(*nodes, "--timeout", "0.8")
    wait_until(lambda: set(ups(address).values()) == {1.0})
    b.pause()
    try:
        assert ups(address) == {str(a.port): 1, str(b.port): 0, str(c.port): 1}
        started = time.monotonic()
        for _ in range(5):
            assert ups(address) == {str(a.port): 1, str(b.port): 0, str(c.port): 1}
        assert time.monotonic() - started < 5 * 0.8
    finally:
        b.resume()
    wait_until(lambda: set(ups(address).values()) == {1.0})


def test_a_killed_node_is_down_and_up_again_after_its_restart(cluster, exporter):
    a, b, _ = cluster.servers
    address = exporter("--discover", "--node", f"127.0.0.1:{a.port}")
    wait_until(lambda: sorted(ups(address).values()) == [1, 1, 1])
    b.kill()
    wait_until(lambda: ups(address)[str(b.port)] == 0)
    link = {"node": f"127.0.0.1:{a.port}", "peer": f"127.0.0.1:{b.port}"}
    wait_until(lambda: (link, 0) in scrape(address)["disque_link_up"])
    b.restart()
    wait_until(lambda: sorted(ups(address).values()) == [1, 1, 1])


def test_a_password_is_taken_from_the_environment(make_server, exporter, monkeypatch):
    server = make_server("--requirepass", "secret").start()
    monkeypatch.setenv("DISQUECLI_AUTH", "secret")
    assert list(ups(exporter("--node", f"127.0.0.1:{server.port}")).values()) == [1]
    monkeypatch.delenv("DISQUECLI_AUTH")
    assert list(ups(exporter("--node", f"127.0.0.1:{server.port}")).values()) == [0]


def test_promtool_reports_no_problem(server, exporter):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    server.command("ADDJOB", "mail", "x", 1000)
    text = text_of(exporter("--node", f"127.0.0.1:{server.port}"))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
