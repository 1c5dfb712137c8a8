"""Permissions: each operation with each role, on its queue and on another one."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from disque_py.client import ConnectionLostError
from disque_py.gateway.logins.access_file import token_entry
from disque_py.gateway.logins.grants import ROLES, Principal, grant_of
from disque_py.gateway.operations import BY_NAME, TABLE
from disque_py.gateway.service import SHOWS
from role_requests import ALLOWED, ask
from rpc_client import RpcClient

SECRETS = {role: f"dq_{role}" for role in ROLES}


@pytest.fixture(scope="module")
def guarded(nodes, tmp_path_factory):
    """A gateway with a token per role for queues that begin with `perm`."""
    from gateways import RunningGateway

    folder = tmp_path_factory.mktemp("access")
    path = folder / "access.toml"
    entries = [token_entry(role, secret, [f"{role}:perm*"], None) for role, secret in SECRETS.items()]
    path.write_text("".join([*entries, token_entry("all", "dq_all", ["admin"], None)]))
    running = RunningGateway(nodes.url, access_file=path, audit_log=folder / "audit.log")
    yield running
    running.close()


@pytest.fixture(scope="module")
def jobs(guarded):
    """A job in a queue of the pattern, and one in another queue."""
    login = "Bearer dq_all"
    return {
        name: guarded.post(f"/v1/queues/{name}/jobs", {"body": "b"}, login=login).json["id"]
        for name in ("perm", "other")
    }


# A stream does not end, so another test has it.
ASKED = [row for row in TABLE if row.form != "events"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("operation", ASKED, ids=lambda row: row.name)
def test_a_role_opens_what_it_names_on_its_queues_and_nothing_else(guarded, jobs, operation, role):
    if operation.name == "wait_job":
        return  # This operation waits. See test_waiting below.
    login = f"Bearer {SECRETS[role]}"
    is_open = operation.role in ALLOWED[role]
    assert (ask(guarded, jobs, operation, "perm", login).status != 403) == is_open
    if operation.scope in ("queue", "job", "name"):
        refused = ask(guarded, jobs, operation, "other", login)
        assert (refused.status, refused.json["code"]) == (403, "NOPERM")


@pytest.mark.parametrize("role", ROLES)
def test_waiting_for_a_job_and_following_events_need_roles_too(guarded, jobs, role):
    login = f"Bearer {SECRETS[role]}"
    waited = guarded.get(f"/v1/jobs/{jobs['perm']}/wait?timeout_ms=1", login=login)
    assert (waited.status != 403) == ("read" in ALLOWED[role])
    if "bodies" not in ALLOWED[role]:
        assert guarded.get("/v1/events", login=login).status == 403


@pytest.mark.parametrize("operation", TABLE, ids=lambda row: row.name)
@pytest.mark.parametrize("login", ["", "Bearer dq_wrong", "Basic YTpi", "Digest x"])
def test_without_a_login_nothing_is_open(guarded, jobs, operation, login):
    reply = ask(guarded, jobs, operation, "perm", login)
    assert reply.status == 401


def test_bodies_need_their_role(guarded):
    job = guarded.post("/v1/queues/perm/jobs", {"body": "b"}, login="Bearer dq_all").json["id"]
    path = f"/v1/jobs/{job}"
    assert "body" in guarded.get(path, login="Bearer dq_bodies").json
    assert "body" not in guarded.get(path, login="Bearer dq_read").json
    [job, *_] = guarded.get("/v1/queues/perm/jobs", login="Bearer dq_read").json["jobs"]
    assert not {"body", "meta", "error"} & job.keys()


def test_metadata_cannot_be_guessed_by_a_filter(guarded):
    assert guarded.get("/v1/queues/perm/jobs?where=a:b", login="Bearer dq_read").status == 403
    assert guarded.get("/v1/queues/perm/depth?where=a:b", login="Bearer dq_read").status == 403


def test_a_request_id_returns_jobs_of_its_queue_only(guarded):
    """Callers choose their request ids, so two callers may choose the same one."""
    guarded.post("/v1/queues/other-ids/jobs", {"body": "secret"}, login="Bearer dq_all")
    request = {"request_id": "r1", "wait_ms": 5000}
    assert len(guarded.post("/v1/queues/other-ids/dequeue", request, login="Bearer dq_all").json["jobs"]) == 1
    reply = guarded.post("/v1/queues/perm-ids/dequeue", {"request_id": "r1"}, login="Bearer dq_consume")
    assert reply.json == {"jobs": []}


def test_lists_have_only_what_the_role_covers(guarded):
    for queue in ("perm", "other"):
        assert guarded.post(f"/v1/queues/{queue}/jobs", {"body": "b"}, login="Bearer dq_all").status == 201
    names = {row["name"] for row in guarded.get("/v1/queues?limit=1000", login="Bearer dq_read").json["queues"]}
    assert names
    assert {name for name in names if not name.startswith("perm")} == set()


def test_moving_a_job_needs_the_role_on_both_queues(guarded):
    reply = guarded.post("/v1/queues/perm/move", {"to": "other"}, login="Bearer dq_operate")
    assert (reply.status, "'other'" in reply.text) == (403, True)
    change = {"action": "move", "to": "other", "status": "errored"}
    assert guarded.post("/v1/queues/perm/jobs:change", change, login="Bearer dq_operate").status == 403
    job = guarded.post("/v1/queues/perm/jobs", {"body": "b"}, login="Bearer dq_all").json["id"]
    path = f"/v1/jobs/{quote(job, safe='')}/move"
    assert guarded.post(path, {"to": "other"}, login="Bearer dq_operate").status == 403
    assert guarded.post(path, {"to": "perm-to"}, login="Bearer dq_operate").json == {"changed": 1}


def test_a_queue_of_dead_letters_and_a_batch_need_the_role_too(guarded):
    produce, operate, path = "Bearer dq_produce", "Bearer dq_operate", "/v1/queues/perm-names"
    for words in ({"dead_letter": "other"}, {"more": {"Dead-Letter": "other"}}):
        reply = guarded.request("PUT", path, words, login=operate)
        assert (reply.status, "'other'" in reply.text) == (403, True)
    assert guarded.request("PUT", path, {"dead_letter": "perm-dead"}, login=operate).status == 200
    assert guarded.request("PUT", path, {"dead_letter": ""}, login=operate).status == 200
    assert guarded.post(f"{path}/jobs", {"body": "b", "batch": "other"}, login=produce).status == 403
    lines = b'{"body":"b","batch":"other"}\n{"body":"b","batch":"perm-batch"}'
    headers = {"Content-Type": "application/x-ndjson"}
    reply = guarded.post(f"{path}/jobs:batch", body=lines, headers=headers, login=produce)
    first, second = map(json.loads, reply.text.splitlines())
    assert (first["code"], "id" in second) == ("NOPERM", True)
    newest = guarded.gateway.service.audit.newest[0]
    assert (newest["operation"], newest["outcome"]) == ("enqueue_batch", "NOPERM")


def test_a_check_that_fails_lets_no_operation_pass(guarded, jobs, monkeypatch):
    """The connection is lost after the question for the job's queue. The operation would go to another node."""

    class Lost:
        def add(self, request):
            pass

        async def execute(self):
            return [ConnectionLostError("the node is gone", sent=True)]

    monkeypatch.setattr(guarded.gateway.service.logins.client, "pipeline", Lost)
    path = f"/v1/jobs/{quote(jobs['other'], safe='')}"
    assert guarded.post(f"{path}/cancel", login="Bearer dq_operate").json["code"] == "NONODE"
    assert guarded.get(path, login="Bearer dq_all").json["status"] == "pending"


