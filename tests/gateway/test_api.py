"""The HTTP API: jobs from end to end, limits, wrong input, and callers that hang up."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time

import pytest

from disque_py import testing
from disque_py.gateway.actions import jobs
from disque_py.gateway.logins.access_file import token_entry
from gateways import Reply, until


def added(gateway, queue, **words):
    reply = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"} | words)
    assert reply.status == 201, reply.text
    return reply.json["id"]


def taken(gateway, queue, **words):
    return gateway.post(f"/v1/queues/{queue}/dequeue", words).json["jobs"]


def test_a_job_is_added_delivered_and_acknowledged(gateway, queue):
    job_id = added(gateway, queue, meta={"tenant": "a"}, delay_ms=0)
    [job] = taken(gateway, queue, wait_ms=2000)
    assert (job["id"], job["body"], job["meta"], job["attempt"]) == (job_id, "b", {"tenant": "a"}, 1)
    assert gateway.post(f"/v1/jobs/{job_id}/extend", {"attempt": 1, "lease_ms": 5000}).json["lease_ms"] == 5000
    assert gateway.post(f"/v1/jobs/{job_id}/fail", {"attempt": 1, "reason": "why"}).json == {"changed": 1}
    [job] = taken(gateway, queue, wait_ms=2000)
    shown = gateway.get(f"/v1/jobs/{job_id}").json
    assert (shown["status"], shown["error"], shown["attempt"]) == ("running", "why", 2)
    assert gateway.post(f"/v1/jobs/{job_id}/complete", {"attempt": 1}).json["code"] == "STALE"
    assert gateway.post(f"/v1/jobs/{job_id}/complete", {"attempt": 2}).json == {"changed": 1}
    assert gateway.get(f"/v1/jobs/{job_id}/wait?timeout_ms=2000").json["is_over"]


def test_the_place_of_a_new_job_is_in_the_answer(gateway, queue):
    reply = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
    assert gateway.get(reply.headers["location"]).json["id"] == reply.json["id"]


def test_raw_octets_have_their_options_in_the_query(gateway, queue):
    path = f"/v1/queues/{queue}/jobs?priority=5&meta=a:b&meta=c:d"
    reply = gateway.post(path, body=b"\xff\0", headers={"Content-Type": "application/octet-stream"})
    assert reply.status == 201
    [job] = taken(gateway, queue, wait_ms=2000)
    assert (job["body_base64"], job["meta"]) == ("/wA=", {"a": "b", "c": "d"})


def test_raw_octets_are_the_only_body(gateway, queue):
    path, headers = f"/v1/queues/{queue}/jobs", {"Content-Type": "application/octet-stream"}
    reply = gateway.post(f"{path}?body_base64=eA==", body=b"y", headers=headers)
    assert (reply.status, "body_base64" in reply.text) == (400, True)


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/json"])
def test_a_compressed_body_is_refused(gateway, queue, kind):
    """A consumer would get the compressed bytes."""
    headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
    reply = gateway.post(f"/v1/queues/{queue}/jobs", body=gzip.compress(b'{"body": "x"}'), headers=headers)
    assert (reply.status, "content-encoding must be identity" in reply.text) == (400, True)


@pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Type"])
def test_a_header_with_one_value_comes_once(gateway, name):
    """Behind a proxy that checks the first, the last would decide."""
    with socket.create_connection(("localhost", gateway.port), 10) as connection:
        twice = f"{name}: localhost\r\n{name}: localhost\r\n"
        head = twice if name == "Host" else f"Host: localhost\r\n{twice}"
        connection.sendall(f"GET /livez HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(9999), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    assert f"the header {name.lower()} came 2 times".encode() in answer


def test_a_name_may_have_any_character(gateway):
    name = "a/b c%\u00e4?#"
    path = "/v1/queues/a%2Fb%20c%25%C3%A4%3F%23"
    job_id = gateway.post(f"{path}/jobs", {"body": "b"}).json["id"]
    assert gateway.get(f"/v1/jobs/{job_id}").json["queue"] == name


def test_an_enqueue_with_a_request_id_has_its_effect_once(gateway, queue):
    assert added(gateway, queue, request_id="r1") == added(gateway, queue, request_id="r1")
    assert len(taken(gateway, queue, max=5, wait_ms=2000)) == 1


def test_a_dequeue_with_a_request_id_gives_the_same_jobs(gateway, queue):
    added(gateway, queue)
    added(gateway, queue)
    first = taken(gateway, queue, wait_ms=2000, request_id="t1")
    assert [job["id"] for job in taken(gateway, queue, wait_ms=2000, request_id="t1")] == [job["id"] for job in first]


def test_a_filter_takes_what_it_names(gateway, queue):
    added(gateway, queue, meta={"tenant": "a"})
    wanted = added(gateway, queue, meta={"tenant": "b"})
    assert [job["id"] for job in taken(gateway, queue, wait_ms=2000, where={"tenant": "b"})] == [wanted]


def test_a_batch_answers_a_line_per_line(gateway, queue):
    body = b'{"body":"1"}\n{"bdy":"2"}\n\n{"body":"3","delay_ms":-1}\n{"body":"4"}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    reply = gateway.post(f"/v1/queues/{queue}/jobs:batch", body=body, headers=headers)
    lines = [json.loads(line) for line in reply.body.splitlines()]
    assert ["id" in line for line in lines] == [True, False, False, True]
    assert "bdy" in lines[1]["detail"]
    assert "delay_ms" in lines[2]["detail"]


def test_jobs_are_completed_together(gateway, queue):
    ids = [added(gateway, queue) for _ in range(3)]
    assert gateway.post("/v1/jobs:complete", {"ids": ids}).json == {"changed": 3}


def test_a_purge_needs_the_queue_name_as_confirmation(gateway, queue):
    added(gateway, queue)
    assert gateway.request("DELETE", f"/v1/queues/{queue}").json["code"] == "CONFIRM"
    reply = gateway.request("DELETE", f"/v1/queues/{queue}?confirm={queue}")
    assert reply.status == 202
    deadline = time.monotonic() + 10
    while (work := gateway.get(reply.headers["location"]).json)["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (work["state"], work["jobs"]) == ("done", 1)


def test_a_caller_that_hangs_up_while_it_waits_takes_no_job(gateway, queue):
    caller = socket.create_connection(("127.0.0.1", gateway.port))
    body = b'{"wait_ms": 20000}'
    head = f"POST /v1/queues/{queue}/dequeue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    time.sleep(0.3)
    caller.close()
    job_id = added(gateway, queue)
    assert [job["id"] for job in taken(gateway, queue, wait_ms=5000)] == [job_id]


@pytest.fixture
def is_taken(monkeypatch):
    """An event that is set as jobs arrive at the gateway, whose event loop is then busy for half a second."""
    original, found = jobs.taken, threading.Event()

    async def slow(call):
        taken_jobs = await original(call)
        found.set()
        await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251  # the event loop is busy when the caller hangs up
        return taken_jobs

    monkeypatch.setattr(jobs, "taken", slow)
    return found


def hang_up_after(is_taken, gateway, verb, path, body):
    """Send a request, and hang up as its jobs arrive."""
    caller = socket.create_connection(("127.0.0.1", gateway.port))
    head = f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert is_taken.wait(10)
    caller.close()


@pytest.mark.parametrize(
    ("verb", "path"), [("POST", "/v1/queues/{queue}/dequeue"), ("GET", "/dyno/{queue}/pop?wait=20000")]
)
def test_jobs_that_arrive_as_their_caller_hangs_up_go_back(gateway, queue, is_taken, verb, path):
    added(gateway, queue)
    hang_up_after(is_taken, gateway, verb, path.format(queue=queue), b'{"wait_ms": 20000}' if verb == "POST" else b"")
    assert until(lambda: gateway.get(f"/v1/queues/{queue}/depth").json["pending"] == 1, 10)


def test_jobs_of_a_request_id_wait_for_its_repetition(gateway, queue, is_taken):
    """The caller may have repeated the request already, and work on these jobs."""
    job_id = added(gateway, queue)
    body = b'{"wait_ms": 20000, "request_id": "r1"}'
    hang_up_after(is_taken, gateway, "POST", f"/v1/queues/{queue}/dequeue", body)
    [job] = taken(gateway, queue, wait_ms=5000, request_id="r1")
    assert (job["id"], job["attempt"], job["nacks"]) == (job_id, 1, 0)


@pytest.mark.parametrize("path", ["/v1/queues", "/v1/nodes", "/v1/queues/none", "/v1/events", "/v1/openapi.json"])
def test_head_is_get_without_the_body(gateway, path):
    """RFC 9110, section 9.1: a server supports both. An event stream ends at once."""
    reply = gateway.request("HEAD", path)
    assert (reply.status, reply.body) == (404 if "none" in path else 200, b"")
    assert reply.headers["content-type"]


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/queues/q", "DELETE, GET, HEAD, PUT"),
        ("/livez", "GET, HEAD"),
        ("/dyno/q/push", "POST"),
        ("/console/", "GET, HEAD, POST"),
    ],
)
def test_a_wrong_method_is_answered_with_the_allowed_ones(gateway, path, allow):
    """RFC 9110, section 15.5.6."""
    reply = gateway.request("PATCH", path)
    assert (reply.status, reply.headers["allow"]) == (405, allow)


@pytest.mark.parametrize(
    ("verb", "path", "value", "status", "words"),
    [
        ("POST", "/v1/queues/q/jobs", {}, 400, "body"),
        ("POST", "/v1/queues/q/jobs", {"body": "b", "prority": 1}, 400, "did you mean 'priority'"),
        ("POST", "/v1/queues/q/jobs", {"body": 5}, 400, "body must be text"),
        ("POST", "/v1/queues/q/jobs", {"body": "b", "key": "a", "request_id": "b"}, 400, "key or request_id"),
        ("POST", "/v1/queues/q/jobs?priority=1", {"body": "b"}, 400, "no field 'priority'"),
        ("POST", "/v1/queues/q/jobs", [1], 400, "object"),
        ("POST", "/v1/queues/q/dequeue", {"wait_ms": 10**6}, 400, "wait-max-ms"),
        ("POST", "/v1/queues/q/dequeue", {"max": 0}, 400, "max"),
        ("POST", "/v1/jobs/xyz/complete", {}, 400, "BADID"),
        ("POST", "/v1/queues/q/move", {}, 400, "to is missing"),
        ("PUT", "/v1/queues/q", {}, 400, "setting"),
        ("PUT", "/v1/queues/q", {"more": {"no-such": "1"}}, 400, "no-such"),
        ("GET", "/v1/queues/none-such", None, 404, "NOTFOUND"),
        ("GET", "/v1/queues?sort=size", None, 400, "sort"),
        ("GET", "/v1/queues?limit=1&limit=2", None, 400, "2 times"),
        ("GET", "/v1/queues?cursor=x", None, 400, "cursor"),
        ("GET", "/v1/nothing", None, 404, "/docs"),
        ("PATCH", "/v1/queues/q", None, 405, "DELETE, GET, HEAD, PUT"),
        ("GET", "/v1/operations/00000000-1", None, 404, "NOTFOUND"),
        ("GET", "/v1/events?place=x", None, 400, "place"),
    ],
)
def test_wrong_input_gets_a_problem_that_names_it(gateway, verb, path, value, status, words):
    reply = gateway.request(verb, path, value)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    assert words in reply.text
    assert reply.json["status"] == status


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b'{"body": NaN}', b"null"])
def test_a_body_that_is_not_json_is_refused(gateway, body):
    reply = gateway.post("/v1/queues/q/jobs", body=body, headers={"Content-Type": "application/json"})
    assert (reply.status, reply.json["code"]) == (400, "ERR")


def test_json_needs_its_content_type(gateway):
    """Pages of other sites can send forms and plain text, but no JSON."""
    reply = gateway.post("/v1/queues/q/jobs", body=b'{"body":"b"}', headers={"Content-Type": "text/plain"})
    assert (reply.status, "content-type" in reply.text) == (400, True)


def test_another_host_is_refused(gateway):
    assert gateway.get("/v1/nodes", headers={"Host": "evil.example"}).status == 421


FOREIGN = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
)


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_another_site_changes_nothing(gateway, queue, headers):
    """A browser sends a form without a body, or an image's GET, to any address without asking its server first."""
    added(gateway, queue)
    pause = gateway.post(f"/v1/queues/{queue}/pause", body=b"", headers=headers)
    pop = gateway.get(f"/dyno/{queue}/pop?count=1000", headers=headers)
    assert [(reply.status, reply.json["code"]) for reply in (pause, pop)] == [(403, "NOPERM")] * 2
    found = gateway.get(f"/v1/queues/{queue}", headers=headers).json
    assert (found["pending"], found["paused"]) == (1, "none")


