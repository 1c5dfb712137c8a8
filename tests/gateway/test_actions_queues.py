"""Operations on queues: lists, pages, settings, pauses."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from gateways import add, until


def test_jobs_are_listed_by_page(gateway, queue):
    add(gateway, queue, 3)
    first = gateway.get(f"/v1/queues/{queue}/jobs?limit=2").json
    rest = gateway.get(f"/v1/queues/{queue}/jobs?limit=2&cursor={first['cursor']}").json
    assert len({job["id"] for job in first["jobs"] + rest["jobs"]}) == 3
    assert rest["cursor"] is None


def test_errored_jobs_are_listed_with_their_reason(gateway, queue):
    add(gateway, queue)
    [job] = gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000}).json["jobs"]
    gateway.post(f"/v1/jobs/{job['id']}/fail", {"final": True, "reason": "no such user"})
    [found] = gateway.get(f"/v1/queues/{queue}/jobs?status=errored").json["jobs"]
    assert (found["error"], found["attempt"], found["status"]) == ("no such user", 1, "errored")
    assert gateway.get(f"/v1/queues/{queue}/depth").json["errored"] == 1
    reply = gateway.post(f"/v1/queues/{queue}/redrive", {})
    assert reply.status == 202
    assert until(lambda: gateway.get(f"/v1/queues/{queue}/depth").json["pending"] == 1)


def test_queues_are_sorted_searched_and_paged(gateway, queue):
    for number in range(3):
        add(gateway, f"{queue}-p{number}", number + 1)
    path = f"/v1/queues?match={queue}-p*&sort=pending&limit=2"
    assert until(lambda: gateway.get(path).json["total"] == 3)
    found = until(lambda: [each for each in [gateway.get(path).json] if each["queues"][0]["pending"] == 3])[0]
    assert [row["name"] for row in found["queues"]] == [f"{queue}-p2", f"{queue}-p1"]
    assert [row["name"] for row in gateway.get(f"{path}&cursor={found['cursor']}").json["queues"]] == [f"{queue}-p0"]


def test_settings_are_changed_one_by_one(gateway, queue):
    gateway.request("PUT", f"/v1/queues/{queue}", {"lease_ms": 90_000, "replicate": "2"})
    gateway.request("PUT", f"/v1/queues/{queue}", {"maxlen": 7, "dead_letter": "dead"})
    found = gateway.get(f"/v1/queues/{queue}").json["settings"]
    assert (found["lease_ms"], found["replicate"], found["maxlen"], found["dead_letter"]) == (90_000, 2, 7, "dead")


def test_a_queue_has_the_same_fields_with_and_without_jobs(gateway, queue):
    """A queue that only has settings has no jobs, and perhaps a pause."""
    path = f"/v1/queues/{queue}"
    gateway.request("PUT", path, {"attempts": 3})
    empty = gateway.get(path).json
    assert (empty["pending"], empty["errored"], empty["paused"], empty["rate_in"]) == (0, 0, "none", 0)
    add(gateway, queue)
    full = gateway.get(path).json
    assert (full["pending"], full.keys()) == (1, empty.keys())


def test_a_list_of_required_metadata_is_emptied(gateway, queue):
    path = f"/v1/queues/{queue}"
    gateway.request("PUT", path, {"require_meta": ["tenant"]})
    assert gateway.post(f"{path}/jobs", {"body": "b"}).status == 409
    assert gateway.request("PUT", path, {"require_meta": []}).json["settings"]["require_meta"] == []
    assert gateway.post(f"{path}/jobs", {"body": "b"}).status == 201


def test_a_paused_queue_takes_no_job(gateway, queue):
    assert gateway.post(f"/v1/queues/{queue}/pause", {"direction": "in"}).json == {"paused": "in"}
    reply = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
    assert (reply.status, reply.json["code"]) == (409, "PAUSED")
    assert gateway.post(f"/v1/queues/{queue}/resume").json == {"paused": "none"}
    assert gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).status == 201


def test_jobs_are_found_by_their_keys(gateway, queue):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "key": "k"}).json["id"]
    reply = gateway.post(f"/v1/queues/{queue}/jobs:find", {"keys": ["k", "none"]})
    assert reply.json == {"ids": {"k": job, "none": None}}


@pytest.mark.parametrize("name", ["long-" + "w" * 300, "_other", b"\xff-binary"])
def test_lists_have_every_queue_also_those_without_labels_in_metrics(gateway, nodes, name):
    """Their names are too long for a label, are that of a sum, or are no text."""
    with nodes.client() as client:
        client.add_job(name, "b")
    shown = name if isinstance(name, str) else name.decode("utf-8", "replace")

    assert until(lambda: shown in [row["name"] for row in gateway.get("/v1/queues?limit=1000").json["queues"]])
    pages = ["", "queues", "jobs"] + [f"queue?name={quote(name)}"] * (shown == name)
    assert {gateway.get(f"/console/{page}").status for page in pages} == {200}
    assert f'queue="{shown}"' not in gateway.get("/metrics").text or name == "_other"