def test_the_queues_of_many_jobs_are_asked_for_in_parts(guarded, monkeypatch):
    client, made = guarded.gateway.service.logins.client, []
    original = client.pipeline

    def pipeline():
        found = original()
        made.append(found)
        return found

    monkeypatch.setattr(client, "pipeline", pipeline)
    ids = [f"D-{number:08x}-{'A' * 24}-05a1" for number in range(SHOWS + 1)]
    assert guarded.post("/v1/jobs:complete", {"ids": ids}, login="Bearer dq_consume").json == {"changed": 0}
    assert len(made) == 2


def test_changes_and_refusals_are_audited(guarded):
    guarded.post("/v1/queues/perm/pause", {"direction": "out"}, login="Bearer dq_operate")
    guarded.post("/v1/queues/perm/resume", login="Bearer dq_operate")
    guarded.post("/v1/queues/perm/pause", login="Bearer dq_read")
    found = [(line["principal"], line["operation"], line["outcome"]) for line in guarded.gateway.service.audit.newest]
    assert ("token:operate", "pause", "OK") in found
    assert ("token:read", "pause", "NOPERM") in found


def test_a_refused_stream_figure_or_page_is_audited(guarded):
    newest, login = guarded.gateway.service.audit.newest, "Bearer dq_produce"
    rpc = RpcClient(guarded, login=login)
    for request, name in (
        (lambda: guarded.get("/v1/events", login=login), "watch_events"),
        (lambda: guarded.get("/metrics", login=login), "metrics"),
        (lambda: guarded.get("/console/audit", login=login), "audit"),
        (lambda: guarded.get("/console/", login=login), "list_queues"),
        (lambda: rpc("WatchEvents").code(), "watch_events"),
    ):
        newest.clear()
        request()
        assert [(line["operation"], line["outcome"]) for line in newest] == [(name, "NOPERM")]
    rpc.close()


def test_the_number_of_streams_that_a_principal_has_open_is_limited(guarded):
    service = guarded.gateway.service
    someone = Principal("someone", (grant_of("bodies"),), client=None)
    for _ in range(service.settings.streams_max):
        service.open_stream(someone)
    with pytest.raises(Exception, match="streams-max"):
        service.open_stream(someone)
    for _ in range(service.settings.streams_max):
        service.close_stream(someone)
    service.open_stream(someone)
    service.close_stream(someone)


def test_every_operation_was_requested():
    assert {row.name for row in ASKED} | {"watch_events"} == set(BY_NAME)


def test_a_grant_without_its_pattern_is_refused():
    """A pattern that a template left empty must not be all queues."""
    with pytest.raises(ValueError, match="names no queues"):
        grant_of("produce:")
    assert grant_of("produce").pattern == "*"