def test_a_token_of_a_page_of_another_site_may_change_something(make_gateway, nodes, queue, tmp_path):
    """A browser adds no such header by itself, so the page has the token."""
    path = tmp_path / "access.toml"
    path.write_text(token_entry("page", "word", ["admin"], None))
    gateway = make_gateway(url=nodes.url, access_file=path)
    headers = {**FOREIGN[0], "Authorization": "Bearer word"}
    assert gateway.post(f"/v1/queues/{queue}/resume", body=b"", headers=headers).status == 200


@pytest.mark.parametrize("site", ["same-origin", "none", ""])
def test_a_page_of_the_gateways_own_address_may_change_something(gateway, queue, site):
    headers = {"Sec-Fetch-Site": site} if site else {"Origin": f"http://127.0.0.1:{gateway.port}"}
    assert gateway.post(f"/v1/queues/{queue}/resume", body=b"", headers=headers).status == 200
    assert gateway.get(f"/dyno/{queue}/pop", headers=headers).json == []


def test_bytes_of_other_programs_that_are_not_text_are_replaced(gateway, nodes, queue):
    """A program with the broker's protocol may give any bytes as metadata, reason and name of a queue."""
    with nodes.client() as client:
        for body in ("a", "b"):
            client.execute("ADDJOB", queue, body, "5000", "META", "n", b"\xff\xfe", "ATTEMPTS", 2)
        client.execute("QPURGE", b"\xff" + queue.encode(), "ASYNC")
        [[_, job_id, *_]] = client.execute("GETJOB", "FROM", queue)
        client.execute("NACK", job_id, "REASON", b"\xff", "FINAL")
    path = f"/v1/jobs/{job_id.decode().replace('/', '%2F')}"
    assert gateway.get(path).json["error"] == "\ufffd"
    pages = (f"{path}/history", f"/console/jobs?queue={queue}", f"/console/jobs?queue={queue}&status=errored")
    pages += ("/v1/operations", "/console/operations", f"/dyno/{queue}/peek")
    assert {page: gateway.get(page).status for page in pages} == dict.fromkeys(pages, 200)
    [job] = taken(gateway, queue, wait_ms=2000)
    assert job["meta"] == {"n": "\ufffd\ufffd"}


