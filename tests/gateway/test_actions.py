"""The table of operations and the actions behind it."""

from __future__ import annotations

from disque_py.gateway import actions
from disque_py.gateway.operations import TABLE


def test_every_operation_with_json_has_an_action():
    assert set(actions.ACTIONS) == {row.name for row in TABLE if row.form == "json"}
