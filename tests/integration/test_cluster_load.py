"""Clusters of real nodes under full memory, floods of requests, and misbehaving clients and unknown nodes."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter

import hiredis
import pytest

from cluster_bus.codec import HANDSHAKE_VERSION, PROTOCOL_MAX, Decoder, encode_run, frame
from cluster_bus.handshake import DIALER, Handshake, Hello
from cluster_bus.messages import MEET
from disque_py.loopback_ports import BUS_PORT_DISTANCE, HOST
from servers import until
from workers import consumer, is_refused, jobs_of, knows, producer, rss_of, running, take, worst_ping_s

HICCUP_S = 1.0


# -- memory ----------------------------------------------------------------------------------------


def fill(server, share, *options, body=b"x" * 5000):
    """Add jobs until this share of maxmemory is used, and return their ids."""
    limit = int(server.info("memory")["maxmemory"])
    ids = []
    while int(server.info("memory")["used_memory"]) < share * limit:
        ids.append(server.command("ADDJOB", "filling", body, 2000, *options))
    return ids


def test_above_three_quarters_of_its_memory_a_node_keeps_no_copy_if_others_can(make_cluster):
    """The job is accepted, kept on other nodes, and still delivered here."""
    a, b, c = make_cluster(3).servers
    a.command("CONFIG", "SET", "maxmemory", "1mb")
    until(lambda: int(a.info("memory")["maxmemory"]) == 1 << 20)
    fill(a, 0.75, "REPLICATE", 1)
    used = int(a.info("memory")["used_memory"])
    ids = [a.command("ADDJOB", "q", "x" * 20_000, 3000, "REPLICATE", 2) for _ in range(20)]
    assert [knows(server, ids[0]) for server in (a, b, c)] == [False, True, True]
    assert int(a.info("memory")["used_memory"]) < used + 100_000
    a.command("ACKJOB", *(job[1] for job in a.command("GETJOB", "COUNT", 10_000, "FROM", "filling")))
    assert len({take(a, "q") for _ in ids}) == 1
    until(lambda: jobs_of(a) == jobs_of(b) == jobs_of(c) == 0)


def test_a_lone_node_can_be_filled_up_and_acks_make_room(make_server):
    """At 100 % producers get -OOM. Consumers go on, and their acks free memory for producers."""
    server = make_server("--maxmemory", "1mb").start()
    with pytest.raises(hiredis.ReplyError, match=r"^OOM"):
        fill(server, 2)
    memory = server.info("memory")
    assert int(memory["used_memory"]) > 0.95 * (1 << 20)
    assert "OOM" in is_refused(server, "ADDJOB", "q", "x", 100)
    jobs = server.command("GETJOB", "COUNT", 50, "FROM", "filling")
    assert server.command("ACKJOB", *(job[1] for job in jobs)) == 50
    assert int(server.info("memory")["used_memory"]) < int(memory["used_memory"]) - 50 * 5000
    assert server.command("ADDJOB", "q", "x", 100)


def test_above_95_percent_finished_jobs_make_room_for_new_ones(make_server):
    """Delivered at-most-once jobs are no longer needed. Queued ones stay."""
    server = make_server("--maxmemory", "1mb").start()
    fill(server, 0.5, "RETRY", 0)
    delivered = server.command("GETJOB", "COUNT", 1000, "FROM", "filling")
    assert int(server.info("memory")["used_memory"]) >= 0.4 * (1 << 20)
    ids = [server.command("ADDJOB", "q", b"y" * 5000, 2000) for _ in range(150)]
    assert all(knows(server, job_id) for job_id in ids)
    assert int(server.info("jobs")["total_jobs_evicted"]) > 0
    assert not all(knows(server, job[1]) for job in delivered)


# -- clients and strangers that misbehave ----------------------------------------------------------


def test_garbage_on_both_ports_does_not_disturb_other_connections(healthy):
    """The garbage is random bytes, half requests, huge lengths and other protocols, on many connections."""
    a = healthy[0]
    pieces = [
        os.urandom(20_000),
        b"*3\r\n$6\r\nADDJOB\r\n$999999999\r\nx",
        b"*2147483647\r\n" + b"$1\r\nx\r\n" * 1000,
        b"\xff\xff\xff\xff" + b"\0" * 1000,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"x" * 200_000,
        b"\r\n" * 30_000,
    ]

    def pour(port):
        def go(over):
            while not over.is_set():
                for piece in pieces:
                    with socket.create_connection((HOST, port), 5) as sock:
                        sock.settimeout(0.02)
                        try:
                            sock.sendall(piece)
                            sock.recv(1000)
                        except OSError:
                            pass

        return go

    ends = time.monotonic() + 2.5
    with running(*(pour(port) for port in (a.port, a.port + BUS_PORT_DISTANCE) for _ in range(2))):
        worst = worst_ping_s(a, lambda: time.monotonic() > ends)
    assert worst < HICCUP_S
    healthy.wait_whole()
    assert "Traceback" not in a.output()
    until(lambda: int(a.info("clients")["connected_clients"]) < 10)


def test_unread_replies_do_not_fill_the_memory(make_server):
    """A client that pipelines GETJOBs and never reads gets about 1 MiB. The other jobs stay for others (spec Q41)."""
    server = make_server().start()
    for _ in range(120):
        server.command("ADDJOB", "q", b"x" * 500_000, 0)
    before = rss_of(server)
    request = hiredis.pack_command(("GETJOB", "NOHANG", "COUNT", "20", "FROM", "q")) * 200
    stuffed = [server.connect() for _ in range(4)]
    try:
        for client in stuffed:
            client.send_raw(request)
        ends = time.monotonic() + 1
        assert worst_ping_s(server, lambda: time.monotonic() > ends) < HICCUP_S
        assert server.command("QLEN", "q") > 40
        assert rss_of(server) - before < 40_000_000
        assert len(server.command("GETJOB", "NOHANG", "FROM", "q")) == 1
    finally:
        for client in stuffed:
            client.close()


def test_a_reply_that_is_asked_for_again_and_again_does_not_fill_the_memory(make_server):
    """A thousand replies with the same job would take a gigabyte."""
    server = make_server().start()
    job_id = server.command("ADDJOB", "q", b"x" * 1_000_000, 0)
    before = rss_of(server)
    with server.connect() as stuffed:
        stuffed.send_raw(hiredis.pack_command(("SHOW", job_id)) * 1000)
        ends = time.monotonic() + 0.7
        assert worst_ping_s(server, lambda: time.monotonic() > ends) < HICCUP_S
        assert rss_of(server) - before < 30_000_000


@pytest.mark.parametrize("body_bytes", [1_000, 1_000_000])
def test_a_node_that_does_not_read_for_seconds_delays_no_other(make_cluster, body_bytes):
    """The node is stopped and not suspected yet, so the other nodes send to it as before.

    They keep unread data for it up to a limit. Then they cut the link, as often as needed. The other nodes are not
    delayed, and the stopped node catches up when it goes on (spec Q34).
    """
    cluster = make_cluster(3, "--cluster-node-timeout", 60_000, "--proto-max-bulk-len", "2mb")
    a, b, c = cluster.servers
    added, got = [], [Counter(), Counter()]
    before = rss_of(a)
    # The most of both. A process returns memory of jobs that are over later than it stops counting it.
    peak = Counter()

    def is_enough():
        memory = a.info("memory")
        for name in ("used_memory_rss", "used_memory"):
            peak[name] = max(peak[name], int(memory[name]))
        is_cut = "cluster_links_rejected_too_much_unsent" in a.info("cluster")
        return len(added) >= (1_000 if body_bytes == 1_000 or is_cut else 5_000)

    c.pause()
    producers = [producer(a, "q", added, "REPLICATE", 2, body="x" * body_bytes, pause_s=0) for _ in range(8)]
    with running(consumer(a, "q", got[0]), consumer(b, "q", got[1])):
        with running(*producers):
            worst = worst_ping_s(a, is_enough)
        worst = max(worst, worst_ping_s(b, lambda: sum(map(len, got)) >= len(added)))
    assert worst < HICCUP_S
    assert peak["used_memory_rss"] - peak["used_memory"] - before < 150_000_000  # Without the node's own jobs.
    assert (body_bytes == 1_000) == ("cluster_links_rejected_too_much_unsent" not in a.info("cluster"))
    assert jobs_of(a) > 0  # The stopped node has not confirmed yet.
    c.resume()
    cluster.wait_whole()
    until(lambda: jobs_of(a) == jobs_of(b) == jobs_of(c) == 0, 30)
    assert set(added) == set(got[0] + got[1])


def stranger(server):
    """Return a connection to the bus that has completed the handshake as an unknown node, with port 1."""
    sock = socket.create_connection((HOST, server.port + BUS_PORT_DISTANCE), 5)
    shake = Handshake(DIALER, Hello(os.urandom(20), os.urandom(8), "", 1, 1), os.urandom(16), b"")
    decoder = Decoder(versions=(HANDSHAKE_VERSION, HANDSHAKE_VERSION))
    sock.sendall(shake.first_frame())
    while not shake.is_done:
        for runs in decoder.feed(sock.recv(4096)):
            sock.sendall(shake.receive(runs))
    return sock


def test_many_unknown_nodes_cost_little_and_keep_no_node_out(make_server):
    """Without a secret, any process may send MEET, begin a frame or keep a connection, under any id."""
    a, b = make_server().start(), make_server().start()
    header = {"host": "", "port": 1, "bus_port": 1, "flags": 0}
    meet = frame(PROTOCOL_MAX, [encode_run(MEET, [(header, [])])])
    half = (60 << 20).to_bytes(4, "big") + bytes((PROTOCOL_MAX,))
    held = []

    def blocked_producers(over):
        while not over.is_set() and len(held) < 900:
            sock = stranger(a)
            sock.sendall((meet, half, b"")[len(held) % 3])
            held.append(sock)

    ends = time.monotonic() + 4
    with running(blocked_producers):
        worst = worst_ping_s(a, lambda: time.monotonic() > ends or len(held) >= 900)
    assert worst < HICCUP_S
    assert len(held) > 400
    assert len(a.nodes()) < 300
    assert len(os.listdir(f"/proc/{a.pid}/fd")) < 700
    a.meet(b)
    until(lambda: b.node_id in a.nodes() and "connected" in a.nodes()[b.node_id])
    assert a.command("ADDJOB", "q", "body", 2000, "REPLICATE", 2)
    assert a.info("cluster")["cluster_size"] == "2"
    for sock in held:
        sock.close()
