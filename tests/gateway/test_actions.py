"""Operations on queues: lists, pages, settings, bulk work."""

from __future__ import annotations

import time

from disque_py.gateway import actions
from disque_py.gateway.operations import TABLE


def add(gateway, queue, count=1, **words):
    for _ in range(count):
        gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"} | words)


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_every_operation_with_json_has_an_action():
    assert set(actions.ACTIONS) == {row.name for row in TABLE if row.form == "json"}


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


def test_a_paused_queue_takes_no_job(gateway, queue):
    assert gateway.post(f"/v1/queues/{queue}/pause", {"direction": "in"}).json == {"paused": "in"}
    reply = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
    assert (reply.status, reply.json["code"]) == (409, "PAUSED")
    assert gateway.post(f"/v1/queues/{queue}/resume").json == {"paused": "none"}
    assert gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).status == 201


def test_moving_is_work_with_a_progress(gateway, queue):
    add(gateway, queue, 2)
    work = gateway.post(f"/v1/queues/{queue}/move", {"to": f"{queue}-b"}).json
    assert until(lambda: gateway.get(f"/v1/operations/{work['id']}").json["state"] == "done")
    assert work["id"] in {each["id"] for each in gateway.get("/v1/operations").json["operations"]}
    assert gateway.request("DELETE", f"/v1/operations/{work['id']}").json["stopped"] is False


def test_a_waiting_job_is_rescheduled_promoted_and_canceled(gateway, queue):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "delay_ms": 600_000}).json["id"]
    assert gateway.post(f"/v1/jobs/{job}/reschedule", {"delay_ms": 500_000}).json == {"changed": 1}
    assert gateway.post(f"/v1/jobs/{job}/promote").json == {"changed": 1}
    assert gateway.get(f"/v1/jobs/{job}").json["status"] == "pending"
    assert gateway.post(f"/v1/jobs/{job}/cancel").json == {"changed": 1}


def test_jobs_are_found_by_their_keys(gateway, queue):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "key": "k"}).json["id"]
    reply = gateway.post(f"/v1/queues/{queue}/jobs:find", {"keys": ["k", "none"]})
    assert reply.json == {"ids": {"k": job, "none": None}}


def test_the_history_of_a_job_is_told_by_all_nodes(gateway, queue):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"]
    gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000})
    gateway.post(f"/v1/jobs/{job}/complete")

    def events():
        found = [each["event"] for each in gateway.get(f"/v1/jobs/{job}/history").json["events"]]
        return found if "acked" in found else None

    assert until(events)[0] == "added"


def test_nodes_are_shown_with_their_links(gateway):
    nodes = gateway.get("/v1/nodes").json["nodes"]
    assert [(node["is_up"], sum(link["is_linked"] for link in node["links"])) for node in nodes] == [(True, 2)] * 3


def test_a_schedule_is_paused_run_and_deleted(gateway, nodes, queue):
    with nodes.client() as client:
        client.execute("SCHEDULE", "SET", queue, "EVERY", "1h", "QUEUE", queue, "BODY", "tick")
    [found] = [each for each in gateway.get("/v1/schedules").json["schedules"] if each["name"] == queue]
    assert (found["queue"], found["body"], found["paused"]) == (queue, "tick", 0)
    path = f"/v1/schedules/{queue}"
    assert gateway.post(f"{path}/pause").status == 200
    job = gateway.post(f"{path}/run").json["id"]
    assert gateway.get(f"/v1/jobs/{job}").json["body"] == "tick"
    assert gateway.post(f"{path}/resume").status == 200
    assert [gateway.request("DELETE", path).status for _ in range(2)] == [200, 404]
