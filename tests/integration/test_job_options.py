"""KEY, TOKEN, META and PRIORITY with the client library, over real sockets and across kill -9."""

from __future__ import annotations

from disque_py.client import Address, Disque

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def client_of(server):
    return Disque(Address("127.0.0.1", server.port), discover=False)


def test_one_job_per_key_from_any_node_even_after_all_were_killed(make_cluster):
    cluster = make_cluster(3, *ALWAYS)
    clients = [client_of(cluster[index]) for index in range(3)]
    ids = {client.add_job("q", "body", key="k", replicate=2) for client in clients}
    assert len(ids) == 1
    (job,) = clients[2].get_jobs("q", timeout_ms=5_000)
    clients[1].ack(job)
    for index in range(3):
        cluster[index].kill()
    for index in range(3):
        cluster[index].start()
    cluster.wait_whole()
    holder = next(client for client in clients if client.info("jobs")["used_keys"])
    assert {holder.add_job("q", "again", key="k")} == ids
    for client in clients:
        client.close()


def test_a_token_returns_the_same_jobs_after_a_kill_and_acknowledges_them(make_server):
    server = make_server(*ALWAYS).start()
    with client_of(server) as client:
        for number in (3, 1, 2):
            client.add_job("q", "body", priority=number, meta={"number": str(number)}, retry=300)
        first = client.get_jobs("q", count=2, token="t", withmeta=True, withlease=True, lease=60)
        assert [(job.meta, job.attempt, job.lease_ms) for job in first] == [
            ({"number": "1"}, 1, 60_000),
            ({"number": "2"}, 1, 60_000),
        ]
        node = first[0].node
    server.kill()
    server.start()
    with client_of(server) as client:
        again = client.get_jobs("q", token="t", withmeta=True, node=node)
        assert [job.id for job in again] == [job.id for job in first]
        assert client.extend_token("t", 90, node=node) == 2
        assert client.ack_token("t", node=node) == 2
        assert client.ack_token("t", node=node) == 0
        assert [job.meta for job in client.get_jobs("q", count=9, timeout_ms=5_000, withmeta=True)] == [{"number": "3"}]