def test_limits_are_named(make_gateway, queue):
    gateway = make_gateway(body_max=50, batch_max_jobs=1, batch_max_bytes=60, rate=1, address_rate=0)
    long = {"body": "b" * 100}
    assert "(body-max)" in gateway.post(f"/v1/queues/{queue}/jobs", long).text
    lines = {"Content-Type": "application/x-ndjson"}
    path = f"/v1/queues/{queue}/jobs:batch"
    time.sleep(1.1)
    assert "(batch-max-jobs)" in gateway.post(path, body=b'{"body":"1"}\n{"body":"1"}', headers=lines).text
    time.sleep(1.1)
    assert "(batch-max-bytes)" in gateway.post(path, body=b"x" * 100, headers=lines).text
    reply = gateway.get("/v1/queues")
    assert (reply.status, reply.headers["retry-after"], "(rate)" in reply.text) == (429, "1", True)


def test_a_chunked_body_has_the_same_limit(make_gateway):
    gateway = make_gateway(body_max=50)
    caller = socket.create_connection(("127.0.0.1", gateway.port))
    head = b"POST /v1/queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    caller.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n")
    assert b"413" in caller.recv(100)
    caller.close()


def test_a_line_of_a_batch_is_limited_like_a_body(make_gateway, queue):
    """The other lines are added."""
    gateway = make_gateway(body_max=50)
    body = b'{"body":"1"}\n{"body":"%s"}\n{"body":"2"}' % (b"x" * 50)
    headers = {"Content-Type": "application/x-ndjson"}
    lines = gateway.post(f"/v1/queues/{queue}/jobs:batch", body=body, headers=headers).text.splitlines()
    assert ['"id"' in line for line in lines] == [True, False, True]
    assert "(body-max)" in lines[1]


