"""The OpenAPI document agrees with the table of operations, and with what a gateway does."""

from __future__ import annotations

import json
import re
from urllib.parse import quote, urlencode

import pytest

from disque_py.gateway.http.openapi import document
from disque_py.gateway.operations import TABLE
from disque_py.gateway.problems import BY_CODE

FOUND = document("/mq", ("basic", "bearer", "certificate"))


@pytest.mark.parametrize("operation", TABLE, ids=lambda row: row.name)
def test_every_operation_is_described_with_its_arguments_and_errors(operation):
    entry = FOUND["paths"][operation.path][operation.verb.lower()]
    assert entry["operationId"] == operation.name
    assert {each["name"] for each in entry["parameters"] if each["in"] == "path" or not operation.has_body} == {
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


JSON, LINES, OCTETS = "application/json", "application/x-ndjson", "application/octet-stream"
UNKNOWN_ID = "D-015ef0ef-djnn-iAXoyTWuipD8+yjDbcJ-05a1"
# Texts with a form that no schema has. A cursor comes from the page before.
FORMS = {"backoff": "fixed:1000:1000", "cursor": None}
OPERATIONS = [(path, verb.upper(), entry) for path, verbs in FOUND["paths"].items() for verb, entry in verbs.items()]
each_operation = pytest.mark.parametrize(
    ("path", "verb", "entry"), OPERATIONS, ids=[entry["operationId"] for _, _, entry in OPERATIONS]
)


def sample(schema):
    """Return a value that a schema allows."""
    if schema["type"] == "object":
        return {"a": "b"}
    if schema["type"] == "array":
        return [sample(schema["items"])]
    if schema["type"] == "string":
        text = "eA==" if "contentEncoding" in schema else "a:b" if "pattern" in schema else "x"
        return schema.get("enum", [text])[0]
    return True if schema["type"] == "boolean" else max(schema["minimum"], 1)


def samples(schemas):
    """Return name -> a value, for all names of which one can be made."""
    found = {name: FORMS.get(name, sample(schema)) for name, schema in schemas.items()}
    return {name: value for name, value in found.items() if value is not None}


def contents_of(entry):
    """Return the types of the body, or an empty one without a body."""
    return entry.get("requestBody", {}).get("content", {"": {}})


def query_of(entry, kind):
    """Return name -> schema of the query of a request with this type. Some parameters are for raw octets only."""
    found = [each for each in entry["parameters"] if each["in"] == "query"]
    return {each["name"]: each["schema"] for each in found if (OCTETS in each["description"]) == (kind == OCTETS)}


def fields_of(entry):
    """Return name -> schema of a JSON body, and the least that such a body has."""
    schema = contents_of(entry).get(JSON, {}).get("schema", {"properties": {}})
    required = schema.get("required", []) + schema.get("oneOf", [{}])[0].get("required", [])
    return schema["properties"], {name: sample(schema["properties"][name]) for name in required}


def called(gateway, path, verb, kind, query, fields):
    """Call an operation. The names in the path are unknown. HEAD shows how a stream begins."""
    path = (
        re.sub(r"{\w+}", quote(UNKNOWN_ID, safe=""), path)
        + "?" * bool(query)
        + urlencode(query, doseq=True).replace("=True", "=true")
    )
    body = {"": None, JSON: json.dumps(fields).encode(), LINES: b"{}\n", OCTETS: b"x"}[kind]
    verb = "HEAD" if path.startswith("/v1/events") else verb
    return gateway.request(verb, path, body=body, headers={"Content-Type": kind} if kind else {})


@each_operation
def test_each_argument_of_the_description_is_accepted(gateway, path, verb, entry):
    """Each one alone, with those that are required. The answer has a status of the description."""
    fields, least = fields_of(entry)
    for kind in contents_of(entry):
        calls = [({}, least)]
        calls += [({name: value}, least) for name, value in samples(query_of(entry, kind)).items()]
        calls += [({}, least | {name: value}) for name, value in samples(fields).items() if kind == JSON]
        for query, body in calls:
            if "body_base64" in body:
                body.pop("body", None)
            reply = called(gateway, path, verb, kind, query, body)
            assert str(reply.status) in entry["responses"], (kind, query, body, reply.text)
            is_refused = reply.status == 400 and re.search("there is no field|must be|must have", reply.text)
            assert not is_refused, (kind, query, body, reply.text)


@each_operation
def test_an_argument_that_the_description_does_not_have_is_refused(gateway, path, verb, entry):
    _, least = fields_of(entry)
    for kind in contents_of(entry):
        found = [called(gateway, path, verb, kind, {"unheard_of": "1"}, least)]
        found += [called(gateway, path, verb, kind, {}, least | {"unheard_of": 1})] if kind == JSON else []
        assert [reply.status for reply in found] == [400] * len(found)
        assert path == "/v1/events" or all("unheard_of" in reply.text for reply in found)


def test_raw_octets_have_all_options_of_a_job_in_the_query():
    entry = FOUND["paths"]["/v1/queues/{queue}/jobs"]["post"]
    assert set(query_of(entry, OCTETS)) == set(fields_of(entry)[0]) - {"body", "body_base64"}
