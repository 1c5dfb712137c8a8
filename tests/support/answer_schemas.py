"""Every answer of a gateway that a test gets is compared with the schema of the OpenAPI document.

A schema permits further fields, because later versions may add some. Here they are errors, except where a node may add
them, so a field that the table of answers lacks is found.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema

from disque_py.gateway.answers import BY_NAME
from disque_py.gateway.http.openapi import document


@cache
def strict_schemas() -> dict[str, Any]:
    """Return the records of the document, without permission for further fields."""
    found = document("")["components"]["schemas"]
    for name, record in BY_NAME.items():
        if not record.is_open:
            found[name]["additionalProperties"] = False
    return {"components": {"schemas": found}}


@cache
def paths() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return a pattern and the methods of each path; a path without a name in it comes first."""
    found = document("")["paths"]
    return [
        (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)).replace(r"\:", ":")), found[path])
        for path in sorted(found, key=lambda path: "{" in path)
    ]


@cache
def validator(schema: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a schema, which is JSON text."""
    return jsonschema.Draft202012Validator(json.loads(schema) | strict_schemas())


def check(value: Any, schema: dict[str, Any]) -> None:
    """Compare a value with a schema of the document. Raises ValidationError."""
    validator(json.dumps(schema)).validate(value)


def check_answer(verb: str, path: str, status: int, kind: str, body: bytes) -> None:
    """Compare an answer with the description of its operation. Raises AssertionError, ValidationError."""
    if not body:  # The answer to HEAD.
        return
    if kind == "application/problem+json":
        check(json.loads(body), {"$ref": "#/components/schemas/Problem"})
        return
    entry = next((verbs.get(verb.lower()) for pattern, verbs in paths() if pattern.fullmatch(path)), None)
    if entry is None or status >= 300:
        return
    content = entry["responses"][str(status)]["content"][kind.partition(";")[0]]
    if "x-itemSchema" not in content:
        check(json.loads(body), content["schema"])
        return
    records = messages(body) if "event-stream" in kind else [json.loads(line) for line in body.splitlines()]
    for record in records:
        check(record, content["x-itemSchema"])


def messages(stream: bytes) -> list[dict[str, str]]:
    """Return the server-sent events of a whole stream, without comments and the time to wait before another attempt."""
    blocks = [[line.partition(": ") for line in block.splitlines()] for block in stream.decode().split("\n\n")]
    found = [{name: text for name, _, text in block if name and name != "retry"} for block in blocks]
    return [message for message in found if message]
