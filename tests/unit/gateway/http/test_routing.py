"""Paths."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from disque_py.gateway.http.routing import Routes
from disque_py.gateway.operations import TABLE
from disque_py.gateway.problems import RefusedError

ROUTES = Routes(TABLE)
ID = "D-015ef0ef-djnn/iAXoyTWuipD8+yjDbcJ-05a1"


@pytest.mark.parametrize("operation", TABLE, ids=lambda operation: operation.name)
def test_every_path_leads_to_its_operation(operation):
    path = operation.path.replace("{queue}", "a%2Fb").replace("{id}", ID).replace("{name}", "a%2Fb")
    found, texts = ROUTES.find(operation.verb, path)
    assert found is operation
    assert texts == {
        name: value
        for name, value in (("queue", "a/b"), ("name", "a/b"), ("id", ID))
        if f"{{{name}}}" in operation.path
    }


@pytest.mark.parametrize("safe", ["/+", "/", "+", ""])
def test_each_character_of_an_id_may_be_encoded_or_not(safe):
    """`urllib.parse.quote` encodes `+`, but not `/`."""
    operation, texts = ROUTES.find("GET", f"/v1/jobs/{quote(ID, safe=safe)}/history")
    assert (operation.name, texts) == ("job_history", {"id": ID})


def test_another_method_is_named():
    with pytest.raises(RefusedError, match="GET, HEAD, POST") as caught:
        ROUTES.find("PATCH", "/v1/queues/a/jobs")
    assert (caught.value.code, caught.value.more) == ("METHOD", {"methods": ["GET", "HEAD", "POST"]})


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/queues/", "/v1/queues/a/b/c", "/v2/queues"])
def test_an_unknown_path_is_not_found(path):
    with pytest.raises(RefusedError) as caught:
        ROUTES.find("GET", path)
    assert caught.value.code == "NOTFOUND"


def test_a_name_that_is_not_utf_8_is_found_with_its_bytes():
    """As in the client library, such bytes are surrogates in a text."""
    _, texts = ROUTES.find("GET", "/v1/queues/caf%e9")
    assert texts["queue"].encode(errors="surrogateescape") == b"caf\xe9"


def test_a_path_that_comes_again_is_found_again_and_those_with_ids_are_not_kept():
    routes = Routes(TABLE)
    for _ in range(2):
        operation, texts = routes.find("POST", "/v1/queues/a%2Fb/jobs")
        assert (operation.name, texts) == ("enqueue", {"queue": "a/b"})
        assert routes.find("GET", "/v1/jobs/D-1")[1] == {"id": "D-1"}
    assert list(routes._known) == [("POST", "/v1/queues/a%2Fb/jobs")]
