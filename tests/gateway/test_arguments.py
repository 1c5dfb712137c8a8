"""Arguments of path, query and body."""

from __future__ import annotations

import pytest

from disque_py.gateway.http import arguments
from disque_py.gateway.operations import BY_NAME
from disque_py.gateway.problems import RefusedError


def test_an_unknown_field_is_refused_with_the_one_that_was_meant():
    with pytest.raises(RefusedError, match="no field 'prioriti'; did you mean 'priority'"):
        arguments.of_json(BY_NAME["enqueue"], b'{"prioriti": 1}')


def test_a_null_argument_counts_as_missing():
    assert arguments.of_json(BY_NAME["dequeue"], b'{"max": null}') == {}


def test_a_missing_required_argument_is_an_error():
    with pytest.raises(RefusedError, match="to is missing"):
        arguments.of_json(BY_NAME["move"], b"{}")


def test_a_path_has_its_limits_too():
    with pytest.raises(RefusedError, match="id must have"):
        arguments.of_path(BY_NAME["get_job"], {"id": "x" * 100})


def test_an_operation_without_arguments_takes_none():
    with pytest.raises(RefusedError, match="no field 'x'"):
        arguments.of_query(BY_NAME["list_nodes"], {"x": ["1"]})
