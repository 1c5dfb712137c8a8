"""The table of operations agrees with itself."""

from __future__ import annotations

import pytest

from disque_py.gateway.logins.grants import ROLES
from disque_py.gateway.operations import COMMON_ERRORS, TABLE
from disque_py.gateway.problems import BY_CODE


@pytest.mark.parametrize("operation", TABLE, ids=lambda operation: operation.name)
def test_a_row_names_only_things_that_exist(operation):
    assert operation.role in ROLES
    assert [code for code in operation.all_errors() if code not in BY_CODE] == []
    assert not set(operation.errors) & set(COMMON_ERRORS) - {"TOOBIG"}
    in_path = {argument.name for argument in operation.arguments if argument.place == "path"}
    assert {f"{{{name}}}" for name in in_path} == {
        part.partition(":")[0] for part in operation.path.split("/") if "{" in part
    }


@pytest.mark.parametrize("operation", TABLE, ids=lambda operation: operation.name)
def test_a_read_only_method_changes_nothing_and_the_others_do(operation):
    assert operation.changes == (operation.verb != "GET") or operation.name in ("find_jobs", "search_jobs")


@pytest.mark.parametrize("operation", [row for row in TABLE if row.scope == "queue"], ids=lambda row: row.name)
def test_an_operation_on_a_queue_has_its_name(operation):
    assert "queue" in {argument.name for argument in operation.arguments}


def test_no_name_and_no_path_is_used_twice():
    assert len({row.name for row in TABLE}) == len({(row.verb, row.path) for row in TABLE}) == len(TABLE)


def test_a_body_is_json_for_all_operations_with_fields():
    assert [row.name for row in TABLE if row.has_body and row.verb == "GET"] == []