def test_a_caller_that_hangs_up_within_its_batch_is_no_fault(make_gateway):
    gateway = make_gateway()
    caller = socket.create_connection(("127.0.0.1", gateway.port))
    head = b"POST /v1/queues/q/jobs:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    caller.sendall(head + b'Content-Length: 100\r\n\r\n{"body"')
    caller.close()
    assert until(lambda: 'operation="enqueue_batch"' in gateway.get("/metrics").text)
    figures = [line for line in gateway.get("/metrics").text.splitlines() if 'operation="enqueue_batch"' in line]
    assert [line for line in figures if 'code="GONE"' not in line] == []


def test_a_read_only_gateway_changes_nothing(make_gateway):
    gateway = make_gateway(read_only="yes")
    assert "(read-only)" in gateway.post("/v1/queues/q/jobs", {"body": "b"}).text
    assert gateway.get("/v1/queues").status == 200


def test_a_base_path_is_in_front_of_all_paths(make_gateway, queue):
    gateway = make_gateway(base_path="/mq")
    assert gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).headers["location"].startswith("/mq/v1/jobs/")
    gateway.settings.base_path = ""
    assert gateway.get("/v1/queues").status == 404


def test_the_gateway_is_alive_and_ready(gateway):
    assert [gateway.get(path).status for path in ("/livez", "/readyz")] == [200, 200]


