"""The OpenAPI document agrees with the table of operations."""

from __future__ import annotations

import re

import pytest

from disque_py.gateway.http.openapi import document
from disque_py.gateway.operations import TABLE
from disque_py.gateway.problems import BY_CODE

FOUND = document("/mq", ("basic", "bearer", "certificate"))


@pytest.mark.parametrize("operation", TABLE, ids=lambda row: row.name)
def test_every_operation_is_described_with_its_arguments_and_errors(operation):
    entry = FOUND["paths"][operation.path][operation.verb.lower()]
    assert entry["operationId"] == operation.name
    assert {each["name"] for each in entry["parameters"]} == {
        each.name for each in operation.arguments if each.place != "body"
    }
    statuses = {str(BY_CODE[code].http) for code in operation.all_errors()} | {str(operation.status)}
    assert set(entry["responses"]) == statuses


def test_bodies_refuse_further_fields():
    body = FOUND["paths"]["/v1/queues/{queue}/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["additionalProperties"] is False


def test_the_openapi_description_names_the_base_path_and_the_logins():
    assert FOUND["openapi"].startswith("3.1")
    assert FOUND["servers"] == [{"url": "/mq"}]
    assert {name for each in FOUND["security"] for name in each} == set(FOUND["components"]["securitySchemes"])
    assert len(FOUND["security"]) == 3
    assert "security" not in document("")


def test_the_openapi_description_is_served(gateway):
    assert gateway.get("/v1/openapi.json").json == document("")


@pytest.mark.parametrize("path", FOUND["paths"])
def test_a_path_supports_the_methods_of_its_description(gateway, path):
    """No operation supports PATCH, so the gateway answers with the methods of the path."""
    reply = gateway.request("PATCH", re.sub(r"{\w+}", "x", path))
    described = {verb.upper() for verb in FOUND["paths"][path]}
    assert reply.status == 405
    assert set(reply.json["methods"]) - {"HEAD"} == described
    assert reply.headers["allow"] == ", ".join(reply.json["methods"])
