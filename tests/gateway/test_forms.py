"""Forms as operations."""

from __future__ import annotations

import pytest

from disque_py.gateway.console.forms import OFFERED, Bulk, check_number, form_args
from disque_py.gateway.console.pages import Filter
from disque_py.gateway.operations import BY_NAME
from disque_py.gateway.problems import RefusedError


def test_an_empty_field_counts_as_missing():
    assert form_args("enqueue", {"queue": ["q"], "body": [""], "priority": [""]}) == {"queue": "q", "body": ""}


def test_fields_of_forms_are_checked_like_those_of_other_requests():
    with pytest.raises(RefusedError, match="priority"):
        form_args("enqueue", {"queue": ["q"], "priority": ["high"]})
    with pytest.raises(RefusedError, match="to is missing"):
        form_args("move", {"queue": ["q"]})


def test_only_a_setting_can_be_emptied():
    """An empty name would be that of another queue."""
    for name, fields in (("pause", {}), ("put_queue", {}), ("move", {"to": [""], "was_to": ["r"]})):
        with pytest.raises(RefusedError, match="is missing"):
            form_args(name, {"queue": ["" if not fields else "q"], "was_queue": ["q"], **fields})
    assert form_args("put_queue", {"queue": ["q"], "ttl_ms": [""], "was_ttl_ms": ["5"]})["ttl_ms"] == 0


@pytest.mark.parametrize("name", ["dequeue", "watch_events", "no_such", ""])
def test_forms_accept_only_operations_that_pages_offer(name):
    with pytest.raises(RefusedError) as caught:
        form_args(name, {})
    assert caught.value.code == "NOTFOUND"


def test_pages_offer_changes_only():
    assert all(BY_NAME[name].changes for name in OFFERED)


def test_a_large_number_of_jobs_must_be_confirmed():
    jobs = Filter("q", "pending", {}, "", None)
    many = Bulk("cancel", jobs, "", [], 101)
    check_number(many, "101", "101")
    check_number(Bulk("cancel", jobs, "", [], 100), "", "100")
    for typed, counted in (("", "101"), ("100", "101"), ("101", "100")):
        with pytest.raises(RefusedError):
            check_number(many, typed, counted)


def test_lines_of_metadata_have_each_name_once():
    assert form_args("enqueue", {"queue": ["q"], "body": ["b"], "meta": ["a:1\nb:2"]})["meta"] == {"a": "1", "b": "2"}
    with pytest.raises(RefusedError, match="meta has the name a twice"):
        form_args("enqueue", {"queue": ["q"], "body": ["b"], "meta": ["a:1\na:2"]})


def test_a_body_of_bytes_is_given_as_base64():
    fields = {"queue": ["q"], "body": ["AP8="], "encoding": ["base64"]}
    assert form_args("enqueue", fields) == {"queue": "q", "body_base64": b"\0\xff"}
    assert form_args("enqueue", fields | {"body": [""]}) == {"queue": "q", "body_base64": b""}
    with pytest.raises(RefusedError, match="body_base64"):
        form_args("enqueue", fields | {"body": ["not Base64"]})
