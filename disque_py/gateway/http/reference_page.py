"""The page /docs: the reference of the HTTP interface for people, made from the tables. It needs no script."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from disque_py import __version__
from disque_py.gateway.answers import BY_NAME, RECORDS, Record, answer_text, type_text
from disque_py.gateway.operations import TABLE, Operation
from disque_py.gateway.problems import TABLE as PROBLEMS
from disque_py.gateway.problems import Row

CSS = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; }
.verb { font-weight: 700; }
"""


def page(base_path: str) -> bytes:
    """Return the page."""
    rows = "".join(
        f"<li><a href='#{each.name}'><code>{each.verb} {escape(each.path)}</code></a> {escape(each.summary)}</li>"
        for each in TABLE
    )
    text = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>disque-gateway: HTTP</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<link rel='stylesheet' href='{base_path}/docs.css'></head><body><main>"
        f"<h1>disque-gateway {__version__}</h1><p>The same as OpenAPI 3.1: <a href='{base_path}/v1/openapi.json'>"
        f"openapi.json</a>.</p><ul>{rows}</ul>{''.join(_section(each, base_path) for each in TABLE)}"
        "<h2 id='errors'>Errors</h2><table><tr><th>code</th><th>status</th><th>meaning</th></tr>"
        f"{''.join(map(_error, PROBLEMS))}</table><h2 id='answers'>Answers</h2>{''.join(map(_record, RECORDS))}"
        "</main></body></html>"
    )
    return text.encode()


def _error(row: Row) -> str:
    return f"<tr><td>{_codes(row.codes)}</td><td>{row.http}</td><td>{escape(row.meaning)}</td></tr>"


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(f"<code>{code}</code>" for code in codes)


def _section(operation: Operation, base_path: str) -> str:
    rows = "".join(
        f"<tr><td><code>{each.name}</code></td><td>{each.place}{', required' if each.required else ''}</td>"
        f"<td>{escape(each.help)}</td></tr>"
        for each in operation.arguments
    )
    table = f"<table><tr><th>argument</th><th>in</th><th>meaning</th></tr>{rows}</table>" if rows else ""
    return (
        f"<h2 id='{operation.name}'><span class='verb'>{operation.verb}</span> "
        f"<code>{escape(base_path + operation.path)}</code></h2><p>{escape(operation.summary)}</p>"
        f"<p>Role <code>{operation.role}</code>. Command <code>{escape(operation.command)}</code>. "
        f"Answer {operation.status}: {_linked(answer_text(operation))}. "
        f"Errors besides the common ones: {_codes(operation.errors) or 'none'}.</p>{table}"
    )


def _record(record: Record) -> str:
    rows = "".join(
        f"<tr><td><code>{each.name}</code></td><td>{_linked(type_text(each.schema))}</td>"
        f"<td>{escape(each.help)}{'' if each.is_always else ' (not always)'}</td></tr>"
        for each in record.fields
    )
    more = " A node may add fields." if record.is_open else ""
    return (
        f"<h3 id='answer-{record.name}'>{record.name}</h3><p>{escape(record.help)}{more}</p>"
        f"<table><tr><th>field</th><th>type</th><th>meaning</th></tr>{rows}</table>"
    )


def _linked(text: str) -> str:
    """Return a text in which each name of a record is a link to it."""
    words = (f"<a href='#answer-{word}'>{word}</a>" if word in BY_NAME else word for word in re.split(r"(\w+)", text))
    return "".join(words)
