"""Queue settings with the client library, over real sockets and across kill -9, without a journal."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disque_py.client import Address, Disque, TooBigError
from disque_py.storage.framed_file import frame


def client_of(server):
    return Disque(Address("127.0.0.1", server.port), discover=False)


def test_settings_are_on_all_nodes_and_survive_kills(make_cluster):
    """Spec QS3, QS4."""
    cluster = make_cluster(3)
    with client_of(cluster[0]) as client:
        assert client.set_queue("mail", lease=timedelta(milliseconds=1_500), ttl=60, maxsize=4) == "OK"
        assert client.queue_settings("mail").behind == 0
    for index in range(3):
        cluster[index].kill()
    cluster[2].start()
    cluster[1].start()
    with client_of(cluster[1]) as client:
        found = client.queue_settings("mail")
        assert (found.lease, found.ttl, found.maxsize) == (timedelta(seconds=1.5), timedelta(minutes=1), 4)
        assert client.queues_with_settings("m*") == ["mail"]
        assert client.show(client.add_job("mail", "body", replicate=1)).retry == 2
        with pytest.raises(TooBigError):
            client.add_job("mail", "bodies")
        assert client.reset_queue("mail") == "OK"
    cluster[0].start()
    cluster.wait_whole()
    with client_of(cluster[0]) as client:
        assert client.queue_settings("mail").version == 2
        assert client.queues_with_settings() == []


def test_a_torn_file_is_repaired_and_a_damaged_one_prevents_the_start(make_server):
    """Spec QS3."""
    server = make_server().start()
    with client_of(server) as client:
        client.set_queue("mail", lease=30)
        client.set_queue("mail", lease=40)
    server.kill()
    (path,) = server.folder.glob("*.queues")
    good = path.read_bytes()
    path.write_bytes(good + frame([(b"mail", b"lease", b"50", 3, b"a" * 20)])[:-2])
    server.start()
    with client_of(server) as client:
        assert client.queue_settings("mail").lease == timedelta(seconds=40)
    server.kill()
    path.write_bytes(good.replace(b"lease", b"leash", 1))
    server.launch()
    assert server.wait_ended() == 1
    assert "can't be used: the checksum" in server.output()
