"""Commands about one queue: their words, and refused calls."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disque_py.client import queue_commands
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (queue_commands.qlen("q"), "QLEN q"),
        (queue_commands.qpeek("q", -2), "QPEEK q -2"),
        (queue_commands.qpeek("q", 2, where={"a": b"b"}), "QPEEK q 2 WHERE a b"),
        (queue_commands.qlen("q", where={b"a": "b", b"c": "d"}), "QLEN q WHERE a b WHERE c d"),
        (queue_commands.queue_depths("q", "a", count=5), "QDEPTH q BY a COUNT 5"),
        (queue_commands.qlen("q", status="running", cluster=True), "QLEN q STATUS running CLUSTER"),
        (queue_commands.qpeek("q", 3, cluster=True), "QPEEK q 3 CLUSTER"),
        (queue_commands.qpeek("q", 3, status="invisible"), "QPEEK q 3 STATUS invisible"),
        (queue_commands.qstat("q"), "QSTAT q"),
        (queue_commands.qstat("q", cluster=True), "QSTAT q CLUSTER"),
        (queue_commands.qstat("q", recent=True), "QSTAT q RECENT"),
        (queue_commands.pause("q", "in", "out", bcast=True), "PAUSE q in out bcast"),
        (queue_commands.pause("q"), "PAUSE q state"),
        (queue_commands.queue_settings("q"), "QUEUE GET q"),
        (queue_commands.queues_with_settings("m*"), "QUEUE LIST m*"),
        (queue_commands.queues_with_settings(), "QUEUE LIST"),
        (queue_commands.reset_queue("q"), "QUEUE RESET q"),
        (queue_commands.set_queue("q", lease=30, delay=timedelta(milliseconds=1500), ttl="", replicate="quorum"),
         "QUEUE SET q lease 30 delay 1500ms ttl  replicate quorum"),
        (queue_commands.set_queue("q", attempts=3, backoff="fixed:100:100", dead_letter="dead", retention=60),
         "QUEUE SET q attempts 3 backoff fixed:100:100 dead-letter dead retention 60"),
        (queue_commands.set_queue("q", exclusive_by="user", assign="quorum"),
         "QUEUE SET q type exclusive exclusive-by user assign quorum"),
        (queue_commands.set_queue("q", maxlen=1, maxsize=0, require_meta=["a", b"b"], index=["t"],
                                  more={"rate": "1/s"}),
         "QUEUE SET q maxlen 1 maxsize 0 require-meta a,b index t rate 1/s"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert words_of(request_) == wire


def test_a_queue_is_not_set_without_a_field_or_with_a_word_for_a_time():
    with pytest.raises(ValueError, match="needs a field"):
        queue_commands.set_queue("q")
    with pytest.raises(ValueError, match="lease must be a number of seconds"):
        queue_commands.set_queue("q", lease="soon")


def test_the_figures_of_a_queue_are_of_the_cluster_or_recent():
    with pytest.raises(ValueError, match="not both"):
        queue_commands.qstat("q", cluster=True, recent=True)
