"""The REST API of dyno-queues."""

from __future__ import annotations

import pytest

from disque_py.gateway.fields import INT_MAX
from disque_py.gateway.http.dyno import PRIORITY_MAX, STEP, message_of


def push(gateway, queue, *messages):
    return gateway.post(f"/dyno/{queue}/push", list(messages))


def test_messages_are_pushed_popped_and_acknowledged(gateway, queue):
    assert push(gateway, queue, {"id": "a", "payload": "x", "shard": "s1"}, {"id": "b"}).json == ["a", "b"]
    assert gateway.get(f"/dyno/{queue}/size").json == 2
    found = gateway.get(f"/dyno/{queue}/pop?count=2&wait=2000").json
    assert [(each["id"], each["payload"], each["shard"]) for each in found] == [("a", "x", "s1"), ("b", "", "")]
    assert gateway.post(f"/dyno/{queue}/ack/a").json is True
    assert gateway.post(f"/dyno/{queue}/ack/a").json is False
    assert gateway.post(f"/dyno/{queue}/ack/none").json is False
    assert gateway.post(f"/dyno/{queue}/unack/b").json is True
    assert [each["id"] for each in gateway.get(f"/dyno/{queue}/pop?wait=2000").json] == ["b"]


def test_a_lower_priority_is_served_first_whatever_the_age(gateway, queue):
    push(gateway, queue, {"id": "late", "priority": 5}, {"id": "first", "priority": 0}, {"id": "last", "priority": 99})
    found = [each["id"] for each in gateway.get(f"/dyno/{queue}/pop?count=3&wait=2000").json]
    assert found == ["first", "late", "last"]


def test_the_largest_priority_fits():
    assert (PRIORITY_MAX + 1) * STEP < INT_MAX


def test_a_message_exists_once(gateway, queue):
    push(gateway, queue, {"id": "a"}, {"id": "a"})
    assert gateway.get(f"/dyno/{queue}/size").json == 1
    assert gateway.post(f"/dyno/{queue}/ensure", {"id": "a"}).json is False
    assert gateway.post(f"/dyno/{queue}/ensure", {"id": "b"}).json is True


def test_a_timeout_delays_and_can_be_changed(gateway, queue):
    push(gateway, queue, {"id": "a", "timeout": 600_000})
    assert gateway.get(f"/dyno/{queue}/pop").json == []
    assert gateway.get(f"/dyno/{queue}/get/a").json["timeout"] == 600_000
    assert gateway.post(f"/dyno/{queue}/timeout/a?timeout=0").json is True
    assert [each["id"] for each in gateway.get(f"/dyno/{queue}/pop?wait=2000").json] == ["a"]
    assert gateway.post(f"/dyno/{queue}/timeout/a?timeout=60000").json is True


def test_messages_are_peeked_at_removed_and_cleared(gateway, queue):
    push(gateway, queue, {"id": "a"}, {"id": "b"}, {"id": "c"})
    assert [each["id"] for each in gateway.get(f"/dyno/{queue}/peek?count=2").json] == ["a", "b"]
    assert gateway.request("DELETE", f"/dyno/{queue}/remove/a").json is True
    assert gateway.get(f"/dyno/{queue}/shards").json == {"all": {"size": 2, "uacked": 0}}
    assert "operation" in gateway.request("DELETE", f"/dyno/{queue}/clear").json


def test_head_reads_as_get_does_and_takes_no_messages(gateway, queue):
    push(gateway, queue, {"id": "a"})
    for word in ("size", "peek", "shards", "get/a"):
        assert (gateway.request("HEAD", f"/dyno/{queue}/{word}").status, word) == (200, word)
    reply = gateway.request("HEAD", f"/dyno/{queue}/pop")
    assert (reply.status, reply.headers["allow"]) == (405, "GET")
    assert gateway.request("PUT", f"/dyno/{queue}/size").headers["allow"] == "GET, HEAD"
    assert gateway.get(f"/dyno/{queue}/size").json == 1


@pytest.mark.parametrize(
    ("verb", "path", "value", "status"),
    [
        ("POST", "push", [{"payload": "x"}], 400),
        ("POST", "push", [{"id": "a", "prio": 1}], 400),
        ("POST", "push", [{"id": "a", "priority": 100}], 400),
        ("POST", "push", [{"id": "a", "timeout": -1}], 400),
        ("POST", "push", [{"id": 5}], 400),
        ("POST", "push", [], 400),
        ("POST", "push", "x", 400),
        ("GET", "push", None, 405),
        ("GET", "pop?count=0", None, 400),
        ("GET", "pop?count=x", None, 400),
        ("GET", "none", None, 404),
        ("GET", "get/none", None, 404),
    ],
)
def test_wrong_input_is_refused(gateway, queue, verb, path, value, status):
    assert gateway.request(verb, f"/dyno/{queue}/{path}", value).status == status


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("POST", "timeout/m?tiemout=60000", 400),
        ("POST", "timeout/m", 400),
        ("GET", "pop?cuont=5", 400),
        ("GET", "size?where=a:b", 400),
        ("DELETE", "clear?confirm=q", 400),
        ("POST", "ack", 404),
        ("POST", "ack/%ff", 400),
        ("POST", "push/m", 404),
    ],
)
def test_a_misspelled_request_changes_nothing(gateway, queue, verb, path, status):
    push(gateway, queue, {"id": "m", "timeout": 60_000})
    assert gateway.request(verb, f"/dyno/{queue}/{path}", [{"id": "n"}]).status == status
    assert gateway.get(f"/v1/queues/{queue}/depth").json["invisible"] == 1
    assert gateway.get(f"/dyno/{queue}/size").json == 1


def test_roles_apply_to_the_dyno_interface(make_gateway, tmp_path):
    from disque_py.gateway.logins.access_file import token_entry

    path = tmp_path / "access.toml"
    path.write_text(token_entry("t", "dq_t", ["produce:mine", "read:mine"], None))
    gateway = make_gateway(access_file=path)
    login = "Bearer dq_t"
    assert gateway.post("/dyno/mine/push", [{"id": "a"}], login=login).status == 200
    assert gateway.get("/dyno/mine/size", login=login).status == 200
    assert gateway.post("/dyno/other/push", [{"id": "a"}], login=login).status == 403
    assert gateway.get("/dyno/mine/pop", login=login).status == 403
    assert gateway.get("/dyno/mine/size").status == 401


def test_a_job_of_another_program_is_a_message_too():
    assert message_of({"id": "D-1", "body": "x", "meta": {"dyno-priority": "high"}})["priority"] == 0
