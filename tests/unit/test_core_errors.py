"""core/errors.py: the texts that several commands share, and the exception that carries them."""

from __future__ import annotations

import pytest

from disque_py.core import errors
from disque_py.core.errors import CommandError


def test_the_text_is_the_reply_without_its_dash():
    error = CommandError("ERR because")
    assert (error.text, str(error)) == ("ERR because", "ERR because")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (errors.SYNTAX, "ERR syntax error"),
        (errors.NOT_AN_INTEGER, "ERR value is not an integer or out of range"),
        (errors.BAD_ID, "BADID Invalid Job ID format."),
        (errors.LEAVING, "LEAVING This node is leaving the cluster, please connect to a different one"),
        (errors.OOM, "OOM command not allowed when used memory > 'maxmemory'."),
        (errors.NOAUTH, "NOAUTH Authentication required."),
        (errors.LOADING, "LOADING Disque is loading the dataset in memory"),
    ],
)
def test_shared_texts_are_the_originals_to_the_letter(text, expected):
    """Programs match on them. Spec R8."""
    assert text == expected