def test_without_nodes_the_gateway_is_alive_but_not_ready(make_gateway):
    gateway = make_gateway(url="disque://127.0.0.1:1/?patience=0.2")
    assert [gateway.get(path).status for path in ("/livez", "/readyz")] == [200, 503]
    reply: Reply = gateway.get("/v1/jobs/D-015ef0ef-djnn-iAXoyTWuipD8+yjDbcJ-05a1")
    assert (reply.status, reply.json["code"], "retry-after" in reply.headers) == (503, "NONODE", True)


def test_a_gateway_whose_login_the_nodes_refuse_says_so_when_asked_whether_it_is_ready(make_gateway):
    with testing.node(requirepass="secret") as node:
        reply = make_gateway(url=f"disque://:wrong@{node.address}").get("/readyz")
    assert (reply.status, reply.text) == (503, "the nodes refuse the gateway's login\n")


def test_lists_of_a_cluster_that_does_not_answer_are_refused(make_gateway):
    """An empty list would be wrong."""
    gateway = make_gateway(url="disque://127.0.0.1:1/?patience=0.2")
    replies = [gateway.get(f"/v1/{path}") for path in ("queues", "queues/q", "queues/q/jobs", "locks", "operations")]
    assert [(reply.status, reply.json["code"]) for reply in replies] == 5 * [(503, "NONODE")]
    assert "refused" in replies[0].json["detail"]
    [node] = gateway.get("/v1/nodes").json["nodes"]
    assert (node["is_up"], "refused" in node["error"]) == (False, True)


def test_lists_are_refused_if_the_nodes_refuse_the_gateways_login(make_gateway, caplog):
    with testing.node(requirepass="open sesame") as node:
        gateway = make_gateway(url=f"disque://:wrong@{node.address}")
        for path in ("queues", "queues/q", "locks"):
            reply = gateway.get(f"/v1/{path}")
            assert (reply.status, reply.json["code"]) == (401, "WRONGPASS")
        assert f"{node.address} refuses the gateway's login: " in caplog.text


def test_metrics_include_those_of_the_nodes_and_of_the_gateway(gateway, queue):
    added(gateway, queue)
    deadline = time.monotonic() + 10
    while f'queue="{queue}"' not in (text := gateway.get("/metrics").text) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert f'queue="{queue}"' in text
    assert 'disque_gateway_request_duration_seconds_count{code="OK",door="http",operation="enqueue"}' in text


def test_browsers_are_told_to_cache_nothing_and_to_guess_no_type(gateway):
    headers = gateway.get("/v1/nodes").headers
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers
