"""Repeated commands, while nodes can't accept them."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from disque_py import testing
from disque_py.client import Disque, LoadingError, NoQuorumError, NoReplError, ReplyError
from disque_py.integrations.patience import apersist, is_outage, is_passing, once, persist, unique
from disque_py.integrations.result_slots import ResultSlots


def refusing(*errors):
    """Return a function that raises these errors, one per call, and then returns 7."""
    left = list(errors)

    def work():
        if left:
            raise left.pop(0)
        return 7

    return work


def test_work_is_repeated_while_nodes_refuse_it_for_now():
    assert persist(refusing(NoReplError("NOREPL Timeout"), LoadingError("LOADING"))) == 7


def test_work_of_coroutines_is_repeated_too():
    async def work(found=refusing(NoReplError("NOREPL Timeout"))):  # noqa: B008
        return found()

    assert asyncio.run(apersist(work)) == 7


def test_other_refusals_are_raised_at_once():
    with pytest.raises(ReplyError, match="PAUSED"):
        persist(refusing(ReplyError("PAUSED in")))


def test_the_patience_for_refusals_ends():
    with pytest.raises(LoadingError):
        persist(refusing(*[LoadingError("LOADING")] * 99), 0.2)


def test_a_cluster_without_voters_does_not_get_them_by_waiting():
    assert is_passing(NoQuorumError("NOQUORUM 1 of 3 voters answered"))
    assert not is_passing(NoQuorumError("NOQUORUM no voters configured"))
    assert not is_outage(ReplyError("ERR"))


def test_a_job_that_is_added_once_has_a_key_of_its_own(client, name):
    words = once()
    assert client.add_job(name, "x", **words) == client.add_job(name, "x", **words)
    assert client.add_job(name, "x", **once()) != client.add_job(name, "x", **words)


def test_a_result_is_stored_when_enough_nodes_are_back():
    """One of three copies can't be made until the node is back."""
    with testing.cluster(3, appendonly=True, cluster_node_timeout=1000) as cluster, cluster.client() as client:
        cluster.kill(0)
        with Disque.from_url(cluster[1].url, patience=0.1) as other:
            threading.Timer(2, cluster[0].start).start()
            job_id = persist(lambda: other.add_job("three", "x", replicate=3, timeout_ms=300))
            assert client.show(job_id, cluster=True).body == b"x"
            ResultSlots(other, "slots").put("task", b"done", 60_000)
            assert ResultSlots(client, "slots").get("task") == b"done"


def test_a_forked_child_has_keys_of_its_own():
    """The child continues the numbers of its parent, so the keys need another prefix."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, unique().encode())
        os._exit(0)
    mine = unique()
    os.waitpid(child, 0)
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert mine.partition("-")[0] != theirs.partition("-")[0]
    assert mine.partition("-")[2] == theirs.partition("-")[2]
