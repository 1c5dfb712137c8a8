"""pipelines/history.py: keys of metadata as columns."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.options import OptionError
from disque_py.spark.pipelines.history import columns_of


def test_keys_become_columns():
    assert columns_of(["carrier"]) == (", coalesce(meta['carrier'], '') AS `carrier`", ", `carrier`")
    assert columns_of([]) == ("", "")


@pytest.mark.parametrize("key", ["", "a'b", "a`b", "a\nb", "x" * 201])
def test_a_key_that_could_be_sql_is_refused(key):
    with pytest.raises(OptionError, match="can't be a key of metadata"):
        columns_of([key])
