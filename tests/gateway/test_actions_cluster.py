"""Operations on the cluster: nodes, schedules, bulk work."""

from __future__ import annotations

from gateways import add, until


def test_moving_jobs_is_a_long_operation_with_progress(gateway, queue):
    add(gateway, queue, 2)
    work = gateway.post(f"/v1/queues/{queue}/move", {"to": f"{queue}-b"}).json
    assert until(lambda: gateway.get(f"/v1/operations/{work['id']}").json["state"] == "done")
    assert work["id"] in {each["id"] for each in gateway.get("/v1/operations").json["operations"]}
    assert gateway.request("DELETE", f"/v1/operations/{work['id']}").json["stopped"] is False


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
    assert gateway.post(f"{path}/run").status == 404
