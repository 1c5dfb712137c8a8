"""The page /docs."""

from __future__ import annotations

import re

from disque_py.gateway.answers import ANSWERS, BY_NAME, RECORDS
from disque_py.gateway.http.reference_page import page
from disque_py.gateway.operations import TABLE


def test_every_operation_and_argument_is_on_the_page():
    text = page("/mq").decode()
    assert [row.name for row in TABLE if f"id='{row.name}'" not in text] == []
    assert [each.name for row in TABLE for each in row.arguments if f"<code>{each.name}</code>" not in text] == []


def test_every_answer_is_on_the_page_with_its_fields():
    text = page("").decode()
    links = set(re.findall(r"href='#answer-(\w+)'", text))
    assert set(ANSWERS.values()) <= links <= set(BY_NAME)
    assert [name for name in BY_NAME if f"id='answer-{name}'" not in text] == []
    assert [each.name for row in RECORDS for each in row.fields if f"<code>{each.name}</code>" not in text] == []


def test_the_reference_page_loads_nothing_from_other_sites(gateway):
    reply = gateway.get("/docs")
    assert "http://" not in reply.text.replace("http://127", "")
    assert "<script" not in reply.text
    assert "default-src 'self'" in reply.headers["content-security-policy"]
    assert gateway.get("/docs.css").status == 200
