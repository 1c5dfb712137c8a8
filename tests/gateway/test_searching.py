"""Searches over all jobs of a queue, on all nodes, and changes of all that match."""

from __future__ import annotations

import pytest

from gateways import until


def filled(gateway, queue, count, **words):
    """Add jobs in one batch."""
    lines = b"\n".join(b'{"body":"%d","attempts":1,"replicate":3}' % number for number in range(count))
    headers = {"Content-Type": "application/x-ndjson"}
    gateway.post(f"/v1/queues/{queue}/jobs:batch", body=lines, headers=headers)


def fail(gateway, queue, reasons):
    """Take a job for each reason, and fail it."""
    for reason in reasons:
        [job] = gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 5000, "lease_ms": 600_000}).json["jobs"]
        gateway.post(f"/v1/jobs/{job['id']}/fail", {"final": True, "reason": reason})


def search(gateway, queue, **words):
    reply = gateway.post(f"/v1/queues/{queue}/jobs:search", words)
    assert reply.status == 200, reply.text
    return reply.json


def depth(gateway, queue):
    return gateway.get(f"/v1/queues/{queue}/depth").json


def test_each_job_is_found_once_however_many_copies_it_has(gateway, queue):
    """Spec Z2. Every node holds each job."""
    filled(gateway, queue, 1100)
    found = search(gateway, queue, limit=1000)
    assert (found["matching"], found["looked_at"], found["is_complete"]) == (1100, 1100, True)
    rest = search(gateway, queue, limit=1000, cursor=found["cursor"])
    assert len({job["id"] for job in found["jobs"] + rest["jobs"]}) == 1100
    assert rest["cursor"] is None


def test_errored_jobs_are_found_and_grouped_by_reason(gateway, queue):
    filled(gateway, queue, 4)
    fail(gateway, queue, ["timeout after 5 s", "mailbox full", "mailbox full"])
    assert until(lambda: search(gateway, queue, status="errored")["matching"] == 3)
    found = search(gateway, queue, status="errored")
    assert found["reasons"][0] == {"reason": "mailbox full", "jobs": 2}
    assert search(gateway, queue, status="errored", reason="time")["jobs"][0]["error"] == "timeout after 5 s"
    assert search(gateway, queue, status="errored", older_ms=3_600_000)["matching"] == 0
    assert search(gateway, queue, older_ms=1)["matching"] == 1


def test_all_that_a_search_finds_are_changed(gateway, queue):
    filled(gateway, queue, 5)
    fail(gateway, queue, ["a", "b", "b"])
    assert until(lambda: search(gateway, queue, status="errored", reason="b")["matching"] == 2)
    change = {"action": "requeue", "status": "errored", "reason": "b"}
    refused = gateway.post(f"/v1/queues/{queue}/jobs:change", change | {"expected": 7})
    assert (refused.status, refused.json["code"]) == (409, "CONFIRM")
    work = gateway.post(f"/v1/queues/{queue}/jobs:change", change | {"expected": 2})
    assert (work.status, work.json["total"]) == (202, 2)
    assert until(lambda: gateway.get(f"/v1/operations/{work.json['id']}").json["state"] == "done")
    assert until(lambda: depth(gateway, queue)["errored"] == 1)
    gateway.post(f"/v1/queues/{queue}/jobs:change", {"action": "cancel"})
    assert until(lambda: depth(gateway, queue)["pending"] == 0)
    assert until(lambda: depth(gateway, queue)["errored"] == 1)


def test_a_change_moves_each_job_that_a_search_finds(gateway, queue):
    filled(gateway, queue, 5)
    fail(gateway, queue, ["a", "b", "b"])
    assert until(lambda: search(gateway, queue, status="errored", reason="b")["matching"] == 2)
    change = {"action": "move", "to": f"{queue}-b", "status": "errored", "reason": "b", "expected": 2}
    work = gateway.post(f"/v1/queues/{queue}/jobs:change", change).json
    assert until(lambda: gateway.get(f"/v1/operations/{work['id']}").json["state"] == "done")
    assert gateway.get(f"/v1/operations/{work['id']}").json["jobs"] == 2
    assert until(lambda: (depth(gateway, queue)["errored"], depth(gateway, f"{queue}-b")["errored"]) == (1, 2))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"action": "move"}, "move needs 'to'"),
        ({"action": "cancel", "to": "other"}, "only for move"),
        ({"action": "move", "to": "same"}, "the queues are the same"),
    ],
)
def test_only_a_move_has_another_queue(gateway, words, text):
    reply = gateway.post("/v1/queues/same/jobs:change", words)
    assert (reply.status, text in reply.text) == (400, True)


def test_a_search_ends_at_its_limit_and_then_nothing_is_changed(make_gateway, queue):
    gateway = make_gateway(search_max=10)
    filled(gateway, queue, 15)
    found = search(gateway, queue)
    assert (found["looked_at"], found["is_complete"]) == (10, False)
    reply = gateway.post(f"/v1/queues/{queue}/jobs:change", {"action": "cancel"})
    assert (reply.status, "search-max" in reply.text) == (409, True)
    assert depth(gateway, queue)["pending"] == 15


@pytest.mark.parametrize("words", [{"where": {"a": "b"}}, {"reason": "x"}])
def test_a_search_by_metadata_or_reason_needs_the_role_bodies(make_gateway, queue, tmp_path, words):
    from disque_py.gateway.logins.access_file import token_entry

    path = tmp_path / "access.toml"
    path.write_text(token_entry("reader", "dq_reader", ["operate"], None))
    gateway = make_gateway(access_file=path)
    path = f"/v1/queues/{queue}/jobs:search"
    assert gateway.post(path, words, login="Bearer dq_reader").status == 403
    assert gateway.post(path, {"older_ms": 5}, login="Bearer dq_reader").status == 200
    change = {"action": "cancel", "expected": 10**9}
    path = f"/v1/queues/{queue}/jobs:change"
    assert gateway.post(path, change | words, login="Bearer dq_reader").status == 403
    assert gateway.post(path, change, login="Bearer dq_reader").json["code"] == "CONFIRM"


def test_an_operation_belongs_to_the_gateway_that_began_it(gateway, queue):
    filled(gateway, queue, 1)
    work = gateway.post(f"/v1/queues/{queue}/jobs:change", {"action": "cancel"}).json
    assert work["id"] in {each["id"] for each in gateway.get("/v1/operations").json["operations"]}
    assert until(lambda: gateway.get(f"/v1/operations/{work['id']}").json["state"] == "done")
    assert gateway.request("DELETE", f"/v1/operations/{work['id']}").json["stopped"] is False
    assert gateway.get("/v1/operations/gateway-0").status == 404
