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


def test_schedules_come_in_pages(gateway, nodes, queue):
    names = [f"{queue}-{number}" for number in range(5)]
    with nodes.client() as client:
        for name in names:
            client.execute("SCHEDULE", "SET", name, "EVERY", "1h", "QUEUE", queue, "BODY", "tick")
    pages = [gateway.get("/v1/schedules?limit=2").json]
    while pages[-1]["cursor"] is not None:
        pages.append(gateway.get(f"/v1/schedules?limit=2&cursor={pages[-1]['cursor']}").json)
    assert {len(page["schedules"]) for page in pages[:-1]} == {2}
    found = [each["name"] for page in pages for each in page["schedules"]]
    assert found == sorted(found)
    assert {page["total"] for page in pages} == {len(found)}
    assert set(names) <= set(found)
    assert gateway.get("/v1/schedules?cursor=x").json["code"] == "ERR"
    for name in names:
        assert gateway.request("DELETE", f"/v1/schedules/{name}").status == 200


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
