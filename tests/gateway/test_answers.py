"""Answers of real nodes have the schemas of the OpenAPI document, for every operation.

RunningGateway compares each answer, so every test of the gateway that makes requests tests schemas, too.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.request

import jsonschema
import pytest

from answer_schemas import check, check_answer
from disque_py import testing
from disque_py.gateway.answers import ANSWERS, BY_NAME, REF
from disque_py.gateway.http.openapi import document
from disque_py.gateway.logins.access_file import token_entry
from disque_py.gateway.operations import BY_NAME as OPERATIONS
from disque_py.gateway.operations import TABLE
from gateways import RunningGateway, until

LATIN = b"\xe9"
FOUND = document("")


def test_every_answer_of_the_document_has_a_schema():
    described = [
        content["schema"]
        for verbs in FOUND["paths"].values()
        for entry in verbs.values()
        for answer in entry["responses"].values()
        for content in answer["content"].values()
    ]
    assert all(described)
    assert list(ANSWERS) == [row.name for row in TABLE]


def test_each_record_is_used_and_each_reference_has_its_record():
    """Problem is used by errors. Nothing else is in the document without being part of an answer."""
    text = json.dumps(FOUND)
    assert set(re.findall(f'"{REF}([^"]+)"', text)) == set(FOUND["components"]["schemas"]) == set(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_record_is_a_schema_of_json_schema_2020_12(name):
    jsonschema.Draft202012Validator.check_schema(FOUND["components"]["schemas"][name])


@pytest.mark.parametrize(
    "body", [b'{"id": 1}', b'{"id": "D-1", "idd": 2}', b"{}"], ids=["wrong type", "unknown field", "no field"]
)
def test_the_check_of_answers_finds_what_the_table_does_not_say(body):
    check_answer("POST", "/v1/queues/q/jobs", 201, "application/json", b'{"id": "D-1"}')
    with pytest.raises(jsonschema.ValidationError):
        check_answer("POST", "/v1/queues/q/jobs", 201, "application/json", body)


class Caller:
    """A caller of a gateway that remembers the operations which succeeded."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.succeeded = []

    def __call__(self, name, value=None, /, *, query="", body=None, kind="application/json", login="", **names):
        row = OPERATIONS[name]
        path = row.path.format(**{each: text.replace("/", "%2F") for each, text in names.items()}) + query
        headers = {"Content-Type": kind} if body is not None else {}
        reply = self.gateway.request(row.verb, path, value, body=body, headers=headers, login=login)
        assert reply.status == row.status, reply.text
        self.succeeded.append(name)
        return reply.json if row.form == "json" else reply.text


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with voters, and with a zone that looks like a number."""
    with testing.cluster(2) as made:
        with made.client() as client:
            client.cluster_voters_init(*(node.id for node in client.hello().nodes))
            client.config_set("zone", "1.10")
        yield made


@pytest.fixture(scope="module")
def call(cluster):
    """A caller without a login, who may do everything."""
    running = RunningGateway(cluster.url)
    yield Caller(running)
    running.close()


def jobs(call, queue):
    """Add, take, settle and look at jobs."""
    ids = [call("enqueue", {"body": "b", "key": f"k{n}", "meta": {"a": "b"}}, queue=queue)["id"] for n in range(4)]
    lines = call("enqueue_batch", body=b'{"body":"x"}\n{"bdy":"x"}\n', kind="application/x-ndjson", queue=queue)
    ids.append(json.loads(lines.splitlines()[0])["id"])
    call("enqueue", {"body_base64": base64.b64encode(LATIN).decode(), "delay_ms": 90_000}, queue=queue)
    call("list_jobs", query="?status=invisible", queue=queue)
    call("search_jobs", {"status": "invisible"}, queue=queue)
    assert len(call("dequeue", {"max": 5, "wait_ms": 5000}, queue=queue)["jobs"]) == 5
    call("extend", {"lease_ms": 5000}, id=ids[0])
    call("get_job", id=ids[0])
    call("wait_job", query="?timeout_ms=0", id=ids[0])
    call("complete", {"result_base64": base64.b64encode(LATIN).decode()}, id=ids[0])
    assert "result_base64" in call("wait_job", id=ids[0])
    call("complete_batch", {"ids": [ids[1]]})
    call("fail", {"reason": "why", "final": True}, id=ids[2])
    assert call("search_jobs", {"status": "errored"}, queue=queue)["reasons"]
    call("list_jobs", query="?status=errored", queue=queue)
    call("requeue", id=ids[2])
    call("fail", {"delay_ms": 90_000}, id=ids[3])
    call("reschedule", {"delay_ms": 80_000, "priority": 1}, id=ids[3])
    call("promote", id=ids[3])
    call("move_job", {"to": f"{queue}-2"}, id=ids[3])
    call("cancel", id=ids[3])
    call("find_jobs", {"keys": ["k2", "unknown"]}, queue=queue)
    assert until(lambda: call("job_history", id=ids[0])["events"])


def queues(call, queue):
    """Look at queues, and change them and their jobs."""
    call("put_queue", {"lease_ms": 1000, "replicate": "1", "require_meta": ["a"]}, queue=queue)
    call("list_settings")
    call("get_queue", queue=queue)
    assert until(lambda: call("list_queues")["queues"])
    call("depth", queue=queue)
    call("pause", {"direction": "in"}, queue=queue)
    call("resume", queue=queue)
    call("redrive", {}, queue=queue)
    call("change_jobs", {"action": "requeue"}, queue=queue)
    call("move", {"to": f"{queue}-2"}, queue=queue)
    work = call("purge_queue", query=f"?confirm={queue}", queue=queue)["id"]
    call("get_operation", id=work)
    call("stop_operation", id=work)
    call("list_operations")


def cluster_wide(call, client, queue):
    """Look at nodes, locks, schedules and the events."""
    assert {node["zone"] for node in call("list_nodes")["nodes"]} == {"1.10", ""}
    client.acquire_lock(queue, "owner", 60)
    call("list_locks")
    client.execute("SCHEDULE", "SET", queue, "EVERY", "1h", "QUEUE", f"{queue}-ticks", "BODY", LATIN)
    call("list_schedules")
    for name in ("run_schedule", "pause_schedule", "resume_schedule", "delete_schedule"):
        call(name, name=queue)


def test_each_operation_answers_as_the_document_says(call, cluster, queue):
    jobs(call, queue)
    queues(call, queue)
    with cluster.client() as client:
        cluster_wide(call, client, queue)
    assert set(call.succeeded) == set(ANSWERS) - {"watch_events"}


def test_a_caller_without_the_role_bodies_gets_answers_of_the_document(cluster, queue, tmp_path):
    entry = token_entry("reader", "dq_reader", ["read"], None)
    (tmp_path / "access.toml").write_text(entry)
    with cluster.client() as client:
        job = client.add_job(queue, "b")
    running = RunningGateway(cluster.url, access_file=tmp_path / "access.toml")
    call, login = Caller(running), "Bearer dq_reader"
    try:
        assert "body" not in call("get_job", id=job, login=login)
        assert "body" not in call("list_jobs", queue=queue, login=login)["jobs"][0]
        assert call("search_jobs", {}, queue=queue, login=login)["reasons"] == []
    finally:
        running.close()


def test_an_event_of_a_stream_has_its_schema(call, queue):
    """The first message of a stream has only an id, the next ones an event."""
    content = FOUND["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    data = content["x-itemSchema"]["properties"]["data"]["contentSchema"]
    with urllib.request.urlopen(f"{call.gateway.address}/v1/events?queue={queue}", timeout=30) as stream:
        call("enqueue", {"body": "b"}, queue=queue)
        lines = (line.decode().rstrip() for line in stream)
        found = {}
        while "data" not in found:
            name, colon, text = next(lines).partition(": ")
            found |= {name: text} if name and colon else {}
    found.pop("retry")
    check(found, content["x-itemSchema"])
    event = json.loads(found["data"])
    assert (event["event"], event["queue"]) == ("added", queue)
    check(event, data)


def test_a_notice_of_a_stream_has_its_schema():
    check({"log": "a", "first": 7}, {"$ref": f"{REF}Notice"})
    with pytest.raises(jsonschema.ValidationError):
        check({"first": 7}, {"$ref": f"{REF}Notice"})
