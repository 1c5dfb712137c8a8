"""The OpenAPI 3.1 document, made from the tables of operations and of answers.

The document is made at a request and has no source of its own: paths, parameters, bodies, roles and errors are those of
operations.py, and the schemas of answers those of answers.py. So it agrees with the routes and checks. Problems
(problems.py) have one schema for all operations.

OpenAPI 3.1 has no schema for a line of NDJSON or for one server-sent event. OpenAPI 3.2 has: `itemSchema`. The document
has it as the extension `x-itemSchema`, which tools of 3.1 ignore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from disque_py import __version__
from disque_py.gateway.answers import ANSWERS, PROBLEM, RECORDS, TEXT, ref
from disque_py.gateway.operations import ENQUEUE_OPTIONS, TABLE, Operation
from disque_py.gateway.problems import BY_CODE

OCTETS: Final = "application/octet-stream"
FORMS: Final = {"json": "application/json", "lines": "application/x-ndjson", "events": "text/event-stream"}
SCHEMES: Final = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "certificate": {"type": "mutualTLS"},
}


def document(base_path: str, schemes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the document of a gateway.

    schemes   the kinds of login that it accepts
    """
    paths: dict[str, Any] = {}
    for operation in TABLE:
        paths.setdefault(operation.path, {})[operation.verb.lower()] = _entry(operation)
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "disque-gateway",
            "version": __version__,
            "summary": "Queues of a disque-py cluster over HTTP.",
            "license": {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"},
        },
        "servers": [{"url": base_path or "/"}],
        "paths": paths,
        "components": {"schemas": {record.name: record.schema() for record in RECORDS}},
    }
    if schemes:
        found["components"]["securitySchemes"] = {scheme: SCHEMES[scheme] for scheme in schemes}
        found["security"] = [{scheme: []} for scheme in schemes]
    return found


def _entry(operation: Operation) -> dict[str, Any]:
    parameters = [
        {
            "name": argument.name,
            "in": argument.place,
            "required": argument.required,
            "description": argument.help,
            **_parameter(argument.kind.schema(), argument.place),
        }
        for argument in operation.arguments
        if argument.place != "body"
    ]
    if operation.name == "enqueue":
        parameters += [
            {
                "name": argument.name,
                "in": "query",
                "required": False,
                "description": f"{argument.help}; only with a body of {OCTETS}",
                **_parameter(argument.kind.schema(), "query"),
            }
            for argument in ENQUEUE_OPTIONS
        ]
    entry: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Command: {operation.command}. Role: `{operation.role}`.",
        "tags": [operation.path.split("/")[2].partition(":")[0]],
        "parameters": parameters,
        "responses": _responses(operation),
    }
    if operation.has_body:
        entry["requestBody"] = {
            "required": any(argument.required for argument in operation.arguments if argument.place == "body"),
            "content": {"application/json": {"schema": _body(operation)}},
        }
        if operation.name == "enqueue":
            entry["requestBody"]["content"][OCTETS] = {}
    if operation.form == "lines":
        entry["requestBody"] = {"required": True, "content": {FORMS["lines"]: {"schema": {"type": "string"}}}}
    return entry


def _parameter(schema: dict[str, Any], place: str) -> dict[str, Any]:
    if schema["type"] == "object":  # `name:value`, repeated.
        texts = {
            "type": "array",
            "items": {"type": "string", "pattern": "^[^:]+:"},
            "maxItems": schema["maxProperties"],
        }
        return {"schema": texts, "style": "form", "explode": True}
    return {"schema": schema}


def _body(operation: Operation) -> dict[str, Any]:
    fields = [argument for argument in operation.arguments if argument.place == "body"]
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.name: each.kind.schema() | {"description": each.help} for each in fields},
    }
    required = [each.name for each in fields if each.required]
    if required:
        schema["required"] = required
    if operation.name == "enqueue":
        schema["oneOf"] = [{"required": ["body"]}, {"required": ["body_base64"]}]
    return schema


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(operation.status): {
            "description": operation.summary,
            "content": {FORMS[operation.form]: _content(operation)},
        }
    }
    codes: dict[int, list[str]] = {}
    for code in operation.all_errors():
        codes.setdefault(BY_CODE[code].http, []).append(code)
    for status, names in sorted(codes.items()):
        meaning = f"{BY_CODE[names[0]].meaning}: {', '.join(dict.fromkeys(names))}"
        responses[str(status)] = {
            "description": meaning,
            "content": {"application/problem+json": {"schema": ref(PROBLEM.name)}},
        }
    return responses


def _content(operation: Operation) -> dict[str, Any]:
    """Return the media type of an answer: its schema, or that of each line or event."""
    answer = ref(ANSWERS[operation.name])
    if operation.form == "json":
        return {"schema": answer}
    if operation.form == "lines":
        return {"schema": TEXT, "x-itemSchema": {"anyOf": [answer, ref(PROBLEM.name)]}}
    data = {"anyOf": [answer, ref("Notice")]}
    fields = {
        "id": TEXT | {"description": "the place after the event, for Last-Event-ID"},
        "event": TEXT | {"description": "name of the event, or of the notice"},
        "data": TEXT | {"contentMediaType": "application/json", "contentSchema": data},
    }
    return {"schema": TEXT, "x-itemSchema": {"type": "object", "required": ["id"], "properties": fields}}
