"""client/topic_commands.py: bytes on the wire, and typed answers."""

from __future__ import annotations

import pytest

from disque_py.client import commands, topic_commands
from disque_py.client.request import Repeat
from disque_py.client.topic_commands import Binding
from request_words import words_of


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (topic_commands.bind("t", "q"), "TOPIC BIND t q"),
        (topic_commands.bind("t", "q", where={"a": "b", "c": "d"}), "TOPIC BIND t q WHERE a b WHERE c d"),
        (topic_commands.unbind("t", "q"), "TOPIC UNBIND t q"),
        (topic_commands.topics(), "TOPIC LIST"),
        (topic_commands.topics("t*"), "TOPIC LIST t*"),
        (topic_commands.publish("t", "b"), "TOPIC PUBLISH t b 5000"),
        (
            topic_commands.publish("t", "b", timeout_ms=9, meta={"a": "b"}, key="k", window=0, delay=2, replace=True),
            "TOPIC PUBLISH t b 9 DELAY 2 META a b KEY k WINDOW 0 REPLACE",
        ),
        (
            topic_commands.publish("t", "b", replicate="quorum", zones=2, batch="B"),
            "TOPIC PUBLISH t b 5000 REPLICATE QUORUM ZONES 2 BATCH B",
        ),
        (commands.add_job("q", "b", key="k", window=60), "ADDJOB q b 5000 KEY k WINDOW 60"),
        (commands.add_job("q", "b", key="k", delay=5, replace=True), "ADDJOB q b 5000 DELAY 5 KEY k REPLACE"),
        (commands.get_job(match=["a*", "b*"]), "GETJOB TIMEOUT 0 FROMMATCH a* b*"),
        (commands.jobs(match=["a*"], count=3), "GETJOB TIMEOUT 0 COUNT 3 FROMMATCH a*"),
    ],
)
def test_a_command_has_these_words_on_the_wire(request_, wire):
    """Spec TP1, TP5, TP6, TP7, TP8."""
    assert words_of(request_) == wire


def test_answers_have_types():
    assert topic_commands.publish("t", "b").read([[b"q", b"D-1"], [b"r", b"D-2"]]) == [("q", "D-1"), ("r", "D-2")]
    assert topic_commands.topics().read([[b"t", b"q", [b"a", b"b"]]]) == [Binding("t", "q", {"a": b"b"})]
    assert topic_commands.bind("t", "q").read(b"OK") is True
    assert topic_commands.unbind("t", "q").read(0) is False


@pytest.mark.parametrize(
    ("words", "repeat"),
    [
        ({}, Repeat.ASK),
        ({"key": "k"}, Repeat.SAFE),
        ({"key": "k", "window": 1}, Repeat.ASK),
        ({"retry_unsafe": True}, Repeat.SAFE),
        ({"retry_unsafe": False}, Repeat.NEVER),
    ],
)
def test_a_publication_is_repeated_only_if_that_makes_no_second_job(words, repeat):
    assert topic_commands.publish("t", "b", **words).repeat is repeat
    assert commands.add_job("t", "b", **words).repeat is repeat


def test_queues_and_patterns_exclude_each_other():
    for queues, match in (((), None), (("q",), ["a*"]), ((), [])):
        with pytest.raises(ValueError, match="queue"):
            commands.get_jobs(*queues, match=match)
