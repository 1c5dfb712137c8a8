"""Commands about the cluster: their words and replies."""

from __future__ import annotations

import pytest

from disque_py.client import cluster_commands
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (cluster_commands.cluster_voters(), "CLUSTER VOTERS"),
        (cluster_commands.cluster_voters_init("a", "b"), "CLUSTER VOTERS INIT a b"),
        (cluster_commands.hello(), "HELLO"),
        (cluster_commands.cluster_info(), "CLUSTER INFO"),
        (cluster_commands.cluster_nodes(), "CLUSTER NODES"),
        (cluster_commands.cluster_myid(), "CLUSTER MYID"),
        (cluster_commands.cluster_meet("h", 1), "CLUSTER MEET h 1"),
        (cluster_commands.cluster_meet("h", 1, 2), "CLUSTER MEET h 1 2"),
        (cluster_commands.cluster_forget("id"), "CLUSTER FORGET id"),
        (cluster_commands.cluster_reset(hard=True), "CLUSTER RESET HARD"),
        (cluster_commands.cluster_leaving(), "CLUSTER LEAVING"),
        (cluster_commands.cluster_leaving(False), "CLUSTER LEAVING no"),
        (cluster_commands.cluster_saveconfig(), "CLUSTER SAVECONFIG"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire


def test_leaving_is_reported_or_set():
    """The reply to a change is the new state."""
    assert cluster_commands.cluster_leaving().read(b"yes") is True
    assert cluster_commands.cluster_leaving(True).read(b"OK") is True
